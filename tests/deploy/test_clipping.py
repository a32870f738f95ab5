"""Updates far above the median norm are clipped; where nobody is, no bit changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import RecordDict

from camu.deploy.deployment import Deployment
from camu.deploy.messages import read_task, write_report, write_result
from camu.deploy.reports import Refusal
from camu.deploy.server.app import serve
from camu.deploy.server.clipping import Clipping, clip_update, norm_limit, update_norm
from camu.errors import InputError
from camu.learning.configured import model_layout
from camu.learning.job import Trained
from camu.learning.weights import Weights
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


def test_an_update_is_scaled_to_the_multiple_of_the_median() -> None:
    results = [
        trained(1.0, 1),
        trained(2.0, 2),
        Refusal("late"),
        trained(3.0, 3),
        trained(2000.0, 4),
    ]
    clipped = Clipping(5.0).together(results, [START] * 5)
    for before, after in zip(results[:4], clipped[:4], strict=True):
        assert after is before  # the same object: no bit changes
    last = clipped[4]
    assert isinstance(last, Trained)
    # The median of 1, 2, 3 and 2000 is 2.5.
    assert update_norm(last.weights, START) == pytest.approx(12.5, rel=1e-6)
    np.testing.assert_allclose(
        last.weights.parameters, results[4].weights.parameters * (12.5 / 2000), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("norms", "multiple", "limit"),
    [
        ([1.0, 9.0], 5.0, np.inf),  # of two, nobody is far off
        ([0.0, 0.0, 0.0], 5.0, np.inf),
        ([1.0, 2.0, 3.0], 0.0, np.inf),
        ([1.0, 2.0, np.inf, np.nan, 6.0], 5.0, 10.0),
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
    clipping = Clipping(2.0)
    norms = [1.0, 1.0, 1.0, 100.0, 100.0, 1.0]
    found = [clipping.alone(trained(norm), START) for norm in norms]
    sizes = [update_norm(each.weights, START) for each in found]
    # The first two have nothing to compare with; what was clipped counts as clipped.
    np.testing.assert_allclose(sizes, [1, 1, 1, 2, 2, 1], rtol=1e-5)


def deployed(fake_grid: Any, folder: Path, clip: float, boast: float, granularity: Any) -> History:
    """A run in which node 0 multiplies its updates."""
    config = small(run__rounds=1, training__model="logistic", scheme__name="fedavg")
    nodes = partition_nodes(config, 3)

    def answer(node: int, message: Any) -> RecordDict:
        if message.metadata.message_type == "query":
            return write_report(nodes[node].report())
        task, states = read_task(message.content, model_layout(config))
        results = nodes[node].train(task, states)
        if nodes[node].partition == 0:
            results = [
                boasted(each, states[s], boast)
                for each, s in zip(results, task.starts, strict=True)
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


@pytest.mark.parametrize("clip", [0.5, -1.0, 1e9, float("nan")])
def test_a_senseless_multiple_is_refused(clip: float) -> None:
    with pytest.raises(InputError, match="--clip"):
        Deployment(small(), "out", clip=clip)
