"""A run starts with a quorum; late nodes join, and a node that cannot be used is refused alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import Error

from camu.data import load
from camu.deploy.array_records import head_text
from camu.deploy.deployment import Deployment
from camu.deploy.messages import DeviceReport, Report, write_report
from camu.deploy.node_app import Node
from camu.deploy.server import registry
from camu.deploy.server.app import serve
from camu.deploy.server.fleet import plan_known, reported_world
from camu.errors import CamuError, InputError
from camu.schemes import make_scheme
from camu.simulation.directory import RunDirectory
from camu.world import build_world
from helpers.configs import small
from helpers.nodes import WaitingClock, honest, partition_nodes, wait_without_time

CHEAP = {"training__model": "logistic", "data__samples_per_device": 20}


@pytest.fixture(name="clock", autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> WaitingClock:
    return wait_without_time(monkeypatch)


def events(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [(line["event"], line["text"]) for line in map(json.loads, lines)]


def members(plan: Any) -> set[int]:
    return {k for unit in plan.units for k in unit.members}


def late_grid(fake_grid: Any, nodes: dict[int, Node], late: int, first_round: str) -> Any:
    """A grid on which one node comes when the first message of a round is sent."""

    def answer(node: int, message: Any) -> Any:
        if message.metadata.group_id.endswith(first_round):
            grid.nodes.add(late)
        return honest(nodes[node], message)

    grid = fake_grid([node for node in nodes if node != late], answer)
    return grid


@pytest.mark.parametrize(
    ("granularity", "scheme"),
    [
        ("leader", "camu"),
        ("device", "fedavg"),
        ("leader", "scaffold"),
        pytest.param("leader", "fedbuff", marks=pytest.mark.slow),
    ],
)
def test_a_late_node_joins_at_the_end_of_a_round(
    fake_grid: Any, tmp_path: Path, granularity: Any, scheme: str
) -> None:
    config = small(run__rounds=4, scheme__name=scheme, **CHEAP)
    nodes = partition_nodes(config, 2)
    late = min(nodes)  # it holds the odd devices
    deployment = Deployment(config, str(tmp_path), granularity, 2, quorum="50%", wait_seconds=30)
    history = serve(late_grid(fake_grid, nodes, late, "round 1"), deployment)
    odd = [str(k) for k in range(1, 20, 2)]
    joined = [record.nodes and record.nodes["joined"] for record in history.records]
    assert joined == [[], [], [], odd, []]
    assert members(RunDirectory(tmp_path).read_plan()) == set(range(0, 20, 2))
    online = [record.nodes and record.nodes["online"] for record in history.records]
    assert online[1:] == [20, 20, 20, 20] if granularity == "leader" else online[-1] == 20
    (note,) = history.notes
    assert note.startswith("after round 2 1, 3, 5, 7, 9 and 5 more joined; the plan was made again")
    assert ("plan-made-again", note) in events(tmp_path)
    assert history.records[-1].faults["silent"] == 0
    counts = np.array(
        [d["label_counts"] for d in json.loads((tmp_path / "plan.json").read_text())["devices"]]
    )
    whole = build_world(config).devices.label_counts
    assert np.array_equal(counts[::2], whole[::2])
    assert not counts[1::2].any()  # nobody had reported them when the run began


@pytest.mark.slow
def test_a_run_with_late_nodes_is_resumed_with_its_new_plan(fake_grid: Any, tmp_path: Path) -> None:
    config = small(run__rounds=5, scheme__name="camu", **CHEAP)
    nodes = partition_nodes(config, 2)

    class Killed(BaseException):
        pass

    def run(folder: Path, die: bool) -> Any:
        grid = late_grid(fake_grid, nodes, min(nodes), "round 1")
        answer = grid.answer

        def dies(node: int, message: Any) -> Any:
            if message.metadata.group_id == "round 4":
                raise Killed
            return answer(node, message)

        start = Deployment(config, str(folder), nodes=2, quorum="10", wait_seconds=30)
        if not die:
            return serve(grid, start)
        grid.answer = dies
        with pytest.raises(Killed):
            serve(grid, start)
        grid.answer = answer
        again = Deployment(config, str(folder), nodes=2, quorum="10", resume=True)
        return serve(grid, again)

    whole, resumed = run(tmp_path / "whole", False), run(tmp_path / "resumed", True)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.notes == whole.notes
    assert [r.joules for r in resumed.records] == [r.joules for r in whole.records]
    assert "run-failed" in {name for name, _ in events(tmp_path / "resumed")}


def test_without_a_quorum_no_run_starts(
    fake_grid: Any, tmp_path: Path, clock: WaitingClock
) -> None:
    config = small(**CHEAP)
    nodes = partition_nodes(config, 2)
    grid = fake_grid([max(nodes)], lambda node, message: honest(nodes[node], message))
    with pytest.raises(CamuError, match="the quorum is 11 devices"):
        serve(grid, Deployment(config, str(tmp_path), nodes=2, quorum="55%", wait_seconds=100))
    assert clock.now == pytest.approx(100, abs=1)
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "failed"
    assert "the quorum is 11 devices" in status["error"]


def test_the_status_says_which_devices_are_waited_for(
    fake_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(**CHEAP)
    nodes = partition_nodes(config, 2)
    grid = fake_grid([max(nodes)], lambda node, message: honest(nodes[node], message))
    seen = []
    update = registry.Journal.update

    def keep(self: Any, **facts: Any) -> None:
        update(self, **facts)
        seen.append(json.loads((tmp_path / "status.json").read_text()))

    monkeypatch.setattr(registry.Journal, "update", keep)
    with pytest.raises(CamuError):
        serve(grid, Deployment(config, str(tmp_path), nodes=2, wait_seconds=20))
    waiting = [status for status in seen if status.get("waiting_for")]
    assert waiting[-1]["waiting_for"] == [str(k) for k in range(1, 20, 2)]
    assert waiting[-1]["known"] == 10
    assert 0 < waiting[-1]["waiting_until"] - waiting[0]["started"] <= 21
    assert waiting[-1]["nodes"][0]["online"] is True


@pytest.mark.parametrize(("quorum", "needed"), [("50%", 3), ("0.1%", 1), ("100%", 5), ("4", 4)])
def test_a_quorum_is_a_share_or_a_number(quorum: str, needed: int) -> None:
    assert Deployment(small(), "x", quorum=quorum).devices_needed(5) == needed


@pytest.mark.parametrize("quorum", ["0", "0%", "101%", "-3", "half", "0.5", "", "%", "nan%"])
def test_a_wrong_quorum_is_refused(quorum: str) -> None:
    with pytest.raises(InputError, match="--quorum"):
        Deployment(small(), "x", quorum=quorum)


def hostile(report: Report, how: str) -> Any:
    """What a node that cannot be used reports."""
    counts = report.devices[0].label_counts
    if how == "an unknown device":
        return write_report(Report((DeviceReport("press", counts, None),)))
    if how == "another node's device":
        return write_report(Report((DeviceReport("0", counts, None),)))
    content = write_report(report)
    head = json.loads(head_text(content))
    head["devices"][0]["label_counts"][0] = 10**400
    content["camu"]["json"] = json.dumps(head)
    return content


@pytest.mark.parametrize("how", ["an unknown device", "another node's device", "a huge number"])
def test_a_node_that_cannot_be_used_is_refused_alone(
    fake_grid: Any, tmp_path: Path, clock: WaitingClock, how: str
) -> None:
    config = small(run__rounds=1, **CHEAP)
    nodes = partition_nodes(config, 2)
    asked = []

    def answer(node: int, message: Any) -> Any:
        if node in nodes:
            return honest(nodes[node], message)
        asked.append(clock.now)
        return hostile(nodes[max(nodes)].report(), how)

    grid = fake_grid([*nodes, 1], answer)
    # A node that comes after the others: it claims what is already known.
    if how == "another node's device":
        grid.nodes.discard(1)
        push = grid.push_messages

        def come(messages: Any) -> Any:
            sent = push(messages)
            grid.nodes.add(1)
            return sent

        grid.push_messages = come
    history = serve(grid, Deployment(config, str(tmp_path), nodes=2))
    assert history.records[-1].faults["silent"] == history.records[-1].faults["refused"] == 0
    assert asked
    refused = [text for name, text in events(tmp_path) if name == "node-refused"]
    assert len(refused) == 1
    assert refused[0].startswith("node 1 is refused: ")


LIES = {
    "too many samples": (
        lambda d: DeviceReport(d.id, (10**9, *d.label_counts[1:]), None),
        "claims",
    ),
    "too slow": (lambda d: DeviceReport(d.id, d.label_counts, 61.0), "takes 61 s, longer than"),
}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("how", LIES)
def test_a_node_with_an_incredible_claim_is_left_out_of_the_plan(
    fake_grid: Any, tmp_path: Path, how: str, late: bool
) -> None:
    config = small(run__rounds=4, scheme__name="fedavg", **CHEAP)
    nodes = partition_nodes(config, 4)
    liar = min(nodes)
    lie, words = LIES[how]

    def run(name: str, lies: bool) -> Any:
        def answer(node: int, message: Any) -> Any:
            if late and message.metadata.group_id == "round 1":
                grid.nodes.add(liar)
            if node == liar and message.metadata.message_type == "query":
                if not lies:
                    return Error(0, "it does not report")
                found = nodes[node].report()
                return write_report(replace(found, devices=tuple(map(lie, found.devices))))
            return honest(nodes[node], message)

        grid = fake_grid([node for node in nodes if node != liar or not late], answer)
        wanted = Deployment(config, str(tmp_path / name), "device", 4, quorum="50%")
        return serve(grid, replace(wanted, wait_seconds=30, most_samples=10.0))

    found, without = run("lies", True), run("mute", False)
    assert found.weights_sha256 == without.weights_sha256
    assert found.records[-1].units == without.records[-1].units == 15
    refused = [text for name, text in events(tmp_path / "lies") if name == "node-refused"]
    assert len(refused) == 1
    assert words in refused[0]
    kept = json.loads((tmp_path / "lies" / "nodes.json").read_text())
    assert len(kept) == 3


def test_a_run_without_enough_credible_nodes_does_not_start(fake_grid: Any, tmp_path: Path) -> None:
    config = small(**CHEAP)
    nodes = partition_nodes(config, 4)
    lie, _ = LIES["too many samples"]

    def answer(node: int, message: Any) -> Any:
        found = nodes[node].report()
        if node == min(nodes):
            found = replace(found, devices=tuple(map(lie, found.devices)))
        return write_report(found)

    with pytest.raises(CamuError, match=r"5 of 20 devices were not reported .* the quorum is 20"):
        serve(fake_grid(nodes, answer), Deployment(config, str(tmp_path), nodes=4, most_samples=2))


@pytest.mark.parametrize("option", ["clip", "most_samples"])
@pytest.mark.parametrize("value", [-1.0, 0.5, 2e6, float("nan")])
def test_a_wrong_multiple_of_the_median_is_refused(option: str, value: float) -> None:
    with pytest.raises(InputError, match="--" + option.replace("_", "-")):
        Deployment(small(), "x", **{option: value})  # type: ignore[arg-type]


def test_a_refused_node_is_asked_again_after_a_while(
    fake_grid: Any, tmp_path: Path, clock: WaitingClock
) -> None:
    config = small(run__rounds=1, **CHEAP)
    nodes = partition_nodes(config, 1)
    asked = []

    def answer(node: int, message: Any) -> Any:
        asked.append(clock.now)
        return honest(nodes[node], message) if len(asked) > 3 else write_report(Report((), None))

    serve(fake_grid(nodes, answer), Deployment(config, str(tmp_path), nodes=1))
    pauses = np.diff(asked[:4])
    assert (pauses >= registry.RETRY_SECONDS).all()
    assert (pauses < registry.RETRY_SECONDS + 1).all()


def test_lost_nodes_and_a_lost_quorum_are_events(fake_grid: Any, tmp_path: Path) -> None:
    config = small(run__rounds=3, **CHEAP)
    nodes = partition_nodes(config, 2)

    def answer(node: int, message: Any) -> Any:
        if message.metadata.group_id == "round 1":
            grid.nodes.discard(min(nodes))
        if message.metadata.group_id == "round 2":
            grid.nodes.add(min(nodes))
        return honest(nodes[node], message)

    grid = fake_grid(nodes, answer)
    history = serve(grid, Deployment(config, str(tmp_path), nodes=2, quorum="60%"))
    names = [name for name, _ in events(tmp_path)]
    assert names.count("node-lost") == names.count("node-back") == 1
    assert names.index("node-lost") < names.index("quorum-lost") < names.index("node-back")
    assert names.index("node-back") < names.index("quorum-back")
    assert names[-1] == "run-finished"
    held = [record.nodes and record.nodes["quorum"] for record in history.records]
    assert held == [True, True, False, True]
    silent = [len(record.nodes["silent"]) if record.nodes else 0 for record in history.records]
    assert silent[2] > 0 == silent[3]


def test_a_second_server_in_a_directory_is_refused(fake_grid: Any, tmp_path: Path) -> None:
    config = small(run__rounds=1, **CHEAP)
    nodes = partition_nodes(config, 1)
    second = []

    def answer(node: int, message: Any) -> Any:
        if message.metadata.message_type == "train":
            with pytest.raises(InputError, match="another process is working here"):
                serve(fake_grid([], lambda *_: None), Deployment(config, str(tmp_path), nodes=1))
            second.append(True)
        return honest(nodes[node], message)

    serve(fake_grid(nodes, answer), Deployment(config, str(tmp_path), nodes=1))
    assert second


def test_a_plan_for_some_devices_is_the_plan_of_a_fleet_of_these() -> None:
    config = small()
    counts = build_world(config).devices.label_counts.tolist()
    some = [3, 4, 5, 11, 12, 19]
    reports = {"x": Report(tuple(DeviceReport(str(k), tuple(counts[k]), None) for k in some))}
    world = reported_world(config, reports, measured=False)
    scheme = make_scheme(config)
    plan = plan_known(world, scheme, some)
    assert members(plan) == set(some)
    assert sum(unit.samples for unit in plan.units) == sum(sum(counts[k]) for k in some)
    assert plan.repriced(world) == plan  # costs are those of the same devices in the whole fleet
    everyone = {"x": Report(tuple(DeviceReport(str(k), tuple(counts[k]), None) for k in range(20)))}
    full = reported_world(config, everyone, measured=False)
    assert plan_known(full, scheme, range(20)) == scheme.plan(build_world(config))


def test_where_values_are_measured_no_device_is_said_to_slow_down() -> None:
    config = small(fleet__dvfs=True)
    counts = build_world(config).devices.label_counts.tolist()
    devices = tuple(DeviceReport(str(k), tuple(row), 0.1) for k, row in enumerate(counts))
    world = reported_world(config, {"x": Report(devices)}, measured=True)
    scheme = make_scheme(config)
    assert plan_known(world, scheme, range(20)).saved_joules > 0
    plan = plan_known(world, scheme, range(20), measured=True)
    assert (plan.dvfs, plan.saved_joules) == ("none", 0.0)
    assert plan.repriced(world) == plan


@pytest.mark.parametrize("names", ["pump,fan,mill", "fan,pump"])
def test_a_node_that_comes_back_with_its_devices_and_more_takes_its_place(
    fake_grid: Any, tmp_path: Path, names: str
) -> None:
    data = load("digits")
    for place, name in enumerate(("pump", "fan", "mill", "lift")):
        part = slice(30 * place, 30 * place + 30)
        np.save(tmp_path / f"{name}-images.npy", data.train_inputs[part])
        np.save(tmp_path / f"{name}-labels.npy", data.train_labels[part])
    rows = [f"{name},{k},{k},30" for k, name in enumerate(("pump", "fan", "mill", "lift"))]
    (tmp_path / "fleet.csv").write_text("\n".join(["id,x,y,samples", *rows, ""]))
    config = small(run__rounds=5, scheme__name="fedavg", fleet__file=str(tmp_path / "fleet.csv"))
    held = {1: "pump,fan", 2: "lift", 3: names}
    nodes = {
        node: Node.of(config, {"devices": own, "data": str(tmp_path)}) for node, own in held.items()
    }

    def answer(node: int, message: Any) -> Any:
        if message.metadata.group_id == "round 1":
            grid.nodes = {2, 3}  # node 1 was started again with other devices
        return honest(nodes[node], message)

    grid = fake_grid([1, 2], answer)
    out = tmp_path / "run"
    deployment = Deployment(config, str(out), "device", quorum="3", wait_seconds=10)
    history = serve(grid, deployment)
    last = history.final.nodes
    assert last is not None
    assert last["silent"] == []
    assert last["online"] == (4 if "mill" in names else 3)
    kept = json.loads((out / "status.json").read_text())["nodes"]
    assert {node["name"] for node in kept} == {"lift", ", ".join(names.split(","))}
