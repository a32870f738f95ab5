"""Nodes that mask what they send: the run is the plain one to a step, and lost nodes are borne."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)
from safetensors.numpy import load_file
from scipy import stats

from camu.config import Config
from camu.deploy import node_app
from camu.deploy.array_records import Refusal, arrays_in, head_text, parcel
from camu.deploy.deployment import Deployment, check_run
from camu.deploy.host.keys import KeyDirectory, make_keys
from camu.deploy.messages import Task, write_task
from camu.deploy.node_secure import clipped_update
from camu.deploy.secure_keys import read_peers
from camu.deploy.secure_messages import RECORD, Asked, Sum, detach, vector_size
from camu.deploy.secure_sum import MaskError, step_of, threshold
from camu.deploy.server.app import serve
from camu.deploy.server.fleet import check_hidden
from camu.deploy.server.mailbox import Mailbox
from camu.deploy.server.secure_units import SecureUnits
from camu.errors import InputError
from camu.learning.configured import model_layout, seeded
from camu.learning.job import Job, Trained, one_update
from camu.learning.weights import Weights, weighted_mean
from camu.simulation.directory import RunDirectory, run_in_directory
from helpers.configs import small
from helpers.nodes import WaitingClock, wait_without_time

NODES = 6
CLIP = 8.0
PLAIN = {"scheme__name": "hierfavg", "clustering__count": 3, "training__model": "logistic"}
SECURE = {**PLAIN, "training__secure_sum": "unit"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyDirectory:
    return make_keys(tmp_path_factory.mktemp("nodes") / "keys", NODES)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> WaitingClock:
    node_app._kept_node.cache_clear()
    return wait_without_time(monkeypatch)


def pem(keys: KeyDirectory, number: int) -> bytes:
    public = load_ssh_public_key(keys.node_public_key(number).read_bytes())
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def table(keys: KeyDirectory, number: int, count: int = NODES) -> dict[str, Any]:
    return {
        "partition-id": number,
        "num-partitions": count,
        "key": str(keys.node_key(number)),
        "allow": "",
    }


Meddle = Callable[[int, str, Any], Any]  # node, step, content: another answer than the honest


def run(
    fake_grid: Any,
    keys: KeyDirectory,
    config: Config,
    out: Path,
    meddle: Meddle = lambda node, step, content: content,
    **options: Any,
) -> list[tuple[int, str, Any]]:
    """A run on nodes in this process; returns what the server got of each step."""
    deployment = Deployment(config, str(out), nodes=NODES, **options)
    seen = []

    def answer(node: int, message: Any) -> Any:
        kind, content = message.metadata.message_type, message.content
        step = ""
        if RECORD in content:
            step = json.loads(str(content[RECORD]["json"]))[0]["step"]
        found = node_app.answer(kind, content, deployment.to_run_config(), table(keys, node))
        found = meddle(node, step, found)
        seen.append((node, step, found))
        return found

    grid = fake_grid(range(NODES), answer)
    grid.registered_nodes = lambda: [
        SimpleNamespace(node_id=node, name=f"node-{node}", public_key=pem(keys, node))
        for node in range(NODES)
    ]
    serve(grid, deployment)
    return seen


def weights(out: Path) -> np.ndarray:
    found = load_file(out / "model.safetensors")
    return np.concatenate([found[name].ravel() for name in sorted(found)])


def test_a_run_with_masks_is_the_simulations_to_the_fixed_point_step(
    fake_grid: Any, keys: KeyDirectory, tmp_path: Path
) -> None:
    seen = run(fake_grid, keys, small(**SECURE), tmp_path / "nodes")
    run_in_directory(small(**PLAIN), RunDirectory(tmp_path / "here"))
    one, other = weights(tmp_path / "nodes"), weights(tmp_path / "here")
    assert {step for _, step, _ in seen} == {"", "keys", "deal", "mask", "reveal"}
    assert not any(step == "" for _, step, _ in seen[NODES:])  # after the reports, masks alone
    updates = 2 * 2  # in two rounds
    rounding = updates * NODES * step_of(CLIP) + 20 * np.finfo(np.float32).eps * np.abs(one).max()
    assert 0 < np.abs(one - other).max() <= rounding
    size = vector_size(model_layout(small(**SECURE)))
    masks = [found for _, step, found in seen if step == "mask"]
    sums = [[size] * len(json.loads(head_text(found))) for found in masks]
    assert len(masks) == updates * NODES  # a node's units are asked in one message
    assert {len(own) for own in sums} == {2, 3}
    sent = [np.concatenate(arrays_in(*pair)) for pair in zip(masks, sums, strict=True)]
    top = np.concatenate(sent).view(np.uint32) >> 24
    counts = np.bincount(top, minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4  # what the server gets is uniform


def as_it_is(node: int, step: str, found: Any) -> Any:
    return found


def initial(config: Config) -> Weights:
    made = seeded(config)
    assert isinstance(made, torch.nn.Module)
    return Weights.of(made)


class Fleet:
    """Six nodes in this process with a device each, and the server's part of a round."""

    def __init__(
        self, fake_grid: Any, keys: KeyDirectory, clock: WaitingClock, meddle: Meddle = as_it_is
    ) -> None:
        self.config = config = small(**SECURE)
        tables = [table(keys, number) for number in range(NODES)]
        self.nodes = [node_app.Node.of(config, own) for own in tables]
        self.left_out: list[tuple[str, int]] = []
        self.steps: list[tuple[int, Asked]] = []

        def answer(node: int, message: Any) -> Any:
            (asked,) = detach(message.content) or ()
            self.steps.append((node, asked))
            found = self.nodes[node].answer_secure([asked], message.content)
            return meddle(node, asked.step, found)

        grid = fake_grid(range(NODES), answer)
        grid.registered_nodes = lambda: [
            SimpleNamespace(node_id=node, name=f"node-{node}", public_key=pem(keys, node))
            for node in range(NODES)
        ]
        hosts = {k: f"partition {k}" for k in range(NODES)}
        present = {name: node for node, name in hosts.items()}
        registry: Any = SimpleNamespace(present=present, show=lambda *_: None)
        self.units = SecureUnits(
            Deployment(config, "/somewhere"),
            Mailbox(grid, clock),
            registry,
            hosts,
            [str(k) for k in range(config.fleet.devices)],
            lambda why, unit, devices: self.left_out.append((str(why), *devices)),
            0,
        )
        self.start = initial(config)
        self.job = Job(tuple(range(NODES)), (1.0, 2.0, 1.0, 3.0, 2.0, 1.0), 2)

    def train(self) -> Trained | Refusal:
        return self.units.train({7: (self.job, self.start)})[7]

    def plain(self, lost: dict[int, tuple[int, ...]]) -> Trained:
        """The same in clear, without the devices that are lost from each update on."""
        state, losses = self.start, []
        there = list(range(NODES))
        for update in range(2):
            there = [k for k in there if k not in lost.get(update, ())]
            jobs = [one_update(self.job, k, update, self.start) for k in there]
            pairs = [
                (self.job.weights[k], self.nodes[k].train(self.task(k, job), [state])[0])
                for k, job in zip(there, jobs, strict=True)
            ]
            state = weighted_mean((weight, one.weights) for weight, one in pairs)
            whole = sum(weight for weight, _ in pairs)
            losses.append(sum(weight * one.loss for weight, one in pairs) / whole)
        return Trained(state, sum(losses) / 2)

    def task(self, device: int, job: Job) -> Task:
        return Task(0, self.config.fleet.devices, {device: str(device)}, (job,))


