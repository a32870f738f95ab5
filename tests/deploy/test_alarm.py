"""A run that is being destroyed stops with an alarm, and its best model is the result."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.deploy.deployment import Deployment
from camu.deploy.server.alarm import HARMED, Alarm
from camu.deploy.server.app import serve
from camu.deploy.status import Journal
from camu.learning.metrics import find_metric
from camu.simulation.run import Run
from helpers.configs import small
from helpers.nodes import honest, partition_nodes, wait_without_time


class FakeRun:
    """What the alarm sees of a run, one record after the other."""

    def __init__(self) -> None:
        self.round, self.stopped, self.notes = 0, "", list[str]()
        self.weights: object = "0"
        self.records: list[Any] = []

    def stop(self, reason: str) -> None:
        self.stopped = reason

    def add(self, score: float | None, units: int = 5, refused: int = 0) -> Any:
        self.round, self.weights = len(self.records), str(len(self.records))
        judged, faults = find_metric("accuracy"), {"refused": refused}
        facts = {"round": self.round, "score": score, "units": units}
        self.records.append(SimpleNamespace(judged=judged, faults=faults, **facts))
        return self.records[-1]


def test_devices_are_counted_where_each_is_asked(tmp_path: Path) -> None:
    units = [SimpleNamespace(members=range(5))] * 4
    for refused, stops in ((10, False), (11, True)):
        run: Any = FakeRun()
        run.plan, run.stopped, alarm = (
            SimpleNamespace(units=units),
            None,
            Alarm(Journal(tmp_path), True),
        )
        for _ in range(3):
            alarm.on_round(run, run.add(0.1, 4, refused))
        assert (run.stopped == HARMED) == stops


def watched(tmp_path: Path, rounds: list[tuple[float | None, int, int]]) -> tuple[Any, list[int]]:
    """The run, and the numbers of the rounds after which it was stopped."""
    run: Any = FakeRun()
    alarm, stops = Alarm(Journal(tmp_path)), []
    run.add(0.1)
    run.stopped = None
    alarm.on_start(run)
    for row in rounds:
        alarm.on_round(run, run.add(*row))
        if run.stopped:
            stops.append(run.round)
            break
    return run, stops


def test_a_collapse_is_stopped_and_the_best_model_comes_back(tmp_path: Path) -> None:
    rounds = [(0.4, 5, 0), (0.8, 5, 0), (None, 5, 0), (0.2, 5, 0), (0.1, 5, 0), (0.1, 5, 0)]
    run, stops = watched(tmp_path, rounds)
    assert (run.stopped, stops) == (HARMED, [5])
    assert run.weights == "2"  # the model of round 2
    assert "Accuracy" in run.notes[0] or "accuracy" in run.notes[0]
    (event,) = map(json.loads, (tmp_path / "events.jsonl").read_text("utf-8").splitlines())
    assert event["event"] == "run-harmed"
    assert "round 2" in event["text"]


@pytest.mark.parametrize(
    "rounds",
    [
        [(0.8, 5, 0), (0.2, 5, 0), (0.7, 5, 0), (0.2, 5, 0)],  # not twice in a row
        [(0.3, 5, 0), (0.1, 5, 0), (0.1, 5, 0), (0.1, 5, 0)],  # too early to say
        [(0.8, 1, 9), (0.8, 1, 9), (0.8, 9, 1), (0.8, 1, 9)],  # refusals not in a row
        [(0.8, 5, 5)] * 5,  # half is used
    ],
)
def test_what_may_happen_to_any_run_is_no_alarm(
    tmp_path: Path, rounds: list[tuple[float | None, int, int]]
) -> None:
    run, stops = watched(tmp_path, rounds)
    assert not stops
    assert run.weights == str(run.round)


def test_a_run_in_which_all_are_refused_ends(
    fake_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_without_time(monkeypatch)
    limit = {"training__model": "logistic", "training__max_update_norm": 1e-9}
    config = small(run__rounds=8, scheme__name="fedsgd", **limit)
    nodes = partition_nodes(config, 2)

    def answer(node: int, message: Any) -> Any:
        return honest(nodes[node], message)

    starts = []
    monkeypatch.setattr(Run, "new", _kept(Run.new, starts))
    history = serve(fake_grid(nodes, answer), Deployment(config, str(tmp_path), nodes=2))
    assert (history.stopped, history.final.round) == (HARMED, 3)
    assert history.weights_sha256 == starts[0].weights.sha256()
    assert "more updates are refused than used" in history.notes[0]
    assert np.isfinite(history.final_score)


def _kept(make: Any, kept: list[Run]) -> Any:
    def made(*given: Any) -> Run:
        kept.append(make(*given))
        return kept[-1]

    return made
