"""The server's part over a grid without a network: the simulation's weights, and every fault."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import ConfigRecord, Error, RecordDict
from safetensors.numpy import load_file, save_file

import camu.planning.groups
import camu.schemes.camu_joint
from camu import __version__ as camu_version
from camu.config import Config
from camu.data import load
from camu.deploy import node_data
from camu.deploy.array_records import head_text
from camu.deploy.deployment import Deployment
from camu.deploy.host.control import run_remote
from camu.deploy.host.local import check_trial
from camu.deploy.messages import DeviceReport, Report, write_report
from camu.deploy.node_app import Node
from camu.deploy.server import fleet
from camu.deploy.server.app import serve
from camu.deploy.server.fleet import (
    assign,
    check_together,
    device_ids,
    reported_world,
)
from camu.deploy.server.mailbox import Mailbox
from camu.deploy.server.registry import NodeRegistry
from camu.deploy.status import Journal, read_status
from camu.errors import CamuError, InputError
from camu.learning.native_kernel import provenance
from camu.schemes import make_scheme
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.world import build_world
from camu.world.devices import update_joules, update_seconds
from helpers.configs import small
from helpers.nodes import honest, partition_nodes, wait_without_time
from helpers.parcels import arrays_of, with_arrays, with_head
from helpers.replayed_arrivals import replay


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_without_time(monkeypatch)


def weights(folder: Path) -> dict[str, Any]:
    return load_file(RunDirectory(folder).checkpoint)


def assert_same_weights(one: Path, other: Path) -> None:
    for name, array in weights(one).items():
        np.testing.assert_allclose(array, weights(other)[name], rtol=0, atol=1e-6)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def planned_units(folder: Path) -> int:
    return len(json.loads((folder / "plan.json").read_text())["units"])


@pytest.mark.parametrize("scheme", ["camu", "camu-auto"])  # the latter has a pilot
def test_leaders_give_the_simulations_bits(fake_grid: Any, tmp_path: Path, scheme: str) -> None:
    config = small(scheme__name=scheme, radio__fading="rayleigh", faults__dropout_probability=0.1)
    nodes = partition_nodes(config, 3)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    history = serve(grid, Deployment(config, str(tmp_path / "nodes"), nodes=3))
    simulated = run_in_directory(config, RunDirectory(tmp_path / "here"))
    assert history.weights_sha256 == simulated.weights_sha256
    for one, other in zip(history.records, simulated.records, strict=True):
        assert one.joules == other.joules
        assert one.virtual_seconds == other.virtual_seconds
        assert one.accuracy == other.accuracy
        assert {kind: one.faults[kind] for kind in other.faults} == other.faults
        assert one.faults["silent"] == one.faults["restarts"] == 0
    files = {"config.toml", "plan.json", "rounds.jsonl", "checkpoint", "summary.json", "nodes.json"}
    assert files <= {path.name for path in (tmp_path / "nodes").iterdir()}
    plans = [json.loads((tmp_path / d / "plan.json").read_text()) for d in ("nodes", "here")]
    assert plans[0] == plans[1]


@pytest.mark.slow
@pytest.mark.parametrize("local_update", ["step", "epoch"])
def test_devices_give_the_simulations_weights(
    fake_grid: Any, tmp_path: Path, local_update: str
) -> None:
    config = small(training__normalisation="none", training__local_update=local_update)
    nodes = partition_nodes(config, 2)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    serve(grid, Deployment(config, str(tmp_path / "nodes"), "device", nodes=2))
    run_in_directory(config, RunDirectory(tmp_path / "here"))
    assert_same_weights(tmp_path / "nodes", tmp_path / "here")


OWN_SCHEME = """
from dataclasses import replace

import numpy as np

from camu.learning.job import LocalRule
from camu.schemes.camu import Camu


class Pulled(Camu):
    def plan(self, world):
        plan = super().plan(world)
        plan = plan.with_updates([2] * len(plan.units))
        rule = LocalRule(rate=0.5, batch=8, proximal=0.4, steps=STEPS)
        return replace(plan, units=tuple(replace(unit, rule=rule) for unit in plan.units))

    def correction(self, view, state, unit):
        return (0.01 * (unit + 1) * view.weights.parameters).astype(np.float32)

    def revise(self, view, state):
        losses = [arrival.loss for arrival in view.arrived]
        assert np.isfinite(losses).all() and min(losses) > 0
        state["losses"] = np.array(losses)