def same(found: Trained | Refusal, expected: Trained) -> bool:
    assert isinstance(found, Trained), found
    assert found.loss == pytest.approx(expected.loss, abs=1e-5)
    apart = found.weights.parameters - expected.weights.parameters
    size = np.abs(expected.weights.parameters).max()
    return bool(np.abs(apart).max() <= 2 * NODES * step_of(CLIP) + 4e-7 * size)


@pytest.mark.parametrize("step", ["keys", "deal", "mask", "reveal"])
def test_a_third_of_the_members_may_be_lost_in_any_step(
    fake_grid: Any, keys: KeyDirectory, clock: WaitingClock, step: str
) -> None:
    """Those lost after sending their vector count in that sum, and in none after it."""
    most = NODES - threshold(NODES)
    assert most == NODES // 3
    gone = tuple(range(most))

    def vanish(node: int, at: str, found: Any) -> Any:
        return None if at == step and node in gone else found

    fleet = Fleet(fake_grid, keys, clock, vanish)
    found = fleet.train()
    assert same(found, fleet.plain({1 if step == "reveal" else 0: gone}))
    assert sorted(device for _, device in fleet.left_out) == list(gone)
    # Of those that were lost after their masks, keys are found again; of the others own masks.
    silent = {asked.silent for _, asked in fleet.steps if asked.step == "reveal"}
    names = tuple(f"partition {k}" for k in gone)
    assert silent == ({names, ()} if step == "mask" else {()})


