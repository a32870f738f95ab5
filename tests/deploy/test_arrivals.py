"""Schemes on nodes: waiting for all gives the simulation's bits, and so do replayed arrivals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.config import Config
from camu.deploy.deployment import Deployment
from camu.deploy.node_app import Node
from camu.deploy.server.app import serve
from camu.errors import InputError
from camu.schemes import SCHEMES, Scheme
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.history import History
from helpers.configs import small
from helpers.nodes import WaitingClock, honest, partition_nodes, wait_without_time
from helpers.replayed_arrivals import replay

ASYNCHRONOUS = [
    name
    for name, kind in SCHEMES.items()
    if kind.ready is not Scheme.ready or kind.deadline is not Scheme.deadline
]
SYNCHRONOUS = [
    name
    for name, kind in SCHEMES.items()
    if name not in ASYNCHRONOUS
    and not kind.uses_oracle
    and kind.family != "over the air"
    and kind.own_training is Scheme.own_training  # nodes refuse what devices train for themselves
]


@pytest.fixture(name="clock", autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> WaitingClock:
    return wait_without_time(monkeypatch)


def one_by_one(
    fake_grid: Any, nodes: dict[int, Node], clock: WaitingClock, answer: Any = None
) -> Any:
    """A grid on which a reply comes every quarter of a second, in an order that nobody planned."""
    grid = fake_grid(nodes, answer or (lambda node, message: honest(nodes[node], message)))
    draw, pull = np.random.default_rng(0), grid.pull_messages

    def pull_one(message_ids: Any) -> list[Any]:
        clock.sleep(0.25)
        there = [number for number in message_ids if number in grid.replies]
        return pull([str(draw.choice(there))]) if there else []

    grid.pull_messages = pull_one
    return grid


def assert_replayed(config: Config, history: History) -> None:
    replayed = replay(config, history.records)
    assert history.weights_sha256 == replayed.weights_sha256
    for one, other in zip(history.records, replayed.records, strict=True):
        assert one.accuracy == other.accuracy
        assert one.joules == other.joules
        assert one.virtual_seconds == other.virtual_seconds
        assert one.units == other.units


@pytest.mark.slow
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_every_scheme_that_waits_has_the_simulations_bits(
    fake_grid: Any, tmp_path: Path, name: str
) -> None:
    config = small(scheme__name=name, data__samples_per_device=30)
    nodes = partition_nodes(config, 2)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    history = serve(grid, Deployment(config, str(tmp_path / "nodes"), nodes=2))
    simulated = run_in_directory(config, RunDirectory(tmp_path / "here"))
    assert history.weights_sha256 == simulated.weights_sha256
    assert "arrivals" not in (tmp_path / "nodes" / "rounds.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_every_scheme_that_does_not_wait_follows_real_arrivals(
    fake_grid: Any, clock: WaitingClock, tmp_path: Path, name: str
) -> None:
    parameters = {"first": 5} if name == "fedsa" else {}  # after its pilot it may wait for all
    config = small(
        scheme__name=name,
        scheme__parameters=parameters,
        run__rounds=5,
        data__samples_per_device=30,
    )
    nodes = partition_nodes(config, 2)
    grid = one_by_one(fake_grid, nodes, clock)
    serve(grid, Deployment(config, str(tmp_path / "nodes"), nodes=2))
    history = RunDirectory(tmp_path / "nodes").read_history()
    assert_replayed(config, history)
    planned = run_in_directory(config, RunDirectory(tmp_path / "here"))
    assert history.weights_sha256 != planned.weights_sha256


WINDOW = """
from camu.schemes.fedsgd import FedSgd


class Window(FedSgd):
    def deadline(self, view, state):
        return view.seconds + 1.0

    def keep(self, view, state, unit, change, kept):
        return change

    def correction(self, view, state, unit):
        return -0.5 * view.kept[unit] if unit in view.kept else None