"""


@pytest.mark.slow
@pytest.mark.parametrize("granularity", ["leader", "device"])
@pytest.mark.parametrize("steps", [1, 3])
def test_nodes_train_by_a_schemes_own_rule(
    fake_grid: Any, tmp_path: Path, granularity: Any, steps: int
) -> None:
    own = tmp_path / "pulled.py"
    own.write_text(OWN_SCHEME.replace("STEPS", str(steps)))
    config = small(scheme__name=f"{own}:Pulled", training__normalisation="none")
    nodes = partition_nodes(config, 2)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    serve(grid, Deployment(config, str(tmp_path / "nodes"), granularity, nodes=2))
    run_in_directory(config, RunDirectory(tmp_path / "here"))
    assert_same_weights(tmp_path / "nodes", tmp_path / "here")
    plain = small(scheme__name="camu", training__normalisation="none")
    run_in_directory(plain, RunDirectory(tmp_path / "plain"))
    with pytest.raises(AssertionError):
        assert_same_weights(tmp_path / "plain", tmp_path / "here")


RESTLESS_SCHEME = """
from dataclasses import replace

from camu.planning.codecs import Sparse
from camu.schemes.fedsgd import FedSgd


class Restless(FedSgd):
    def plan(self, world):
        plan = super().plan(world)
        units = tuple(replace(unit, codec=Sparse(0.3)) for unit in plan.units)
        return replace(plan, units=units)

    def select(self, view, state):
        return view.random().numpy().choice(view.idle, 4, replace=False)

    def ready(self, view, state):
        return len(view.arrived) >= 3

    def revise(self, view, state):
        return view.plan.with_updates([1 + view.round] * len(view.plan.units))
"""


@pytest.mark.slow
def test_nodes_follow_a_scheme_that_samples_compresses_and_does_not_wait(
    fake_grid: Any, tmp_path: Path
) -> None:
    own = tmp_path / "restless.py"
    own.write_text(RESTLESS_SCHEME)
    config = small(scheme__name=f"{own}:Restless", run__rounds=4)
    nodes = partition_nodes(config, 2)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    history = serve(grid, Deployment(config, str(tmp_path / "nodes"), nodes=2))
    assert history.weights_sha256 == replay(config, history.records).weights_sha256
    assert [record.units for record in history.records] == [0, 3, 3, 3, 3]


def test_a_deployment_plans_once(
    fake_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def count(room: Any, name: str) -> None:
        real = getattr(room, name)

        def counted(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(room, name, counted)

    count(camu.planning.groups, "cluster_devices")
    count(camu.schemes.camu_joint, "solve")
    config = small(scheme__name="camu-joint", run__rounds=1, training__model="logistic")
    nodes = partition_nodes(config, 2)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    serve(grid, Deployment(config, str(tmp_path), nodes=2))
    assert calls == {"cluster_devices": 1, "solve": 1}
    serve(grid, Deployment(config, str(tmp_path), nodes=2, resume=True))
    assert calls == {"cluster_devices": 1, "solve": 1}  # plan.json is read


def spoil(content: RecordDict, how: str) -> Any:
    """A faulty node's version of an honest answer."""
    if how == "silent":
        return None
    if how == "error":
        return Error(0, "out of memory")
    if how == "past round":
        with_head(content, round=json.loads(head_text(content))["round"] - 1)
    if how in ("nan", "wrong shape"):
        array = arrays_of(content)
        with_arrays(content, np.full_like(array, np.nan) if how == "nan" else array[:-1])
    return content


@pytest.mark.parametrize("granularity", ["leader", "device"])
@pytest.mark.parametrize("how", ["silent", "error", "past round", "nan", "wrong shape"])
def test_a_faulty_node_is_left_out_counted_logged_and_asked_again(
    fake_grid: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    how: str,
    granularity: Any,
) -> None:
    config = small(
        training__model="logistic",
        scheme__parameters={"max_extra_updates": 1},
        data__samples_per_device=20,
    )
    nodes = partition_nodes(config, 2)
    faulty = max(nodes)
    trained = []

    def answer(node: int, message: Any) -> Any:
        content = honest(nodes[node], message)
        if message.metadata.message_type == "query":
            return content
        number = json.loads(head_text(message.content))["round"]
        trained.append((node, number))
        return spoil(content, how) if node == faulty and number == 0 else content

    deployment = Deployment(config, str(tmp_path), granularity, nodes=2, deadline_seconds=0.5)
    history = serve(fake_grid(nodes, answer), deployment)
    kind = "silent" if how in ("silent", "error") else "refused"
    faults = [record.faults for record in history.records]
    assert faults[1][kind] > 0
    assert faults[2][kind] == 0
    assert (faulty, 1) in trained
    assert history.records[1].units > 0
    assert history.records[2].units == len(
        json.loads((tmp_path / "plan.json").read_text())["units"]
    )
    assert any("takes no part" in m or "refused" in m for m in caplog.messages)
    for name in ("parameters", "buffers"):
        assert np.isfinite(weights(tmp_path)[name]).all()