def test_one_more_lost_member_silences_the_unit(
    fake_grid: Any, keys: KeyDirectory, clock: WaitingClock
) -> None:
    gone = range(1 + NODES - threshold(NODES))

    def vanish(node: int, at: str, found: Any) -> Any:
        return None if at == "mask" and node in gone else found

    fleet = Fleet(fake_grid, keys, clock, vanish)
    found = fleet.train()
    assert isinstance(found, Refusal)
    assert "3 of 6 members answered, and 4 are needed" in str(found)
    assert not any(asked.step == "reveal" for _, asked in fleet.steps)  # nobody reveals anything


def test_a_vector_that_no_clipped_update_has_is_noticed_in_the_sum(
    fake_grid: Any, keys: KeyDirectory, clock: WaitingClock
) -> None:
    def louder(node: int, step: str, found: Any) -> Any:
        if (node, step) != (0, "mask"):
            return found
        size = vector_size(model_layout(small(**SECURE)))
        ring = arrays_in(found, [size])[0].view(np.uint32) + np.uint32(2**29)
        return parcel(head_text(found).encode(), [ring.view(np.float32)])

    found = Fleet(fake_grid, keys, clock, louder).train()
    assert isinstance(found, Refusal)
    assert "a member has sent something else" in str(found)


def test_a_member_that_signs_with_another_key_is_left_out(
    fake_grid: Any, keys: KeyDirectory, clock: WaitingClock
) -> None:
    def forged(node: int, step: str, found: Any) -> Any:
        if (node, step) != (2, "keys"):
            return found
        head = json.loads(head_text(found))
        head[0]["keys"]["signature"] = "00" * 95 + "01"
        return parcel(json.dumps(head).encode())

    fleet = Fleet(fake_grid, keys, clock, forged)
    assert same(fleet.train(), fleet.plain({0: (2,)}))
    assert fleet.left_out[0] == ("its keys are not signed by its registered key", 2)


def asked_again(fleet: Fleet, step: str, **changes: Any) -> str:
    """What node 0 says to a step that it was asked before, with these changes."""
    asked = next(asked for node, asked in fleet.steps if node == 0 and asked.step == step)
    jobs = (one_update(fleet.job, 0, 0, fleet.start),)
    task = Task(0, fleet.config.fleet.devices, {0: "0"}, jobs)
    content = write_task(task, [fleet.start]) if step == "mask" else parcel(b"{}")
    found = fleet.nodes[0].answer_secure([replace(asked, **changes)], content)
    return json.loads(head_text(found))[0]["problem"]


def test_a_node_reveals_one_sum_of_a_local_update(
    fake_grid: Any, keys: KeyDirectory, clock: WaitingClock
) -> None:
    """Of two sums that differ in one member, the difference would be its update."""
    fleet = Fleet(fake_grid, keys, clock)
    fleet.train()
    for step in ("deal", "mask", "reveal"):
        assert "has not begun here" in asked_again(fleet, step)
    again = fleet.train()  # as after a restart of the server: the same sum is revealed
    assert isinstance(again, Trained)
    fleet.job = Job(tuple(range(5)), (1.0, 2.0, 1.0, 3.0, 2.0), 2)
    found = fleet.train()
    assert isinstance(found, Refusal)
    assert any("another sum of this local update was revealed" in why for why, _ in fleet.left_out)


def sum_of(weights_: dict[int, float]) -> Asked:
    nodes = {f"partition {k}": (k,) for k in weights_}
    return Asked("keys", Sum("run", 0, 0, nodes, weights_, "00", "00"))


def problem(node: node_app.Node, asked: Asked) -> str:
    return json.loads(head_text(node.answer_secure([asked], parcel(b"{}"))))[0]["problem"]


