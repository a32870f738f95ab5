"""Trains units on nodes: the loop's trainer, in granularity `leader` or `device`.

A node that does not reply, or replies wrongly, costs one deadline at most: it is left out of the
round, counted, logged, and asked again in the next.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from camu.deploy.deployment import Deployment
from camu.deploy.mailbox import TRAIN, Mailbox, Reply, pause
from camu.deploy.messages import Task, read_result, write_task
from camu.deploy.reports import Refusal
from camu.deploy.server.clipping import Clipping
from camu.deploy.server.fleet import check_together
from camu.deploy.server.registry import NodeRegistry
from camu.errors import CamuError, InputError
from camu.learning.engine import Engine
from camu.learning.job import Evaluation, Job, Trained
from camu.learning.sums import sum_of_squares
from camu.learning.weights import Weights, weighted_mean
from camu.simulation.channel import refuse
from camu.simulation.run import Outcome

log = logging.getLogger(__name__)

# Further kinds of faults. `silent`: units (granularity `leader`) or devices (`device`) that did not
# reply; `restarts`: earlier starts of the server; `clipped`: updates far above the median norm.
FAULTS = ("silent", "refused", "restarts", "clipped")


@dataclass(frozen=True, eq=False)
class _Request:
    """A job for the node that holds its devices."""

    unit: int  # place of the unit among the jobs of the round
    job: Job
    start: Weights


@dataclass(frozen=True, eq=False)
class _Sent:
    """A unit on its way: its request, and until when a reply is waited for."""

    request: _Request
    task: Task
    due: float  # on the mailbox's clock
    numbers: tuple[str, ...] = ()  # of its messages


class _Silence(Refusal):
    """No reply at all."""


@dataclass(eq=False)
class NodeTrainer:
    """Trains the jobs of a round on the nodes that hold their devices."""

    deployment: Deployment
    mailbox: Mailbox
    registry: NodeRegistry
    hosts: Mapping[int, str]  # name of the node of each device
    ids: Sequence[str]  # names of the devices
    engine: Engine  # evaluates; it has no training data
    quorum: int = 1  # devices without which a round is reported
    faults: Counter[str] = field(default_factory=Counter)  # since the last round
    sent: dict[int, _Sent] = field(default_factory=dict)  # by unit, where arrivals are waited for
    replies: deque[tuple[int, Trained | None]] = field(default_factory=deque)
    too_few: bool = False  # devices in the last round
    silent: set[int] = field(default_factory=set)  # devices, since the last round
    refused: set[int] = field(default_factory=set)
    joined: list[str] = field(default_factory=list)  # devices, since the last round
    clipping: Clipping = field(init=False)

    def __post_init__(self) -> None:
        self.clipping = Clipping(self.deployment.clip)

    @property
    def oracle(self) -> None:
        """None: a server cannot read the devices' data."""

    @property
    def fault_kinds(self) -> tuple[str, ...]:
        """The kinds of faults that only nodes have."""
        return FAULTS

    def take_faults(self) -> Counter[str]:
        """The faults since the last call, by kind."""
        taken, self.faults = self.faults, Counter()
        return taken

    def take_nodes(self) -> dict[str, Any]:
        """The devices that are online, and the names of those that failed or joined."""
        present = self.registry.present()
        taken = {
            "online": sum(name in present for name in self.hosts.values()),
            "quorum": not self.too_few,
            "silent": [self.ids[k] for k in sorted(self.silent)],
            "refused": [self.ids[k] for k in sorted(self.refused)],
            "joined": self.joined,
        }
        self.silent, self.refused, self.joined = set(), set(), []
        return taken

    @property
    def initial(self) -> Weights:
        """The weights that the run starts from."""
        return self.engine.initial

    def evaluate(self, weights: Weights) -> Evaluation:
        """Accuracy and loss on the server's test samples."""
        return self.engine.evaluate(weights)

    def iterate(
        self,
        start: Weights | Sequence[Weights],
        jobs: Iterable[Job],
        round_number: int,
        deliver: Callable[[int, Trained], Outcome],
    ) -> Iterator[Outcome | None]:
        """The outcome of each job; None if its node sent nothing usable."""
        jobs = list(jobs)
        self._gather()
        starts = [start] * len(jobs) if isinstance(start, Weights) else list(start)
        if self.deployment.granularity == "leader":
            results = self._train_units(starts, jobs, round_number)
        else:
            results = self._train_devices(starts, jobs, round_number)
        for number, trained in enumerate(results):
            yield None if trained is None else deliver(number, trained)

    def _gather(self) -> None:
        """See who is online, and wait if nobody is; too few devices are reported, once."""
        self.registry.refresh()
        self.registry.wait_for_any(self.deployment.wait_seconds)
        online = self.registry.online_devices()
        if (online < self.quorum) != self.too_few:
            self.too_few = not self.too_few
            text = f"{online} devices are online, and the quorum is {self.quorum}"
            self.registry.journal.event("quorum-lost" if self.too_few else "quorum-back", text)
            log.warning("%s", text)

    def wall_seconds(self) -> float:
        """The time on the mailbox's clock."""
        return self.mailbox.clock()

    def send(
        self,
        units: Sequence[int],
        starts: Sequence[Weights],
        jobs: Sequence[Job],
        round_number: int,
    ) -> list[bool]:
        """Send each unit its job in a message of its own; False if its node is not online."""
        self._gather()
        present = self.registry.present()
        sent = []
        for unit, start, job in zip(units, starts, jobs, strict=True):
            self._check_whole(job)
            request = _Request(unit, job, start)
            node = present.get(self.hosts[job.members[0]])
            sent.append(node is not None)
            if node is None:
                self._notice(_Silence("its node is not online"), request, round_number)
                continue
            task, states = self._task([request], round_number)
            due = self.mailbox.clock() + self.deployment.deadline_seconds
            self.sent[unit] = _Sent(request, task, due)
            numbers = self.mailbox.send(
                {node: write_task(task, states)},
                TRAIN,
                f"unit {unit} of round {round_number + 1}",
                self.deployment.deadline_seconds,
                partial(self._receive, unit),
            )
            if unit in self.sent:
                self.sent[unit] = replace(self.sent[unit], numbers=tuple(numbers))
        return sent

    def next_reply(self, seconds: float | None) -> tuple[int, Trained | None] | None:
        """The unit whose node replies next; its result is None if that is of no use."""
        until = None if seconds is None else self.mailbox.clock() + seconds
        while not self.replies:
            if until is not None and self.mailbox.clock() >= until:
                return None
            if until is None and not self.sent:
                raise CamuError("no unit is on its way")
            self.mailbox.poll()
            self._expire()
            if not self.replies:
                pause()
        return self.replies.popleft()

    def give_up(self) -> None:
        """Expect nothing more from the units that are on their way."""
        for one in self.sent.values():
            self.mailbox.abandon(one.numbers)
        self.sent.clear()
        self.replies.clear()

    def _expire(self) -> None:
        """Give up the units whose time for a reply is over."""
        waited = self.deployment.deadline_seconds
        for unit in [u for u, one in self.sent.items() if self.mailbox.clock() > one.due]:
            self.mailbox.abandon(self.sent[unit].numbers)
            self._receive(unit, Reply(0, None, f"no reply within {waited:g} s"))

    def _receive(self, unit: int, reply: Reply) -> None:
        """Keep a unit's result, or the fact that there is none."""
        one = self.sent.pop(unit)
        trained: Trained | None = None
        try:
            if reply.content is None:
                raise _Silence(reply.reason)
            (found,) = read_result(reply.content, one.task, self.initial.layout)
            if isinstance(found, Refusal):
                raise found
            trained = self.clipping.alone(found, one.request.start)
            self._notice_clip(trained is not found, one.request, one.task.round)
        except Refusal as refusal:
            self._notice(refusal, one.request, one.task.round)
        self.replies.append((unit, trained))

    def _check_whole(self, job: Job) -> None:
        """Refuse a unit whose members would have to meet at the server after every update."""
        if self.deployment.granularity == "device" and len(job.members) > 1:
            raise InputError(
                f"scheme.name = {self.deployment.config.scheme.name}: it does not wait for all "
                "units, and its units have several devices; use --granularity leader"
            )
        self._check_together(job)

    def _check_together(self, job: Job) -> None:
        """Refuse a unit on several nodes; nodes of a trial can hold any data."""
        if all(report.partition is None for report in self.registry.reports.values()):
            check_together(job.members, self.hosts, self.ids)

    def _train_units(
        self, starts: Sequence[Weights], jobs: Sequence[Job], round_number: int
    ) -> list[Trained | None]:
        """Each unit does all its local updates at one node."""
        for job in jobs:  # a scheme may have revised its units
            self._check_together(job)
        requests = [_Request(unit, job, starts[unit]) for unit, job in enumerate(jobs)]
        results = self._clipped(requests, self._ask(requests, round_number, set()), round_number)
        trained: list[Trained | None] = []
        for request, result in zip(requests, results, strict=True):
            if isinstance(result, Refusal):
                self._notice(result, request, round_number)
            trained.append(None if isinstance(result, Refusal) else result)
        return trained

    def _train_devices(
        self, starts: Sequence[Weights], jobs: Sequence[Job], round_number: int
    ) -> list[Trained | None]:
        """Members of a unit do each local update at their nodes; the server takes the mean."""
        states: list[Weights | None] = list(starts)
        losses: list[list[float]] = [[] for _ in jobs]
        shares = [dict(zip(job.members, job.weights, strict=True)) for job in jobs]
        left_out: set[str] = set()  # nodes that failed in this round
        for update in range(max((job.updates for job in jobs), default=0)):
            requests = [
                _Request(unit, _one_update(job, device, update, starts[unit]), state)
                for unit, (job, state) in enumerate(zip(jobs, states, strict=True))
                if state is not None and update < job.updates
                for device in shares[unit]
            ]
            results = self._ask(requests, round_number, left_out)
            results = self._clipped(requests, results, round_number)
            usable: dict[int, list[tuple[float, Trained]]] = {r.unit: [] for r in requests}
            for request, result in zip(requests, results, strict=True):
                device = request.job.members[0]
                if not isinstance(result, Refusal) and (
                    why := self._fault(result.weights, request.start)
                ):
                    result = Refusal(why)
                if isinstance(result, Refusal):
                    self._notice(result, request, round_number)
                    del shares[request.unit][device]
                else:
                    usable[request.unit].append((shares[request.unit][device], result))
            for unit, weighted in usable.items():
                total = sum(share for share, _ in weighted)
                if total > 0:
                    states[unit] = weighted_mean((share, one.weights) for share, one in weighted)
                    losses[unit].append(sum(share * one.loss for share, one in weighted) / total)
                else:
                    states[unit] = None
        return [
            None if state is None else Trained(state, sum(seen) / len(seen))
            for state, seen in zip(states, losses, strict=True)
        ]

    def _clipped(
        self, requests: Sequence[_Request], results: Sequence[Trained | Refusal], number: int
    ) -> list[Trained | Refusal]:
        """The results, with updates far above the median norm scaled down."""
        found = self.clipping.together(results, [request.start for request in requests])
        for request, before, after in zip(requests, results, found, strict=True):
            self._notice_clip(before is not after, request, number)
        return found

    def _notice_clip(self, clipped: bool, request: _Request, round_number: int) -> None:
        self.faults["clipped"] += clipped
        if clipped:
            what = (round_number + 1, self._names(request), self.clipping.multiple)
            log.warning("round %d: the update of %s is clipped to %g times the median norm", *what)

    def _ask(
        self, requests: Sequence[_Request], round_number: int, left_out: set[str]
    ) -> list[Trained | Refusal]:
        """Send every node its task; returns one result per request, in their order."""
        present = self.registry.present()
        results: list[Trained | Refusal] = [_Silence("its node is not online") for _ in requests]
        by_node: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            name = self.hosts[request.job.members[0]]
            if name in left_out:
                results[place] = _Silence("its node has failed in this round")
            elif name in present:
                by_node.setdefault(name, []).append(place)
        tasks, contents = {}, {}
        for name, places in by_node.items():
            tasks[name], states = self._task([requests[p] for p in places], round_number)
            contents[present[name]] = write_task(tasks[name], states)
        subject = f"round {round_number + 1}"
        owners = {present[name]: places for name, places in by_node.items()}

        def waiting(nodes: set[int]) -> None:
            places = [place for node in nodes for place in owners[node]]
            late = {k for place in places for k in requests[place].job.members}
            self.registry.show([self.ids[k] for k in sorted(late)])

        seconds = self.deployment.deadline_seconds
        replies = self.mailbox.ask(contents, TRAIN, subject, seconds, waiting)
        for name, places in by_node.items():
            reply = replies[present[name]]
            found: Sequence[Trained | Refusal]
            try:
                if reply.content is None:
                    raise _Silence(reply.reason)
                found = read_result(reply.content, tasks[name], self.initial.layout)
            except Refusal as refusal:
                left_out.add(name)
                found = [refusal] * len(places)
            for place, result in zip(places, found, strict=True):
                results[place] = result
        return results

    def _task(self, requests: Sequence[_Request], round_number: int) -> tuple[Task, list[Weights]]:
        """One node's task, and the states that its jobs start from, each of them once."""
        states: list[Weights] = []
        starts = []
        for request in requests:
            known = [number for number, state in enumerate(states) if state is request.start]
            if not known:
                states.append(request.start)
            starts.append(known[0] if known else len(states) - 1)
        jobs = tuple(request.job for request in requests)
        ids = {k: self.ids[k] for job in jobs for k in job.members}
        return Task(round_number, len(self.ids), ids, jobs, tuple(starts)), states

    def _fault(self, result: Weights, start: Weights) -> str | None:
        squares = sum_of_squares(result.parameters - start.parameters)
        limit = self.deployment.config.training.max_update_norm
        return refuse(squares, result.buffers - start.buffers, limit)

    def _names(self, request: _Request) -> str:
        names = [self.ids[k] for k in request.job.members]
        return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")

    def _notice(self, refusal: Refusal, request: _Request, round_number: int) -> None:
        kind = "device" if self.deployment.granularity == "device" else "unit of devices"
        what, number = f"{kind} {self._names(request)}", round_number + 1
        if isinstance(refusal, _Silence):
            self.faults["silent"] += 1
            self.silent.update(request.job.members)
            log.warning("round %d: %s takes no part: %s", number, what, refusal)
        else:
            self.faults["refused"] += 1
            self.refused.update(request.job.members)
            log.warning("round %d: %s is refused: %s", number, what, refusal)


def _one_update(job: Job, device: int, update: int, start: Weights) -> Job:
    """The part of a job that one of its devices does in one of its local updates.

    The proximal term pulls to the model at the start of the round, not of the update.
    """
    anchor = job.anchor
    if anchor is None and job.rule.proximal > 0 and update > 0:
        anchor = start.parameters
    first = job.first + update
    return replace(job, members=(device,), weights=(1.0,), updates=1, first=first, anchor=anchor)