"""


def test_a_deadline_counts_wall_clock_seconds(
    fake_grid: Any, clock: WaitingClock, tmp_path: Path
) -> None:
    own = tmp_path / "window.py"
    own.write_text(WINDOW)
    config = small(
        scheme__name=f"{own}:Window",
        training__model="logistic",
        data__samples_per_device=20,
        machine__kernel="torch",
    )
    nodes = partition_nodes(config, 2)
    deployment = Deployment(config, str(tmp_path / "run"), nodes=2)
    history = serve(one_by_one(fake_grid, nodes, clock), deployment)
    for record in history.records[1:]:
        assert record.launch_seconds is not None
        since = [arrival["seconds"] - record.launch_seconds for arrival in record.arrivals]
        # The look with which the server asks who is online may bring one at once.
        assert since[-4:] == pytest.approx([0.25, 0.5, 0.75, 1.0])
        assert record.units == len(since) <= 5
    assert {arrival["staleness"] for arrival in history.records[2].arrivals} == {0, 1}
    assert_replayed(config, history)


def test_a_unit_without_a_reply_is_silent_and_starts_again(
    fake_grid: Any, clock: WaitingClock, tmp_path: Path
) -> None:
    config = small(
        scheme__name="fedbuff", scheme__parameters={"buffer": 5}, run__rounds=15,
        training__model="logistic", data__samples_per_device=20,
    )  # fmt: skip
    nodes = partition_nodes(config, 2)
    deaf = max(nodes)
    asked = []

    def answer(node: int, message: Any) -> Any:
        first = message.metadata.group_id.endswith("of round 1")
        if node == deaf and message.metadata.message_type == "train":
            asked.append(first)
            if first:
                return None
        return honest(nodes[node], message)

    grid = one_by_one(fake_grid, nodes, clock, answer)
    history = serve(grid, Deployment(config, str(tmp_path), nodes=2, deadline_seconds=10.0))
    silent = [
        arrival["unit"]
        for record in history.records
        for arrival in record.arrivals
        if arrival["outcome"] == "silent"
    ]
    assert len(silent) == asked.count(True) > 0
    assert sum(record.faults["silent"] for record in history.records) == len(silent)
    assert asked.count(False) > 0  # they started again


def test_arrivals_have_weight_staleness_and_order(
    fake_grid: Any, clock: WaitingClock, tmp_path: Path
) -> None:
    config = small(
        scheme__name="fedbuff", scheme__parameters={"buffer": 4}, run__rounds=6,
        training__model="logistic", data__samples_per_device=20,
    )  # fmt: skip
    nodes = partition_nodes(config, 3)
    serve(one_by_one(fake_grid, nodes, clock), Deployment(config, str(tmp_path), nodes=3))
    directory = RunDirectory(tmp_path)
    records, plan = directory.read_history().records, directory.read_plan()
    born: dict[int, int] = dict.fromkeys(range(len(plan.units)), 0)  # round in which a unit started
    for number, record in enumerate(records[1:]):
        assert [arrival["outcome"] for arrival in record.arrivals] == ["used"] * 4
        for arrival in record.arrivals:
            unit = arrival["unit"]
            assert arrival["weight"] == plan.units[unit].weight
            assert arrival["staleness"] == number - born[unit]
            born[unit] = number + 1


def test_units_of_several_devices_need_leaders(fake_grid: Any, tmp_path: Path) -> None:
    own = tmp_path / "eager.py"
    own.write_text(
        "from camu.schemes.clustered import Clustered\n\n\n"
        "class Eager(Clustered):\n    def ready(self, view, state):\n"
        "        return len(view.arrived) >= 1\n"
    )
    config = small(scheme__name=f"{own}:Eager", training__model="logistic")
    nodes = partition_nodes(config, 2)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    with pytest.raises(InputError, match="use --granularity leader"):
        serve(grid, Deployment(config, str(tmp_path / "run"), "device", nodes=2))


def test_a_scheme_with_an_oracle_is_refused_before_a_node_is_asked(
    fake_grid: Any, tmp_path: Path
) -> None:
    def never(node: int, message: Any) -> Any:
        raise AssertionError("a node was asked")

    config = small(scheme__name="adaptive-tau")
    with pytest.raises(InputError, match="which only a simulation has"):
        serve(fake_grid([1], never), Deployment(config, str(tmp_path), nodes=1))


def test_a_restarted_server_starts_the_units_on_their_way_again(
    fake_grid: Any, tmp_path: Path
) -> None:
    config = small(
        scheme__name="fedasync", run__rounds=4, training__model="logistic",
        data__samples_per_device=20,
    )  # fmt: skip
    nodes = partition_nodes(config, 2)

    class Killed(BaseException):
        pass

    def dies(node: int, message: Any) -> Any:
        if message.metadata.group_id.endswith("of round 3"):
            raise Killed
        return honest(nodes[node], message)

    deployment = Deployment(config, str(tmp_path), nodes=2)
    with pytest.raises(Killed):
        serve(fake_grid(nodes, dies), deployment)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    again = Deployment(config, str(tmp_path), nodes=2, resume=True)
    history = serve(grid, again)
    assert [record.round for record in history.records] == [0, 1, 2, 3, 4]
    outcomes = [arrival["outcome"] for arrival in history.records[3].arrivals]
    assert outcomes == ["silent"] * 19 + ["used"]  # all of 20 units but the one that had arrived
    assert history.records[3].launch_seconds is not None
    assert history.records[3].launch_seconds >= history.records[2].virtual_seconds
