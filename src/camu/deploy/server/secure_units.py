"""Units whose members are on different nodes, and of which the server sees sums alone.

After every local update the server takes the part of the leader: it hands on keys and sealed
shares, adds masked vectors up, and finds the masks that remain in the sum from the members' shares.
A member that is lost is left out of its unit for the round; with fewer than two thirds of those
that sent keys, or with fewer than three, the unit is silent. Nobody can see whether a member's own
vector is clipped; the norm of the sum shows whether all can have been.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import RecordDict

from camu.arrays import Float32, Float64
from camu.deploy.array_records import Refusal, arrays_in, head_text, parcel, refusing
from camu.deploy.deployment import Deployment
from camu.deploy.messages import OVERHEAD_BYTES, Task, parse, write_task
from camu.deploy.node_secure import LARGEST_LOSS
from camu.deploy.secure_keys import verifier
from camu.deploy.secure_messages import (
    ANSWERS,
    Answered,
    Asked,
    Sum,
    WrittenKeys,
    attach,
    check_answer,
    digest,
    unhexed,
    vector_size,
    weighty,
)
from camu.deploy.secure_sum import MaskError, Ring, from_ring, step_of, threshold, unmask
from camu.deploy.server.mailbox import TRAIN, Mailbox, Silence
from camu.deploy.server.registry import NodeRegistry
from camu.learning.job import Job, Trained, one_update
from camu.learning.weights import Weights
from camu.planning.secure import FEWEST

LeaveOut = Callable[[Refusal, int, Sequence[int]], None]  # why, unit, devices


@dataclass(eq=False)
class _Unit:
    """A unit in a round."""

    number: int
    job: Job
    start: Weights  # of the round
    state: Weights
    nodes: dict[str, tuple[int, ...]]  # devices by node, of those that are not lost
    losses: list[float] = field(default_factory=list)
    why: Refusal | None = None  # why there is no result
    # Of the present sum:
    sum: Sum | None = None
    registered: dict[str, str] = field(default_factory=dict)
    keys: dict[str, WrittenKeys] = field(default_factory=dict)
    sealed: dict[str, dict[str, str]] = field(default_factory=dict)  # by sender and receiver
    masked: dict[str, Ring] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    shares: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def require(self, found: int, known: int, what: str) -> None:
        """Give the unit up where too few members are left."""
        needed = max(FEWEST, threshold(known))
        if found < needed and self.why is None:
            self.why = Silence(f"{found} of {known} members {what}, and {needed} are needed")


@dataclass(frozen=True, eq=False)
class SecureUnits:
    """Trains such units for a round."""

    deployment: Deployment
    mailbox: Mailbox
    registry: NodeRegistry
    hosts: Mapping[int, str]
    ids: Sequence[str]
    leave_out: LeaveOut
    round: int

    def train(self, jobs: Mapping[int, tuple[Job, Weights]]) -> dict[int, Trained | Refusal]:
        """The outcome of each unit, by its number."""
        units = [self._unit(number, *pair) for number, pair in jobs.items()]
        for update in range(max(unit.job.updates for unit in units)):
            active = [unit for unit in units if unit.why is None and update < unit.job.updates]
            self._update(active, update)
        return {unit.number: unit.why or _trained(unit) for unit in units}

    def _unit(self, number: int, job: Job, start: Weights) -> _Unit:
        nodes: dict[str, list[int]] = {}
        for device in job.members:
            nodes.setdefault(self.hosts[device], []).append(device)
        unit = _Unit(number, job, start, start, {name: tuple(own) for name, own in nodes.items()})
        for name in [name for name in nodes if name not in self.registry.present]:
            self._lose(unit, name, Silence("its node is not online"))
        return unit

    def _lose(self, unit: _Unit, name: str, why: Refusal) -> None:
        """Go on without a node for the rest of the round."""
        self.leave_out(why, unit.number, unit.nodes.pop(name))

    def _update(self, units: Sequence[_Unit], update: int) -> None:
        """One local update of each unit, and the sum of it."""
        for unit in units:
            self._begin(unit, update)
        for step in (self._ask_keys, self._ask_shares, self._ask_vectors, self._ask_reveal):
            step([unit for unit in units if unit.why is None])
        for unit in units:
            if unit.why is None:
                try:
                    self._finish(unit)
                except (MaskError, Refusal) as error:
                    unit.why = Refusal(str(error))

    def _begin(self, unit: _Unit, update: int) -> None:
        """Say what all members agree to."""
        owners = self.mailbox.owners()
        unit.registered = {
            name: owners[self.registry.present[name]].public
            for name in unit.nodes
            if self.registry.present.get(name) in owners
        }
        for name in sorted(unit.nodes.keys() - unit.registered.keys()):
            self._lose(unit, name, Silence("its node has no registered key, or is not online"))
        shares = dict(zip(unit.job.members, unit.job.weights, strict=True))
        unit.sum = Sum(
            self.deployment.identity,
            self.round,
            unit.job.first + update,
            dict(unit.nodes),
            {device: shares[device] for own in unit.nodes.values() for device in own},
            digest(unit.state),
            secrets.token_hex(8),
        )
        unit.keys, unit.sealed, unit.masked, unit.shares = {}, {}, {}, {}
        if len(unit.nodes) < FEWEST or not weighty(unit.sum, FEWEST):
            unit.why = Silence(f"a sum needs {FEWEST} members, each with a tenth of the weight")

    def _ask_keys(self, units: Sequence[_Unit]) -> None:
        def read(unit: _Unit, name: str, found: Answered, vector: Float32 | None) -> None:
            verify = verifier({name: unit.registered[name]}, None)
            written = found.keys
            if written is None or unit.sum is None:
                raise Refusal("it has sent no keys")
            keys = written.keys
            if not verify(name, keys.text(unit.sum.context, name), keys.signature):
                raise Refusal("its keys are not signed by its registered key")
            unit.keys[name] = written

        self._step(units, lambda unit, name: Asked("keys", _sum(unit)), read, 0)
        for unit in units:
            unit.require(len(unit.keys), len(unit.nodes), "have sent keys")

    def _ask_shares(self, units: Sequence[_Unit]) -> None:
        def asked(unit: _Unit, name: str) -> Asked:
            return Asked("deal", _sum(unit), keys=unit.keys, registered=unit.registered)

        def read(unit: _Unit, name: str, found: Answered, vector: Float32 | None) -> None:
            if found.sealed.keys() != unit.keys.keys() - {name}:
                raise Refusal("it has not sealed a share for each other member")
            unit.sealed[name] = found.sealed

        most = max((len(unit.keys) for unit in units), default=0)
        self._step(units, asked, read, 400 * most)
        for unit in units:
            unit.require(len(unit.sealed), len(unit.keys), "have sealed shares")

    def _ask_vectors(self, units: Sequence[_Unit]) -> None:
        def asked(unit: _Unit, name: str) -> Asked:
            theirs = {sender: own[name] for sender, own in unit.sealed.items() if sender != name}
            return Asked("mask", _sum(unit), sealed=theirs)

        def read(unit: _Unit, name: str, found: Answered, vector: Float32 | None) -> None:
            if vector is None:
                raise Refusal("it has sent no vector")
            unit.masked[name] = vector.view(np.uint32)

        sizes = (4 * vector_size(unit.state.layout) for unit in units)
        self._step(units, asked, read, max(sizes, default=0), self._task)
        for unit in units:
            unit.silent = tuple(sorted(unit.sealed.keys() - unit.masked.keys()))
            unit.require(len(unit.masked), len(unit.keys), "answered")

    def _ask_reveal(self, units: Sequence[_Unit]) -> None:
        def asked(unit: _Unit, name: str) -> Asked:
            return Asked(
                "reveal", _sum(unit), answered=tuple(sorted(unit.masked)), silent=unit.silent
            )

        def read(unit: _Unit, name: str, found: Answered, vector: Float32 | None) -> None:
            unit.shares[name] = unhexed(found.shares)

        most = max((len(unit.keys) for unit in units), default=0)
        self._step(units, asked, read, 400 * most)

    def _step(
        self,
        units: Sequence[_Unit],
        asked: Callable[[_Unit, str], Asked],
        read: Callable[[_Unit, str, Answered, Float32 | None], None],
        most_bytes: int,
        content_of: Callable[[Sequence[_Unit], str], RecordDict] = lambda *_: parcel(b"{}"),
    ) -> None:
        """Ask all members of units, each node once, and read what they answer; who fails is lost.

        `most_bytes` are those of an answer for one unit.
        """
        by_node: dict[str, list[_Unit]] = {}
        for unit in units:
            for name in unit.nodes:
                by_node.setdefault(name, []).append(unit)
        present = {self.registry.present[n]: n for n in by_node if n in self.registry.present}
        questions = {name: [asked(unit, name) for unit in own] for name, own in by_node.items()}
        contents = {
            node: attach(content_of(by_node[name], name), questions[name])
            for node, name in present.items()
        }

        def waiting(late: set[int]) -> None:
            names = [present[node] for node in late]
            devices = {k for name in names for unit in by_node[name] for k in unit.nodes[name]}
            self.registry.show([self.ids[k] for k in sorted(devices)])

        most = OVERHEAD_BYTES + (most_bytes + most_bytes // 1000) * len(units)
        what, seconds = f"round {self.round + 1}", self.deployment.deadline_seconds
        replies = self.mailbox.ask(contents, TRAIN, what, seconds, most, waiting)
        found: dict[str, RecordDict | Refusal] = {present[n]: reply for n, reply in replies.items()}
        for name, own in by_node.items():
            reply = found.get(name, Silence("its node is not online"))
            for unit, question, answer in zip(
                own, questions[name], _answers(reply, own, questions[name]), strict=True
            ):
                try:
                    if isinstance(answer, Refusal):
                        raise answer
                    with refusing("its answer"):
                        read(unit, name, check_answer(answer[0], question), answer[1])
                except Refusal as refusal:
                    self._lose(unit, name, refusal)

    def _task(self, units: Sequence[_Unit], name: str) -> RecordDict:
        """The local updates of a node's devices."""
        jobs, starts = [], []
        for unit in units:
            update = _sum(unit).update - unit.job.first
            for device in unit.nodes[name]:
                jobs.append(one_update(unit.job, device, update, unit.start, unit.job.states))
                starts.append(unit.state)
        ids = {device: self.ids[device] for job in jobs for device in job.members}
        return write_task(Task(self.round, len(self.ids), ids, tuple(jobs)), starts)

    def _finish(self, unit: _Unit) -> None:
        """Unmask the sum, and take the mean of those that answered."""
        own, clip = _sum(unit), self.deployment.config.training.secure_clip
        keys = {name: written.keys for name, written in unit.keys.items()}
        ring = unmask(own.context, 0, unit.masked, unit.silent, keys, unit.shares)
        share = sum(own.weight(name) for name in unit.masked) / sum(own.weights.values())
        total, layout = from_ring(ring, clip), unit.state.layout
        _check_norm(total[: layout.parameter_count], clip * share, len(unit.masked), clip)
        mean = total / share
        unit.losses.append(float(mean[-1]) * LARGEST_LOSS / clip)
        count, frozen = layout.parameter_count, layout.frozen_count
        buffers = np.concatenate((np.zeros(frozen), mean[count:-1]))
        first = unit.state
        unit.state = Weights(
            (first.parameters + mean[:count]).astype(np.float32),
            (first.buffers + buffers).astype(np.float32),
            layout,
        )


