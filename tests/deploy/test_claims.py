"""A node may claim its own devices only, and run nothing that its owner did not allow."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import RecordDict

from camu.data import dataset_spec
from camu.deploy import node_app
from camu.deploy.array_records import Refusal
from camu.deploy.deployment import Deployment, check_allowed
from camu.deploy.messages import REPORT, DeviceReport, Report, parse, write_report
from camu.deploy.node_data import noisy_counts
from camu.deploy.server.fleet import load_reports, save_reports
from camu.deploy.server.mailbox import Mailbox, Owner, binding, check_claim, owners
from camu.deploy.server.registry import NodeRegistry, too_many_samples
from camu.deploy.status import Journal
from camu.errors import InputError
from helpers.configs import small
from helpers.nodes import report_of, result_of

BOUND = {1: Owner("one", frozenset({"pump", "fan"})), 2: Owner("two", frozenset({"saw"}))}
FREE = {**BOUND, 3: Owner("three")}


def report(*names: str, partition: int | None = None) -> Report:
    return Report(tuple(DeviceReport(name, (1,), 1.0) for name in names), partition)


def test_a_binding_is_read_back_from_the_name_of_a_node() -> None:
    def node(number: int, name: str, key: bytes = b"key") -> SimpleNamespace:
        return SimpleNamespace(node_id=number, name=name, public_key=key)

    nodes = [node(1, binding([" pump", "fan"])), node(2, "node-0", b"other"), node(3, "")]
    found = owners(nodes)
    assert found.keys() == {1, 2}  # nobody registered node 3
    assert found[1].devices == {"pump", "fan"}
    assert found[2].devices is None
    assert found[1].key != found[2].key


@pytest.mark.parametrize("names", [["a", "a"], ["a", ""], [""]])
def test_a_binding_names_each_device_once(names: list[str]) -> None:
    with pytest.raises(InputError, match="--devices"):
        binding(names)


def test_a_node_with_its_own_devices_is_taken_with_its_key() -> None:
    assert check_claim(report("pump", "fan"), 1, BOUND, None).key == "one"
    assert check_claim(report("pump"), 1, BOUND, None).key == "one"
    assert check_claim(report("drill"), 3, FREE, None).key == "three"
    assert check_claim(report(partition=0), 3, FREE, None).key == "three"
    assert check_claim(report("pump"), 7, {}, None).key == ""  # a trial without keys


def test_a_node_cannot_write_its_key_itself() -> None:
    lie = Report((DeviceReport("drill", (1,), 1.0),), key="one")
    assert check_claim(lie, 3, FREE, None).key == "three"


@pytest.mark.parametrize(
    ("claim", "node", "words"),
    [
        (report("saw"), 1, "device saw, which is registered for another key"),
        (report("pump", "drill"), 1, "device drill, which its key is not registered for"),
        (report(partition=0), 1, "part 0 of the data, which its key is not registered for"),
        (report("fan"), 3, "device fan, which is registered for another key"),
        (report("fan"), 9, "device fan, which is registered for another key"),
    ],
)
def test_a_claim_of_others_devices_is_refused(claim: Report, node: int, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        check_claim(claim, node, FREE, None)


def test_a_copied_report_is_refused() -> None:
    first = check_claim(report("drill"), 3, FREE, None)
    assert check_claim(report("drill"), 3, FREE, first) == first
    with pytest.raises(Refusal, match="its key is not that of the node that reported drill before"):
        check_claim(report("drill"), 4, {**FREE, 4: Owner("four")}, first)


@pytest.mark.parametrize("number", ["9" * 400, "1" + "0" * 5000, "1e999", "-1", "1.5e308"])
@pytest.mark.parametrize("key", ["label_counts", "update_seconds", "snr_db", "partition"])
def test_numbers_out_of_bounds_are_refused(key: str, number: str) -> None:
    values = {"label_counts": "[1]", "update_seconds": "1.0", "snr_db": "2.0"}
    if key != "partition":
        values[key] = f"[{number}]" if key == "label_counts" else number
    inner = ", ".join(f'"{name}": {value}' for name, value in values.items())
    part = number if key == "partition" else "null"
    text = f'{{"devices": [{{"id": "a", {inner}}}], "partition": {part}}}'
    if key == "snr_db" and number == "-1":
        assert parse(REPORT, text, "it").devices[0].snr_db == -1
        return
    with pytest.raises(Refusal):
        parse(REPORT, text, "it")


def claims_of(*samples: int) -> Report:
    return Report(tuple(DeviceReport(f"{k}-{n}", (n,), None) for k, n in enumerate(samples)))


def test_a_claim_far_above_the_other_nodes_is_too_many() -> None:
    others = [claims_of(80, 100), claims_of(120)]
    assert too_many_samples(claims_of(5, 1000), others, 10.0) == ""
    why = too_many_samples(claims_of(5, 1001), others, 10.0)
    assert "claims 1001 samples, more than 10 times the median" in why
    assert "(100)" in why
    assert too_many_samples(claims_of(10**9), others, 0.0) == ""  # no limit
    assert too_many_samples(claims_of(10**9), [claims_of(80, 100)], 10.0) == ""  # too few


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("scheme__name", "mine:Scheme"),
        ("training__model", "./mine.py:Model"),
        ("training__model", "shape:1x1x1"),  # of a module with this name
        ("data__dataset", "hf:mnist"),
        ("radio__uplink", "mine:uplink"),
    ],
)
def test_code_that_the_nodes_owner_did_not_allow_is_refused(key: str, name: str) -> None:
    config = small(**{key: name})
    with pytest.raises(InputError, match=rf"{name}: this node's owner has not allowed it"):
        check_allowed(config, ["other:Scheme"])
    check_allowed(config, ["other:Scheme", name])


def test_a_configuration_without_own_code_needs_no_permission() -> None:
    check_allowed(small(), [])
    check_allowed(small(data__dataset="shape:8x8x10"), [])


def test_code_in_the_place_of_a_shape_is_refused_too(tmp_path: Path) -> None:
    table = {**Deployment(small(), str(tmp_path)).to_run_config(), "shape": "mine:read"}
    node = {"devices": "pump", "data": str(tmp_path), "allow": ""}
    context = SimpleNamespace(run_config=table, node_config=node)
    assert "mine:read: this node's owner has not allowed" in report_of(context).problem


def test_a_node_with_own_code_in_its_task_refuses_it(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "mine.py").write_text(f"open({str(marker)!r}, 'w')\nclass Model: pass\n")
    config = small(training__model=f"{tmp_path}/mine.py:Model")
    table = Deployment(config, str(tmp_path)).to_run_config()
    context = SimpleNamespace(
        run_config=table, node_config={"partition-id": 0, "num-partitions": 1, "allow": ""}
    )
    assert "this node's owner has not allowed it" in report_of(context).problem
    with pytest.raises(InputError, match="has not allowed it"):
        result_of(RecordDict(), context)
    assert not marker.exists()


def own_node(folder: Path, **more: object) -> node_app.Node:
    config = small()
    shape = dataset_spec(config.data).shape
    images = np.zeros((30, *shape), dtype=np.uint8)
    np.save(folder / "pump-images.npy", images)
    np.save(folder / "pump-labels.npy", np.repeat([3, 4], 15))
    table = {"devices": "pump", "data": str(folder), **more}
    return node_app.Node.of(config, table)


def test_exact_label_counts_leave_a_node_only_without_epsilon(tmp_path: Path) -> None:
    (tmp_path / "node.key").write_bytes(b"secret")
    exact = own_node(tmp_path).report()
    assert exact.devices[0].label_counts == (0, 0, 0, 15, 15, 0, 0, 0, 0, 0)
    assert exact.epsilon is None
    noisy = own_node(tmp_path, epsilon=0.5, secret=str(tmp_path / "node.key")).report()
    counts = exact.devices[0].label_counts
    expected = noisy_counts(counts, 0.5, b"secret", "pump")
    assert noisy.devices[0].label_counts == expected != counts
    assert noisy.epsilon == 0.5


def test_only_the_node_with_the_right_key_is_used(fake_grid: Any, tmp_path: Path) -> None:
    claims = {1: ("pump", "fan"), 2: ("pump",), 3: ("fan", "saw"), 4: ("saw",)}
    names = {1: "devices=fan,pump", 2: "node-2", 3: "devices=saw", 4: "devices=saw"}

    def answer(node: int, message: Any) -> RecordDict:
        devices = tuple(DeviceReport(name, (1,) * 10, 1.0) for name in claims[node])
        return write_report(Report(devices))

    grid = fake_grid(claims, answer)
    grid.get_nodes = lambda: [
        SimpleNamespace(
            node_id=node, name=names[node], public_key=b"%d" % (3 if node == 4 else node)
        )
        for node in claims
    ]
    mailbox = Mailbox(grid)
    registry = NodeRegistry(mailbox, 10, 10.0, ("pump", "fan", "saw"), Journal(tmp_path, 1))
    registry.refresh()
    mailbox.poll()
    assert registry.present == {"pump, fan": 1, "saw": 4}
    assert len(registry.reports["saw"].key) == 64
    events = (tmp_path / "events.jsonl").read_text()
    assert "node 2 is refused: it claims device pump, which is registered for another key" in events
    assert "node 3 is refused: it claims device fan, which is registered for another key" in events


def claims_grid(fake_grid: Any, claims: dict[int, tuple[str, ...]], names: dict[int, str]) -> Any:
    """Nodes that report devices; `names` has their registrations, and each has its own key."""

    def answer(node: int, message: Any) -> RecordDict:
        devices = tuple(DeviceReport(name, (node,) * 10, 1.0) for name in claims[node])
        return write_report(Report(devices))

    grid = fake_grid(claims, answer)
    grid.registered_nodes = lambda: [
        SimpleNamespace(node_id=node, name=name, public_key=b"%d" % node)
        for node, name in names.items()
    ]
    return grid


def test_devices_of_a_node_that_is_away_are_not_given_to_another(
    fake_grid: Any, tmp_path: Path
) -> None:
    names = {1: "devices=fan,pump", 2: "node-2"}
    grid = claims_grid(fake_grid, {1: ("fan", "pump"), 2: ("fan", "pump")}, names)
    grid.nodes = {2}  # Flower tells a server of no other
    mailbox = Mailbox(grid)
    registry = NodeRegistry(mailbox, 10, 10.0, ("pump", "fan"), Journal(tmp_path, 1))
    registry.refresh()
    mailbox.poll()
    assert registry.present == {}
    events = (tmp_path / "events.jsonl").read_text()
    assert "node 2 is refused: it claims device fan, which is registered for another key" in events


def test_a_node_takes_its_devices_back_from_another(fake_grid: Any, tmp_path: Path) -> None:
    names = {2: "node-2", 3: "node-3"}  # node 1 is registered later
    claims = {1: ("fan", "pump"), 2: ("pump", "saw"), 3: ("drill",)}
    grid = claims_grid(fake_grid, claims, names)
    grid.nodes = {2, 3}
    mailbox = Mailbox(grid)
    fleet = ("pump", "fan", "saw", "drill")
    registry = NodeRegistry(mailbox, 10, 10.0, fleet, Journal(tmp_path, 1))
    registry.refresh()
    mailbox.poll()
    assert registry.present == {"pump, saw": 2, "drill": 3}
    names[1] = "devices=fan,pump"
    grid.nodes = {1, 2, 3}
    registry.refresh()
    mailbox.poll()
    assert registry.present == {"fan, pump": 1, "drill": 3}
    assert registry.reports.keys() == {"fan, pump", "drill"}
    assert registry.reports["fan, pump"].devices[0].label_counts == (1,) * 10
    assert registry.renewed == {"pump"}
    events = (tmp_path / "events.jsonl").read_text()
    assert "node 2 is refused: device pump is registered for another key" in events


def test_a_node_takes_its_name_back_too(fake_grid: Any, tmp_path: Path) -> None:
    names = {2: "node-2"}
    grid = claims_grid(fake_grid, {1: ("pump",), 2: ("pump",)}, names)
    grid.nodes = {2}
    mailbox = Mailbox(grid)
    registry = NodeRegistry(mailbox, 10, 10.0, ("pump",), Journal(tmp_path, 1))
    registry.refresh()
    mailbox.poll()
    assert registry.present == {"pump": 2}
    names[1] = "devices=pump"
    grid.nodes = {1}
    registry.refresh()
    mailbox.poll()
    assert registry.present == {"pump": 1}
    assert registry.reports["pump"].devices[0].label_counts == (1,) * 10  # not the other's


def test_a_trial_that_goes_on_has_new_keys(tmp_path: Path) -> None:
    counts = (5,) * 10
    old = [
        Report((DeviceReport("0", counts, None),), partition=0, key="a" * 64),
        Report((DeviceReport("pump", counts, None),), key="b" * 64),
    ]
    path = tmp_path / "nodes.json"
    save_reports(path, {report.name: report for report in old})
    kept = load_reports(path, small())
    assert [kept[name].key for name in ("partition 0", "pump")] == ["", "b" * 64]