def test_a_node_takes_part_only_where_the_sum_hides_it(keys: KeyDirectory, tmp_path: Path) -> None:
    config = small(**SECURE)
    node = node_app.Node.of(config, table(keys, 0))
    assert problem(node, sum_of({0: 1.0, 1: 1.0, 2: 1.0})) == ""
    for weights_ in ({0: 1.0, 1: 1.0}, {0: 1.0, 1: 0.0, 2: 1.0}, {0: 1.0, 1: 0.01, 2: 1.0}):
        assert "the sum would show its part" in problem(node, sum_of(weights_))
    assert "not among the members" in problem(node, sum_of({1: 1.0, 2: 1.0, 3: 1.0}))
    plain = node_app.Node.of(small(**PLAIN), table(keys, 0))
    assert "no training.secure_sum" in problem(plain, sum_of({0: 1.0, 1: 1.0, 2: 1.0}))
    bare = node_app.Node.of(config, {**table(keys, 0), "key": ""})
    assert "no key to sign with" in problem(bare, sum_of({0: 1.0, 1: 1.0, 2: 1.0}))
    run_config = Deployment(config, "/somewhere", nodes=NODES).to_run_config()
    task = Task(0, config.fleet.devices, {0: "0"}, (Job((0,), (1.0,)),))
    content = write_task(task, [initial(config)])
    found = node_app.answer("train", content, run_config, table(keys, 0))
    assert "fewer than 3 devices have learned" in json.loads(head_text(found))["problem"]


def test_an_owner_may_name_the_keys_of_the_other_nodes(
    fake_grid: Any, keys: KeyDirectory, clock: WaitingClock, tmp_path: Path
) -> None:
    """A server that puts nodes of its own into the unit is then found out."""
    for number in range(NODES - 1):
        text = keys.node_public_key(number).read_bytes()
        (tmp_path / f"{number}.pub").write_bytes(text)
    fleet = Fleet(fake_grid, keys, clock)
    known = {**table(keys, 0), "peers": str(tmp_path)}
    fleet.nodes[0] = node_app.Node.of(fleet.config, known)
    assert same(fleet.train(), fleet.plain({0: (0,)}))
    assert (
        "the key of partition 5 is not among those that this node's owner knows"
        in (fleet.left_out[0][0])
    )
    with pytest.raises(InputError, match=r"has no \*\.pub; copy the public keys"):
        read_peers(str(tmp_path / "nowhere"))


def test_a_device_is_clipped_at_its_node() -> None:
    config = small(**SECURE)
    start = initial(config)
    far = replace(start, parameters=start.parameters + np.float32(1.0))
    norm = float(np.sqrt(len(start.parameters)))
    row, share = clipped_update(Trained(far, 2.0), start, CLIP)
    assert share == pytest.approx(CLIP / norm, rel=1e-5)
    assert np.sqrt(np.square(row[: len(start.parameters)]).sum()) == pytest.approx(CLIP)
    assert row[-1] == pytest.approx(2.0 * CLIP / 1000)
    broken = replace(start, parameters=start.parameters * np.float32(np.nan))
    with pytest.raises(MaskError, match="not numbers"):
        clipped_update(Trained(broken, 2.0), start, CLIP)


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({}, {"granularity": "device"}, "sees each device's update; use --granularity leader"),
        ({"training__dp_unit": "update"}, {}, "leave out this key or training.dp_unit"),
        ({"training__optimiser_state": "keep"}, {}, "set training.optimiser_state to reset"),
    ],
)
def test_what_does_not_go_with_sums_is_refused(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    deployment = Deployment(small(**SECURE, **changes), str(tmp_path / "out"), **options)
    with pytest.raises(InputError, match=words) as refused:
        check_run(deployment)
    assert str(refused.value).startswith("training.secure_sum = unit: ")


def test_a_unit_in_whose_sum_a_device_could_be_seen_is_refused() -> None:
    hosts = {0: "a", 1: "a", 2: "a", 3: "b", 4: "c"}
    names = list("vwxyz")
    check_hidden((0, 1, 2), hosts, names)  # a gateway
    check_hidden((0, 3, 4), hosts, names)
    for members in ((0,), (3, 4), (0, 1, 3)):
        with pytest.raises(InputError, match=r"set a lower clustering\.count"):
            check_hidden(members, hosts, names)