def test_a_late_answer_is_noted_and_never_used(
    fake_grid: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = small(training__model="logistic", data__samples_per_device=20)
    nodes = partition_nodes(config, 2)
    slow = max(nodes)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    pull, held = grid.pull_messages, []

    def pull_but_hold(message_ids: Any) -> list[Any]:
        found = pull(message_ids)
        for message in list(found):
            first = message.metadata.group_id == "round 1"
            if first and message.metadata.src_node_id == slow:
                found.remove(message)
                held.append(message)
        if held and any(message.metadata.group_id == "round 2" for message in found):
            found.append(held.pop())
        return found

    grid.pull_messages = pull_but_hold
    history = serve(grid, Deployment(config, str(tmp_path), nodes=2, deadline_seconds=3.0))
    assert history.records[1].faults["silent"] > 0
    assert history.records[2].faults["silent"] == 0
    assert any("is late and is not used" in message for message in caplog.messages)


@pytest.mark.slow
def test_a_server_that_was_killed_goes_on_from_its_checkpoint(
    fake_grid: Any, tmp_path: Path
) -> None:
    config = small(run__rounds=3, machine__checkpoint_every=3)
    nodes = partition_nodes(config, 2)

    class Killed(BaseException):
        pass

    def dies(node: int, message: Any) -> Any:
        if message.metadata.group_id == "round 3":
            raise Killed
        return honest(nodes[node], message)

    with pytest.raises(Killed):
        serve(fake_grid(nodes, dies), Deployment(config, str(tmp_path / "nodes"), nodes=2))
    deployment = Deployment(config, str(tmp_path / "nodes"), nodes=2, resume=True)
    # The nodes come back under other ids.
    moved = {number + 1: node for number, node in nodes.items()}
    grid = fake_grid(moved, lambda node, message: honest(moved[node], message))
    history = serve(grid, deployment)
    assert [record.round for record in history.records] == [0, 1, 2, 3]
    assert [record["round"] for record in records(tmp_path / "nodes")] == [0, 1, 2, 3]
    assert [record.faults["restarts"] for record in history.records] == [0, 0, 0, 1]
    here = run_in_directory(config, RunDirectory(tmp_path / "here"))
    assert history.weights_sha256 == here.weights_sha256
    with pytest.raises(InputError, match="already here"):
        serve(grid, Deployment(config, str(tmp_path / "nodes"), nodes=2))


def test_a_run_that_was_stopped_has_a_model_and_is_continued(
    fake_grid: Any, tmp_path: Path, camu: Any
) -> None:
    config = small(run__rounds=3)
    nodes, out = partition_nodes(config, 2), tmp_path / "nodes"

    def stops(node: int, message: Any) -> Any:
        if message.metadata.group_id == "round 2":
            raise SystemExit(0)  # as Flower ends the server of a run that was stopped
        return honest(nodes[node], message)

    with pytest.raises(SystemExit):
        serve(fake_grid(nodes, stops), Deployment(config, str(out), nodes=2))
    directory = RunDirectory(out)
    assert directory.read_summary()["stopped"] == "stopped"
    assert directory.read_summary()["rounds"] == 1
    one = run_in_directory(config.replace({"run.rounds": 1}), RunDirectory(tmp_path / "one"))
    assert directory.read_summary()["weights_sha256"] == one.weights_sha256
    assert read_status(out)["state"] == "stopped"
    status = camu("deploy", "status", out)
    assert status.code == 0
    assert "stopped; camu deploy run --resume continues it" in status.out
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "run-stopped"
    assert "run-failed" not in {event["event"] for event in events}
    assert camu("export", out, "--to", tmp_path / "model.safetensors").code == 0
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    history = serve(grid, Deployment(config, str(out), nodes=2, resume=True))
    here = run_in_directory(config, RunDirectory(tmp_path / "here"))
    assert history.weights_sha256 == here.weights_sha256
    assert read_status(out)["state"] == "finished"


def test_nodes_say_what_their_training_depends_on(fake_grid: Any, tmp_path: Path) -> None:
    config = small(run__rounds=1)
    nodes, out = partition_nodes(config, 2), tmp_path / "run"
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    serve(grid, Deployment(config, str(out), nodes=2))
    trained_by = provenance(config)
    for report in json.loads((out / "nodes.json").read_text()):
        assert report["version"] == camu_version
        assert report["provenance"] == asdict(trained_by)
    assert {node["kernel"] for node in read_status(out)["nodes"]} == {trained_by.kernel}
    assert RunDirectory(out).read_summary()["kernel"] == trained_by.kernel
    other = {"kernel": "torch", "torch": "2.0"}
    registry = NodeRegistry(Mailbox(grid), 10, 60.0, ("0",), Journal(tmp_path))
    devices = (DeviceReport("0", (1,) * 10, None),)
    report = Report(devices, version="0.1.0", provenance=other)
    registry._enter(1, write_report(report))
    events = (tmp_path / "events.jsonl").read_text()
    assert "has reported, as node 1, with camu 0.1.0" in events
    assert registry.journal.status["nodes"][0]["kernel"] == "torch"


def test_a_strange_node_is_not_used(
    fake_grid: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = small(run__rounds=1, training__model="logistic", data__samples_per_device=20)
    nodes = partition_nodes(config, 2)
    asked = []

    def answer(node: int, message: Any) -> Any:
        if node in nodes:
            return honest(nodes[node], message)
        asked.append(message.metadata.message_type)
        return RecordDict({"camu": ConfigRecord({"json": '{"devices": "all of them"}'})})

    history = serve(fake_grid([*nodes, 1], answer), Deployment(config, str(tmp_path), nodes=2))
    assert history.final.faults["refused"] == 0
    assert set(asked) == {"query"}
    assert any("node 1 is not used" in message for message in caplog.messages)


def test_nodes_that_do_not_come_are_missed_by_name(fake_grid: Any, tmp_path: Path) -> None:
    config = small()
    nodes = partition_nodes(config, 2)
    del nodes[max(nodes)]
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    with pytest.raises(CamuError, match=r"10 of 20 devices were not reported \(0, 2, 4, "):
        serve(grid, Deployment(config, str(tmp_path), nodes=2, wait_seconds=0.5))


def test_a_scheme_that_needs_all_gradients_is_refused_before_nodes_are_asked(
    fake_grid: Any, tmp_path: Path
) -> None:
    deployment = Deployment(small(scheme__name="adaptive-tau"), str(tmp_path / "run"), nodes=1)
    asked: list[Any] = []
    grid = fake_grid([1], lambda node, message: asked.append(message))
    for refused in (
        lambda: serve(grid, deployment),
        lambda: check_trial(deployment),
        lambda: run_remote(deployment, "localhost:1", None, cast(Any, None)),
    ):
        with pytest.raises(InputError, match=r"= adaptive-tau: .* choose another scheme"):
            refused()
    assert not asked
    assert not (tmp_path / "run").exists()


def test_a_unit_that_was_revised_across_nodes_is_refused() -> None:
    hosts, names = {0: "a", 1: "b", 2: "b"}, ["pump", "fan", "door"]
    check_together((1, 2), hosts, names)
    with pytest.raises(InputError, match="pump and fan, which are on different nodes"):
        check_together((0, 1), hosts, names)


def own_fleet(config: Config, folder: Path) -> dict[int, Node]:
    """Three nodes with their own files: one gateway of ten devices, two of five."""
    dataset, federation = load("digits"), build_world(config).federation
    assert federation is not None
    names = {4: range(10), 5: range(10, 15), 6: range(15, 20)}
    (folder / "meter.py").write_text("import time\n\ndef read():\n    return 3 * time.time()\n")
    for device, held in enumerate(federation.indices):
        images, labels = dataset.train_inputs[held], dataset.train_labels[held]
        if device % 2:
            save_file({"images": images, "labels": labels}, folder / f"{device}.safetensors")
        else:
            np.save(folder / f"{device}-images.npy", images)
            np.save(folder / f"{device}-labels.npy", labels)
    return {
        node: Node.of(
            config,
            {
                "devices": ",".join(map(str, own)),
                "data": str(folder),
                "snr-db": 20.0 + node,
                **({"joules": f"{folder}/meter.py:read"} if node == 4 else {}),
                **({"epsilon": 0.5, "secret": f"{folder}/meter.py"} if node == 6 else {}),
            },
            measured=True,
        )
        for node, own in names.items()
    }


def test_nodes_with_their_own_data_are_planned_without_seeing_it(
    fake_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A processor whose counter goes up by a joule at every reading.
    zone = tmp_path / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "max_energy_range_uj").write_text("1000000000\n")
    (zone / "energy_uj").write_text("0\n")
    monkeypatch.setattr(node_data, "POWERCAP", tmp_path / "powercap")
    read = node_data._Rapl.__call__

    def count(rapl: Any) -> float:
        rapl.path.write_text(f"{int(rapl.path.read_text()) + 1_000_000}\n")
        return read(rapl)

    monkeypatch.setattr(node_data._Rapl, "__call__", count)
    config = small(training__normalisation="none", run__rounds=1)
    nodes = own_fleet(config, tmp_path)
    grid = fake_grid(nodes, lambda node, message: honest(nodes[node], message))
    out = tmp_path / "run"
    history = serve(grid, Deployment(config, str(out), "device", measured=True))
    assert history.final.units == planned_units(out)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["devices_by_joules_source"] == {"rapl": 10, "meter": 10}
    by_rapl = [
        device["update_joules"]
        for node in json.loads((out / "nodes.json").read_text())
        for device in node["devices"]
        if device["joules_source"] == "rapl"
    ]
    assert by_rapl == pytest.approx([1.0 / node_data.FEWEST_UPDATES] * 10)
    assert all(record["wall_seconds"] >= 0 for record in records(out))
    plan = json.loads((out / "plan.json").read_text())
    counts = build_world(config).devices.label_counts
    found = plan["devices"]
    assert [device["label_counts"] for device in found[:15]] == counts[:15].tolist()
    assert [device["label_counts"] for device in found[15:]] != counts[15:].tolist()
    assert [device.get("label_epsilon") for device in found] == [None] * 15 + [0.5] * 5
    with pytest.raises(InputError, match="on different nodes"):
        serve(grid, Deployment(config, str(tmp_path / "other"), "leader", measured=True))


def test_names_of_devices_need_no_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("id,x,y,samples\npump,0,0,10\nfan,5,5,20\n")
    monkeypatch.setattr(fleet, "build_world", None)
    assert device_ids(small(fleet__file=str(path))) == ("pump", "fan")
    path.write_text("id,x,y,samples\npump,0,0,10\nfan,near,5,20\n")
    with pytest.raises(InputError, match="column x"):
        device_ids(small(fleet__file=str(path)))


def test_measured_time_joules_and_known_snr_replace_the_configured_ones() -> None:
    config = small()
    counts = build_world(config).devices.label_counts
    devices = tuple(
        DeviceReport(
            str(k),
            tuple(row),
            None if k == 2 else 0.5,
            10.0 if k == 0 else None,
            0.25 if k == 1 else None,
            "rapl" if k == 1 else "model",
        )
        for k, row in enumerate(counts.tolist())
    )
    reports = {"all": Report(devices)}
    plain = reported_world(config, reports, measured=False)
    assert np.array_equal(plain.devices.cpu_hz, build_world(config).devices.cpu_hz)
    world = reported_world(config, reports, measured=True)
    assert np.array_equal(world.devices.cpu_hz, plain.devices.cpu_hz)  # no clock is made up
    seconds = update_seconds(world.devices, config.training)
    wanted = np.full(20, 0.5)
    wanted[2] = update_seconds(plain.devices, config.training)[2]
    np.testing.assert_allclose(seconds, wanted)
    joules = update_joules(world.devices, config.readings, config.training, 650)
    modelled = 12 * config.fleet.cycles_per_sample * config.fleet.capacitance  # a fifth of 60
    expected = modelled * plain.devices.cpu_hz**2
    expected[1] = 0.25
    np.testing.assert_allclose(joules, expected)
    np.testing.assert_allclose(world.links.uplink_snr()[0], 10.0)
    np.testing.assert_allclose(
        world.links.uplink_snr()[1:], build_world(config).links.uplink_snr()[1:]
    )


def test_every_device_has_exactly_one_node() -> None:
    config = small()
    plan = make_scheme(config).plan(build_world(config))
    names = [str(k) for k in range(20)]
    trial = {f"partition {p}": Report((), p) for p in (1, 0, 2)}
    by_leader = assign(trial, plan, names, "leader")
    for number, unit in enumerate(plan.units):
        assert {by_leader[k] for k in unit.members} == {f"partition {number % 3}"}
    assert assign(trial, plan, names, "device") == {k: f"partition {k % 3}" for k in range(20)}
