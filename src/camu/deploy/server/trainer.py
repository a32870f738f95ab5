"""Units trained on nodes: the loop's trainer, in granularity `leader` or `device`.

A node that does not answer, or answers wrongly, costs one deadline at most: it is left out of the
round, counted, logged, and asked again in the next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from camu.deploy.deployment import Granularity
from camu.deploy.server.registry import Roster
from camu.deploy.wire.mailbox import TRAIN, Post
from camu.deploy.wire.messages import Task, Work, read_result, write_task
from camu.deploy.wire.reports import Refusal
from camu.learning.engine import Engine, Job
from camu.learning.weights import Weights, weighted_mean
from camu.simulation.loop import refuse

log = logging.getLogger(__name__)

# Kinds of faults beside the simulation's own. `silent`: units (granularity `leader`) or devices
# (`device`) that were asked and did not answer; `restarts`: lives of the server before this one.
NOTICED = ("silent", "refused", "restarts")


@dataclass(frozen=True)
class _Piece:
    """One work with its place: which job it serves, and which node does it."""

    job: int
    work: Work
    start: Weights


@dataclass(eq=False)
class Nodes:
    """Trains the jobs of a round on the nodes that hold their devices."""

    post: Post
    roster: Roster
    hosts: Mapping[int, str]  # name of the node of each device
    ids: Sequence[str]  # names of the devices
    granularity: Granularity
    deadline_seconds: float
    wait_seconds: float
    max_update_norm: float
    engine: Engine  # evaluates; it has no training data
    noticed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NOTICED, 0))

    @property
    def initial(self) -> Weights:
        """The weights that the run starts from."""
        return self.engine.initial

    def evaluate(self, weights: Weights) -> tuple[float, float]:
        """Accuracy and loss on the server's test samples."""
        return self.engine.evaluate(weights)

    def iterate(
        self, start: Weights, jobs: Sequence[Job], round_number: int
    ) -> Iterator[Weights | None]:
        """The trained weights of each job; None where nothing usable came back."""
        self.roster.refresh()
        self.roster.wait_for_any(self.wait_seconds)
        if self.granularity == "leader":
            return iter(self._in_one_go(start, jobs, round_number))
        return iter(self._step_by_step(start, jobs, round_number))

    def _in_one_go(
        self, start: Weights, jobs: Sequence[Job], round_number: int
    ) -> list[Weights | None]:
        pieces = [
            _Piece(number, Work(job.members, job.weights, job.updates), start)
            for number, job in enumerate(jobs)
        ]
        results = self._ask(pieces, round_number, 0, set())
        trained: list[Weights | None] = []
        for piece, result in zip(pieces, results, strict=True):
            if isinstance(result, Refusal):
                self._notice(result, f"unit of devices {self._names(piece)}", round_number)
            trained.append(None if isinstance(result, Refusal) else result)
        return trained

    def _step_by_step(
        self, start: Weights, jobs: Sequence[Job], round_number: int
    ) -> list[Weights | None]:
        """Members of a unit do each local update at their nodes; the server takes the mean."""
        states: list[Weights | None] = [start] * len(jobs)
        there = [dict(zip(job.members, job.weights, strict=True)) for job in jobs]
        left_out: set[str] = set()  # nodes that failed in this round
        for update in range(max(job.updates for job in jobs)):
            pieces = [
                _Piece(number, Work((device,), (1.0,), 1), state)
                for number, (job, state) in enumerate(zip(jobs, states, strict=True))
                if state is not None and update < job.updates
                for device in there[number]
            ]
            results = self._ask(pieces, round_number, update, left_out)
            came: dict[int, list[tuple[float, Weights]]] = {p.job: [] for p in pieces}
            for piece, result in zip(pieces, results, strict=True):
                device = piece.work.members[0]
                if not isinstance(result, Refusal) and (why := self._faulty(result, piece.start)):
                    result = Refusal(why)
                if isinstance(result, Refusal):
                    self._notice(result, f"device {self._names(piece)}", round_number)
                    del there[piece.job][device]
                else:
                    came[piece.job].append((jobs[piece.job].weights[_place(jobs, piece)], result))
            for number, parts in came.items():
                usable = sum(weight for weight, _ in parts) > 0
                states[number] = weighted_mean(parts) if usable else None
        return states

    def _ask(
        self, pieces: Sequence[_Piece], round_number: int, first: int, left_out: set[str]
    ) -> list[Weights | Refusal]:
        """One exchange with all nodes that hold something of this; results in the pieces' order."""
        present = self.roster.present()
        results: list[Weights | Refusal] = [_Silence("its node is not online") for _ in pieces]
        by_node: dict[str, list[int]] = {}
        for place, piece in enumerate(pieces):
            name = self.hosts[piece.work.members[0]]
            if name in left_out:
                results[place] = _Silence("its node has failed in this round")
            elif name in present:
                by_node.setdefault(name, []).append(place)
        tasks, contents = {}, {}
        for name, places in by_node.items():
            tasks[name], states = self._task([pieces[p] for p in places], round_number, first)
            contents[present[name]] = write_task(tasks[name], states)
        subject = f"round {round_number + 1}"
        answers = self.post.exchange(contents, TRAIN, subject, self.deadline_seconds)
        for name, places in by_node.items():
            answer = answers[present[name]]
            found: Sequence[Weights | Refusal]
            try:
                if answer.content is None:
                    raise _Silence(answer.reason)
                found = read_result(answer.content, tasks[name], self.initial.layout)
            except Refusal as refusal:
                left_out.add(name)
                found = [refusal] * len(places)
            for place, result in zip(places, found, strict=True):
                results[place] = result
        return results

    def _task(
        self, pieces: Sequence[_Piece], round_number: int, first: int
    ) -> tuple[Task, list[Weights]]:
        states: list[Weights] = []
        works = []
        for piece in pieces:
            known = [number for number, state in enumerate(states) if state is piece.start]
            if not known:
                states.append(piece.start)
            number = known[0] if known else len(states) - 1
            work = piece.work
            works.append(Work(work.members, work.weights, work.updates, number))
        ids = {k: self.ids[k] for work in works for k in work.members}
        return Task(round_number, first, len(self.ids), ids, tuple(works)), states

    def _faulty(self, result: Weights, start: Weights) -> str | None:
        update, buffers = result.parameters - start.parameters, result.buffers - start.buffers
        return refuse(update, buffers, self.max_update_norm)

    def _names(self, piece: _Piece) -> str:
        names = [self.ids[k] for k in piece.work.members]
        return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")

    def _notice(self, refusal: Refusal, what: str, round_number: int) -> None:
        if isinstance(refusal, _Silence):
            self.noticed["silent"] += 1
            log.warning("round %d: %s takes no part: %s", round_number + 1, what, refusal)
        else:
            self.noticed["refused"] += 1
            log.warning("round %d: %s is refused: %s", round_number + 1, what, refusal)


class _Silence(Refusal):
    """Nothing came at all."""


def _place(jobs: Sequence[Job], piece: _Piece) -> int:
    return jobs[piece.job].members.index(piece.work.members[0])
