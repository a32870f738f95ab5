"""The bench compares equal work and reports every promised figure."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from camu import bench
from camu.errors import InputError
from camu.learning.weights import weighted_mean

FIGURES = {
    "ratio_to_plain",
    "samples_per_second",
    "rounds_per_second",
    "roofline_fraction",
    "overhead_fraction",
    "peak_mb",
}


@pytest.fixture(autouse=True)
def one_torch_thread():
    """Plain torch computations wait for each other's threads on a busy machine; one is enough."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_a_quick_bench_reports_all_figures() -> None:
    said: list[str] = []
    report = bench.run_bench(quick=True, repetitions=1, progress=said.append)
    assert json.loads(json.dumps(report)) == report
    assert set(report["workloads"]) == {"W1", "W2", "W3"}
    for figures in report["workloads"].values():
        assert set(figures) == FIGURES
        assert all(np.isfinite(value) and value >= 0 for value in figures.values())
    assert any("W3" in line for line in said)
    assert torch.get_num_threads() == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["W1", "W2", "W3"])
def test_both_sides_do_the_same_work(name: str) -> None:
    workload = bench._shrunk(bench.WORKLOADS[name])
    with bench._engine(workload, workers=2) as engine:
        plain = bench.PlainLoop(engine)
        plain.round(workload.jobs(), 3)
        units = engine.train(engine.initial, workload.jobs(), 3)
    mean = weighted_mean((1.0, unit) for unit in units)
    expected = {name: value for name, value in plain.result.items() if value.is_floating_point()}
    running = {name for name in expected if "running_" in name}
    for found, names in ((mean.parameters, expected.keys() - running), (mean.buffers, running)):
        flat = [expected[name].reshape(-1).numpy() for name in expected if name in names]
        np.testing.assert_allclose(found, np.concatenate(flat), atol=1e-5)


def anonymous_mb() -> float:
    """Memory the process holds itself; pages of libraries come and go as the kernel likes."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux tells a process's anonymous memory")
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_devices() -> None:
    """Four times the devices in a unit cost no more memory than their data."""

    def held_mb(devices: int) -> float:
        workload = bench.Workload(devices, 60, 12, 2)
        gc.collect()
        with bench._engine(workload, workers=1) as engine:
            bench._engine_round(engine, workload.jobs(), 0)
            return anonymous_mb()  # the workspace of the largest pass stays for the next

    held_mb(50)  # whatever torch allocates once
    few, many = held_mb(100), held_mb(400)
    data_mb = 300 * 60 * 28 * 28 / 2**20
    assert many - few < data_mb + 25


def test_an_unknown_workload_is_refused() -> None:
    with pytest.raises(InputError, match="W9"):
        bench.run_bench(["W9"])
