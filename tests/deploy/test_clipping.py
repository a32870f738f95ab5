"""Updates far above the median norm are clipped; where nobody is, no bit changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import RecordDict

from camu.deploy.deployment import Deployment
from camu.deploy.messages import read_task, write_report, write_result
from camu.deploy.server.app import serve
from camu.deploy.server.trainer import NodeTrainer, _Request
from camu.learning.configured import model_layout
from camu.learning.job import Job, Trained
from camu.learning.weights import Weights
from camu.schemes.limits import clip_update, norm_limit, update_norm
from camu.seeding import derive
from camu.simulation.history import History
from helpers.configs import small
from helpers.nodes import partition_nodes, wait_without_time

LAYOUT = model_layout(small(training__model="logistic"))
START = Weights(np.zeros(LAYOUT.parameter_count), np.zeros(LAYOUT.buffer_count), LAYOUT)


def trained(norm: float, seed: int = 0) -> Trained:
    vector = derive(seed, "own-update").numpy().standard_normal(LAYOUT.parameter_count)
    vector *= norm / np.linalg.norm(vector)
    return Trained(Weights(vector, START.buffers, LAYOUT), 1.0)


def test_an_update_is_scaled_to_the_limit_and_no_bit_of_others_changes() -> None:
    within, beyond = trained(3.0, 3), trained(2000.0, 4)
    assert clip_update(within, START, 12.5) is within
    clipped = clip_update(beyond, START, 12.5).weights
    assert update_norm(clipped, START) == pytest.approx(12.5, rel=1e-6)
    expected = beyond.weights.parameters * (12.5 / 2000)
    np.testing.assert_allclose(clipped.parameters, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("norms", "multiple", "limit"),
    [
        ([1.0, 9.0], 5.0, np.inf),  # of two, nobody is far off
        ([0.0, 0.0, 0.0], 5.0, np.inf),
        ([1.0, 2.0, 3.0], 0.0, np.inf),
        ([1.0, 2.0, np.inf, np.nan, 6.0], 5.0, 10.0),
        ([1.0, 2.0, 3.0, 2000.0], 5.0, 12.5),
        ([], 5.0, np.inf),
    ],
)
def test_the_limit_needs_something_to_compare_with(
    norms: list[float], multiple: float, limit: float
) -> None:
    assert norm_limit(norms, multiple) == limit


def test_entries_that_are_not_finite_are_left_to_the_refusal() -> None:
    bad = Trained(Weights(START.parameters * np.nan, START.buffers, LAYOUT), 1.0)
    assert clip_update(bad, START, 1.0) is bad


def test_an_arrival_is_compared_with_those_before_it() -> None:
    wanted, engine = Deployment(small(), "out", clip=2.0), SimpleNamespace(initial=START)
    trainer = NodeTrainer(wanted, *[None] * 2, {}, ["0"], engine)  # type: ignore[list-item]
    request = _Request(0, Job((0,), (1.0,)), START)
    for norm in (1.0, 1.0, 1.0, 100.0, 100.0, 1.0):
        task = trainer._task([request], 0)
        trainer._receive(request, task, 1, write_result(task, [trained(norm)]))
    found = [trainer.next_reply(None) for _ in range(6)]
    sizes = [update_norm(each[1].weights, START) for each in found if each and each[1]]
    # The first two have nothing to compare with; what was clipped counts as clipped.
    np.testing.assert_allclose(sizes, [1, 1, 1, 2, 2, 1], rtol=1e-5)
    assert trainer.take_faults() == {"clipped": 2}


def deployed(fake_grid: Any, folder: Path, clip: float, boast: float, granularity: Any) -> History:
    """A run in which node 0 multiplies its updates."""
    config = small(run__rounds=1, training__model="logistic", scheme__name="fedavg")
    nodes = partition_nodes(config, 3)

    def answer(node: int, message: Any) -> RecordDict:
        if message.metadata.message_type == "query":
            return write_report(nodes[node].report())
        task, starts = read_task(message.content, model_layout(config))
        results = nodes[node].train(task, starts)
        if nodes[node].partition == 0:
            results = [
                boasted(each, start, boast) for each, start in zip(results, starts, strict=True)
            ]
        return write_result(task, results)

    deployment = Deployment(config, str(folder), granularity, nodes=3, clip=clip)
    return serve(fake_grid(nodes, answer), deployment)


def boasted(result: Trained, start: Weights, factor: float) -> Trained:
    weights = start.parameters + factor * (result.weights.parameters - start.parameters)
    return Trained(replace(result.weights, parameters=weights), result.loss)


@pytest.mark.parametrize("granularity", ["leader", "device"])
def test_a_node_that_boasts_is_clipped_and_counted(
    fake_grid: Any,
    tmp_path: Path,
    granularity: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    wait_without_time(monkeypatch)
    caplog.set_level("WARNING")
    free = deployed(fake_grid, tmp_path / "free", 0.0, 1.0, granularity)
    same = deployed(fake_grid, tmp_path / "same", 5.0, 1.0, granularity)
    assert same.weights_sha256 == free.weights_sha256  # nobody exceeds: no bit changes
    assert same.records[-1].faults["clipped"] == 0
    assert "clipped" not in caplog.text
    wild = deployed(fake_grid, tmp_path / "wild", 5.0, 100.0, granularity)
    assert wild.records[-1].faults["clipped"] > 0
    assert "is clipped to 5 times the median norm" in caplog.text
