"""Trains units on nodes: the loop's trainer, in granularity `leader` or `device`.

A node that does not reply, or replies wrongly, costs one deadline at most: it is left out of the
round, counted, logged, and asked again in the next. What one node can do at any time is limited by
what the others do (`schemes.limits`, `schemes.standing`).
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from flwr.app import RecordDict

from camu.arrays import sum_of_squares
from camu.deploy.array_records import Refusal, printable, refusing
from camu.deploy.deployment import Deployment
from camu.deploy.messages import AT_NODE, Task, largest_result, name_some, read_result, write_task
from camu.deploy.server.fleet import check_states, check_together, is_apart
from camu.deploy.server.mailbox import TRAIN, Mailbox, Opposed, Silence, pause
from camu.deploy.server.registry import NodeRegistry
from camu.deploy.server.secure_units import SecureUnits
from camu.errors import CamuError, InputError
from camu.learning.engine import Engine
from camu.learning.job import Evaluation, Job, Trained, one_update
from camu.learning.kernel import Provenance
from camu.learning.weights import Weights, weighted_mean
from camu.schemes.limits import Change, Limits, RoundLimits, part_of, update_norm
from camu.schemes.standing import Standing
from camu.simulation.run import Outcome
from camu.simulation.uplink import refuse

log = logging.getLogger(__name__)

RECENT = 32  # arrivals that make the median where there are no rounds to compare in


@dataclass(frozen=True, eq=False)
class _Request:
    """A job for the node that holds its devices."""

    unit: int  # place of the unit among the jobs of the round
    job: Job
    start: Weights


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
    on_their_way: set[int] = field(default_factory=set)  # units, where arrivals are waited for
    replies: deque[tuple[int, Trained | None]] = field(default_factory=deque)
    recent: deque[Change] = field(default_factory=lambda: deque(maxlen=RECENT))  # of arrivals
    limits: RoundLimits = field(default_factory=RoundLimits)
    standing: Standing = field(default_factory=Standing)  # of devices, or of units' first ones
    too_few: bool = False  # devices in the last round
    silent: set[int] = field(default_factory=set)  # devices, since the last round
    refused: set[int] = field(default_factory=set)
    joined: list[str] = field(default_factory=list)  # devices, since the last round

    provenance = Provenance(kernel="nodes", device="nodes")  # every node uses its own
    oracle = None  # a server cannot read the devices' data
    # Kinds of faults that only nodes have. `silent`: units (granularity `leader`) or devices
    # (`device`) that did not reply; `restarts`: earlier starts of the server.
    fault_kinds = ("silent", "refused", "restarts", "clipped", "opposed")

    def take_faults(self) -> Counter[str]:
        """The faults since the last call, by kind."""
        taken, self.faults = self.faults, Counter()
        return taken

    def take_nodes(self) -> dict[str, Any]:
        """The devices that are online, and the names of those that failed or joined."""
        taken = {
            "online": sum(name in self.registry.present for name in self.hosts.values()),
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

    def evaluate_devices(
        self, weights: Weights, own: Mapping[int, Weights]
    ) -> list[tuple[float, float]]:
        """Only nodes know what devices would say; such metrics are refused before a run."""
        raise InputError("training.metrics: nodes give no metrics of single devices")

    def wall_seconds(self) -> float:
        """The time on the mailbox's clock."""
        return self.mailbox.clock()

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
        whole = self.deployment.granularity == "leader"
        train = self._train_units if whole else self._train_devices
        for number, trained in enumerate(train(starts, jobs, round_number)):
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

    def send(
        self,
        units: Sequence[int],
        starts: Sequence[Weights],
        jobs: Sequence[Job],
        round_number: int,
    ) -> list[bool]:
        """Send each unit its job in a message of its own; False if its node is not online."""
        self._gather()
        sent = []
        for unit, start, job in zip(units, starts, jobs, strict=True):
            if self.deployment.granularity == "device" and len(job.members) > 1:
                raise InputError(
                    f"scheme.name = {self.deployment.config.scheme.name}: it does not wait for all "
                    "units, and its units have several devices; use --granularity leader"
                )
            self._check_together(job)
            request = _Request(unit, job, start)
            node = self.registry.present.get(self.hosts[job.members[0]])
            sent.append(node is not None)
            if node is None:
                self._leave_out(Silence("its node is not online"), request, round_number)
                continue
            task = self._task([request], round_number)
            self.on_their_way.add(unit)
            self.mailbox.send(
                {node: write_task(task, [start])},
                TRAIN,
                f"unit {unit} of round {round_number + 1}",
                self.deployment.deadline_seconds,
                largest_result(task, start.layout),
                partial(self._receive, request, task),
            )
        return sent

    def next_reply(self, seconds: float | None) -> tuple[int, Trained | None] | None:
        """The unit whose node replies next; its result is None if that is of no use."""
        until = None if seconds is None else self.mailbox.clock() + seconds
        while not self.replies:
            if until is not None and self.mailbox.clock() >= until:
                return None
            if until is None and not self.on_their_way:
                raise CamuError("no unit is on its way")
            self.mailbox.poll()
            if not self.replies:
                pause()
        return self.replies.popleft()

    def give_up(self) -> None:
        """Expect nothing more from the units that are on their way."""
        self.mailbox.give_up(TRAIN)
        self.on_their_way.clear()
        self.replies.clear()

    def _receive(
        self, request: _Request, task: Task, node: int, content: RecordDict | Refusal
    ) -> None:
        """Keep a unit's result, or that there is none; the arrivals before it set its limits."""
        self.on_their_way.discard(request.unit)
        trained: Trained | None = None
        try:
            (found,) = self._read(content, task, request.start)
            self._note_lost_states(request.job, found, task.round)
            before = Limits.of(self.recent, self.deployment.clip)
            trained = self._clip(found, request, before, task.round)
            self.recent.append(Change.of(trained.weights, request.start))
        except Refusal as refusal:
            self._leave_out(refusal, request, task.round)
        self.replies.append((request.unit, trained))

    def _read(self, content: RecordDict | Refusal, task: Task, start: Weights) -> list[Trained]:
        if isinstance(content, Refusal):
            raise content
        with refusing("its result"):
            return read_result(content, task, start)

    def _check_together(self, job: Job) -> None:
        """Refuse a unit on several nodes; nodes of a trial can hold any data."""
        if all(report.partition is None for report in self.registry.reports.values()):
            check_together(job.members, self.hosts, self.ids)

    def _note_lost_states(self, job: Job, trained: Trained, round_number: int) -> None:
        """Say which devices have lost what their optimisers kept."""
        pairs = zip(job.members, trained.states, strict=False)
        if lost := [self.ids[k] for k, state in pairs if state is None]:
            what = f"what the optimisers of {name_some(lost)} kept is not at their nodes"
            text = f"round {round_number + 1}: {what}; they began anew"
            log.warning("%s", text)
            self.registry.journal.event("optimiser-lost", text)

    def _train_units(
        self, starts: Sequence[Weights], jobs: Sequence[Job], round_number: int
    ) -> list[Trained | None]:
        """Each unit does all its local updates at one node."""
        requests = [_Request(unit, job, starts[unit]) for unit, job in enumerate(jobs)]
        secure, where = self.deployment.is_secure, (self.hosts, self.ids)
        apart = [r for r in requests if secure and is_apart(r.job.members, *where)]
        whole = [request for request in requests if request not in apart]
        for request in whole:  # a scheme may have revised its units
            self._check_together(request.job)
        results = dict(self._ask(whole, round_number, set()))
        results |= self._add_up(apart, round_number) if apart else {}
        for request, result in results.items():
            if isinstance(result, Refusal):
                self._leave_out(result, request, round_number)
        found = (results[request] for request in requests)
        return [None if isinstance(result, Refusal) else result for result in found]

    def _add_up(
        self, requests: Sequence[_Request], round_number: int
    ) -> dict[_Request, Trained | Refusal]:
        """Of units whose members mask what they send."""
        check_states(self.deployment.config, [request.job for request in requests])
        by_unit = {request.unit: request for request in requests}

        def leave_out(why: Refusal, unit: int, devices: Sequence[int]) -> None:
            job = replace(by_unit[unit].job, members=tuple(devices))
            self._leave_out(why, _Request(unit, job, by_unit[unit].start), round_number)

        room = self.deployment, self.mailbox, self.registry, self.hosts, self.ids
        units = SecureUnits(*room, leave_out, round_number)
        found = units.train({unit: (own.job, own.start) for unit, own in by_unit.items()})
        pairs = [(by_unit[unit], one) for unit, one in found.items()]
        return dict(self._clip_all(pairs, round_number))

    def _train_devices(
        self, starts: Sequence[Weights], jobs: Sequence[Job], round_number: int
    ) -> list[Trained | None]:
        """Members of a unit do each local update at their nodes; the server takes the mean."""
        check_states(self.deployment.config, jobs)
        states: list[Weights | None] = list(starts)
        losses: list[list[float]] = [[] for _ in jobs]
        shares = [dict(zip(job.members, job.weights, strict=True)) for job in jobs]
        left_out: set[str] = set()  # nodes that failed in this round
        kept = [list(job.states) if job.states is not None else None for job in jobs]
        for update in range(max((job.updates for job in jobs), default=0)):
            requests = [
                _Request(unit, one_update(job, device, update, starts[unit], kept[unit]), state)
                for unit, (job, state) in enumerate(zip(jobs, states, strict=True))
                if state is not None and update < job.updates
                for device in shares[unit]
            ]
            usable: dict[int, list[tuple[float, Trained]]] = {r.unit: [] for r in requests}
            for request, result in self._ask(requests, round_number, left_out):
                device = request.job.members[0]
                if isinstance(result, Trained) and (why := self._fault(result, request.start)):
                    result = Refusal(why)
                if isinstance(result, Refusal):
                    self._leave_out(result, request, round_number)
                    del shares[request.unit][device]
                else:
                    usable[request.unit].append((shares[request.unit][device], result))
                    if (own := kept[request.unit]) is not None:
                        own[jobs[request.unit].members.index(device)] = AT_NODE
            for unit, weighted in usable.items():
                total = sum(share for share, _ in weighted)
                if total > 0:
                    states[unit] = weighted_mean((share, one.weights) for share, one in weighted)
                    losses[unit].append(sum(share * one.loss for share, one in weighted) / total)
                else:
                    states[unit] = None
        return [
            None if state is None else Trained(state, sum(seen) / len(seen), tuple(own or ()))
            for state, seen, own in zip(states, losses, kept, strict=True)
        ]

    def _ask(
        self, requests: Sequence[_Request], round_number: int, left_out: set[str]
    ) -> Iterator[tuple[_Request, Trained | Refusal]]:
        """Send every node its task; yields the requests with their results, in their order."""
        results: list[Trained | Refusal] = [Silence("its node is not online") for _ in requests]
        by_node: dict[str, list[int]] = {}  # places of requests
        for place, request in enumerate(requests):
            name = self.hosts[request.job.members[0]]
            if name in left_out:
                results[place] = Silence("its node has failed in this round")
            elif name in self.registry.present:
                by_node.setdefault(name, []).append(place)
        nodes = {self.registry.present[name]: name for name in by_node}
        tasks, contents = {}, {}
        for node, name in nodes.items():
            wanted = [requests[place] for place in by_node[name]]
            tasks[node] = self._task(wanted, round_number)
            contents[node] = write_task(tasks[node], [request.start for request in wanted])

        def waiting(late: set[int]) -> None:
            places = [place for node in late for place in by_node[nodes[node]]]
            devices = {k for place in places for k in requests[place].job.members}
            self.registry.show([self.ids[k] for k in sorted(devices)], until)

        seconds = self.deployment.deadline_seconds
        until = time.time() + seconds
        sizes = (largest_result(t, requests[0].start.layout) for t in tasks.values())
        what, most = f"round {round_number + 1}", max(sizes, default=0)
        replies = self.mailbox.ask(contents, TRAIN, what, seconds, most, waiting)
        for node, name in nodes.items():
            found: Sequence[Trained | Refusal]
            try:
                start = requests[by_node[name][0]].start
                found = self._read(replies[node], tasks[node], start)
            except Refusal as refusal:
                left_out.add(name)
                found = [refusal] * len(by_node[name])
            for place, result in zip(by_node[name], found, strict=True):
                results[place] = result
        yield from self._clip_all(list(zip(requests, results, strict=True)), round_number)

    def _clip_all(
        self, pairs: Sequence[tuple[_Request, Trained | Refusal]], round_number: int
    ) -> Iterator[tuple[_Request, Trained | Refusal]]:
        """The results of a round within the limits that they give each other."""
        known = [(r.weights, q) for q, r in pairs if isinstance(r, Trained)]
        own = [Change.of(w, q.start) for w, q in known]
        limits = self.limits.of(own, self.deployment.clip, round_number)
        changes = [w.parameters - q.start.parameters for w, q in known if self.deployment.clip]
        shares = iter(self.standing.judge([q.job.members[0] for _, q in known], changes))
        for request, result in pairs:
            if isinstance(result, Trained):
                self._note_lost_states(request.job, result, round_number)
                result = self._clip(result, request, limits, round_number)
                if not (share := next(shares)):
                    yield request, Opposed("its updates have long been against those of others")
                    continue
                result = result._replace(weights=part_of(result.weights, request.start, share))
            yield request, result

    def _task(self, requests: Sequence[_Request], round_number: int) -> Task:
        ids = {k: self.ids[k] for request in requests for k in request.job.members}
        return Task(round_number, len(self.ids), ids, tuple(request.job for request in requests))

    def _fault(self, result: Trained, start: Weights) -> str | None:
        squares = sum_of_squares(result.weights.parameters - start.parameters)
        limit = self.deployment.config.training.max_update_norm
        return refuse(squares, result.weights.buffers - start.buffers, limit)

    def _clip(self, trained: Trained, request: _Request, limits: Limits, number: int) -> Trained:
        """The result within the limits; logged and counted if its norm was beyond."""
        if limits.norm < update_norm(trained.weights, request.start) < math.inf:
            self.faults["clipped"] += 1
            what = (number + 1, self._names(request), self.deployment.clip)
            log.warning("round %d: the update of %s is clipped to %g times the median norm", *what)
        return limits.apply(trained, request.start)

    def _names(self, request: _Request) -> str:
        return name_some([self.ids[k] for k in request.job.members])

    def _leave_out(self, refusal: Refusal, request: _Request, round_number: int) -> None:
        """Count and log a unit (granularity `device`: a device) that the round does without."""
        kind = "device" if self.deployment.granularity == "device" else "unit of devices"
        silent = isinstance(refusal, Silence)
        opposed = isinstance(refusal, Opposed)
        self.faults["silent" if silent else "opposed" if opposed else "refused"] += 1
        (self.silent if silent else self.refused).update(request.job.members)
        node = printable(self.hosts[request.job.members[0]], 60)
        what = f"{self._names(request)} {'takes no part' if silent else 'is refused'} (node {node})"
        log.warning("round %d: %s %s: %s", round_number + 1, kind, what, refusal)
