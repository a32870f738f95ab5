"""`camu bench`: a table for people, one JSON document for programs."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from camu.cli.bench import describe

Camu = Callable[..., Any]
MACHINE = {"kernel": "native avx2", "quick": False, "load_before": 0.1, "cores": 2}
W1 = {
    "samples_per_second": 23456.7,
    "ratio_to_plain": 2.5,
    "ratio_to_tuned": 1.25,
    "roofline_fraction": 0.42,
    "overhead_fraction": 0.03,
    "peak_mb": 480.2,
    "kernel": "native avx2",
}


def test_the_chosen_workloads_are_measured_and_printed_as_json(
    camu: Camu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(names: list[str], *, quick: bool, progress: Any) -> dict[str, Any]:
        return {"workloads": dict.fromkeys(names, W1), "machine": MACHINE | {"quick": quick}}

    monkeypatch.setattr("camu.bench.suite.run_bench", measured)
    done = camu("bench", "--quick", "--workloads", "W3d, W1", "--json")
    assert done.code == 0, done.err
    expected = {"workloads": {"W3d": W1, "W1": W1}, "machine": MACHINE | {"quick": True}}
    assert json.loads(done.out) == expected


def test_an_unknown_workload_is_named_with_those_there_are(camu: Camu) -> None:
    done = camu("bench", "--workloads", "W3x")
    assert done.code == 2
    assert "W3x" in done.err
    assert "W3d" in done.err


def rendered(result: dict[str, Any]) -> str:
    from rich.console import Console

    console = Console(width=80, emoji=False)
    with console.capture() as capture:
        for part in describe(result):
            console.print(part, highlight=False)
    return capture.get()


def test_the_table_fits_a_terminal_and_explains_its_columns() -> None:
    own = {key: W1[key] for key in W1 if key != "overhead_fraction"} | {"kernel": "torch"}
    text = rendered({"workloads": {"W1": W1, "evaluation": own}, "machine": MACHINE})
    assert "…" not in text
    (row,) = [line for line in text.splitlines() if line.startswith(" W1")]
    assert row.split() == ["W1", "23,457", "2.50", "1.25", "42", "3", "480"]
    for word in ("times plain:", "times tuned:", "of sgemm:", "outside training:", "memory:"):
        assert word in text
    assert "kernel: native avx2, evaluation: torch" in text
    assert "Other programs" not in text


def test_a_busy_machine_is_mentioned() -> None:
    text = rendered({"workloads": {"W1": W1}, "machine": MACHINE | {"load_before": 1.7}})
    assert "Other programs were running (load 1.7 on 2 cores)" in text