def _check_norm(sum_: Float64, most: float, members: int, clip: float) -> None:
    """Refuse a sum that clipped vectors cannot have."""
    norm, rounding = math.sqrt(float(np.square(sum_).sum())), step_of(clip) * members
    if norm > most * (1 + 1e-9) + rounding * math.sqrt(len(sum_)):
        raise Refusal(
            f"its sum has norm {norm:.3g}, and clipped updates have no more than {most:.3g}: a "
            "member has sent something else"
        )


def _answers(
    reply: RecordDict | Refusal, units: Sequence[_Unit], asked: Sequence[Asked]
) -> Sequence[tuple[Answered, Float32 | None] | Refusal]:
    """The answers of a node for each of its units, with vectors where some were asked for."""
    try:
        if isinstance(reply, Refusal):
            raise reply
        with refusing("its answer"):
            heads = parse(ANSWERS, head_text(reply), "its answer")
            if len(heads) != len(asked):
                raise Refusal(f"it answers {len(heads)} of {len(asked)} questions")
            there = [asked[0].step == "mask" and not head.problem for head in heads]
            sizes = [
                vector_size(unit.state.layout)
                for unit, own in zip(units, there, strict=True)
                if own
            ]
            vectors = iter(arrays_in(reply, sizes) if sizes else [])
            return [
                (head, next(vectors) if own else None)
                for head, own in zip(heads, there, strict=True)
            ]
    except Refusal as refusal:
        return [refusal] * len(units)


def _sum(unit: _Unit) -> Sum:
    assert unit.sum is not None  # it has begun
    return unit.sum


def _trained(unit: _Unit) -> Trained:
    return Trained(unit.state, sum(unit.losses) / len(unit.losses))
