"""Jobs as the compiled library takes them: a row of numbers and addresses for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from camu.arrays import Float32, Float64, Int64
from camu.data.batches import Schedules
from camu.errors import InputError
from camu.learning import native
from camu.learning.job import Job
from camu.learning.kernel import Optimiser
from camu.learning.weights import Weights

Pair = tuple[Weights, Job]


@dataclass(eq=False)
class JobTable:
    """The rows of some jobs, and the arrays that they point to, which must live as long."""

    jobs: Sequence[Pair]
    optimiser: Optimiser
    round_number: int
    held: list[Float32] = field(default_factory=list)
    # The velocities of each job, one of its unit or of each member; empty where no job has any.
    velocities: list[Float32] = field(default_factory=list)

    @classmethod
    def of(
        cls, jobs: Sequence[Pair], optimiser: Optimiser, schedules: Schedules, round_number: int
    ) -> JobTable:
        """The table of these jobs, without mini-batches and results."""
        table = cls(jobs, optimiser, round_number)
        if table.rows["momentum"].any():
            table._set_velocities()
        if optimiser.method.varies_in_a_round:
            table._set_rates(schedules)
        return table

    def __post_init__(self) -> None:
        known: dict[tuple[int, ...], bytes] = {}  # many jobs differ in nothing but their members
        rows = []
        for start, job in self.jobs:
            key = (
                *(id(start), id(job.rule), job.updates, id(job.anchor), id(job.correction)),
                *(len(job.members) == 1, job.states is None),
            )
            if key not in known:
                known[key] = self._row(start, job)
            rows.append(known[key])
        self.rows: npt.NDArray[np.void] = np.frombuffer(bytearray(b"".join(rows)), native.JOB)

    def kept(self, number: int) -> tuple[Float32, ...]:
        """What the optimisers of a trained job's members keep, if the job asked for it."""
        if not self.velocities or self.jobs[number][1].states is None:
            return ()
        return tuple(own.copy() for own in self.velocities[number])

    def _row(self, start: Weights, job: Job) -> bytes:
        row, optimiser = np.zeros((), dtype=native.JOB), self.optimiser
        method = optimiser.method.under(job.rule)
        if method.optimiser != "sgd":
            raise InputError(
                f"job: rule.optimiser = {method.optimiser!r} needs torch's layers; set "
                "machine.kernel = torch"
            )
        for name, given in (
            ("parameters", start.parameters),
            ("buffers", start.buffers),
            ("anchor", start.parameters if job.anchor is None else job.anchor),
            ("correction", job.correction),
        ):
            if given is not None:
                self.held.append(np.ascontiguousarray(given, dtype=np.float32))
                row[name] = native.address(self.held[-1])
        row["updates"], row["together"] = job.updates, optimiser.together(job)
        rate, momentum = optimiser.rate(job, self.round_number), method.momentum
        row["decay"] = method.weight_decay
        first_is_last = row["together"] and job.updates == 1 and job.states is None
        if momentum and first_is_last and not method.varies_in_a_round:
            # The only step of a velocity that begins at 0: units then share a pass.
            longer, momentum = (1 + momentum if method.nesterov else 1.0), 0.0
            rate, row["decay"] = rate * longer, method.weight_decay / longer
        row["rate"], row["momentum"], row["nesterov"] = rate, momentum, method.nesterov
        row["l2"], row["proximal"], row["clip"] = optimiser.l2, job.rule.proximal, method.clip_norm
        return row.tobytes()

    def _set_velocities(self) -> None:
        """Let each job with momentum begin at 0, or with what its members kept."""
        for row, (start, job) in zip(self.rows, self.jobs, strict=True):
            wanted = 0 if not row["momentum"] else 1 if row["together"] else len(job.members)
            own = np.zeros((wanted, len(start.parameters)), dtype=np.float32)
            for velocity, kept in zip(own, job.states or (), strict=False):
                if kept is not None and kept.shape == velocity.shape:
                    velocity[:] = kept
            row["velocity"] = native.address(own) if wanted else 0
            self.velocities.append(own)

    def _set_rates(self, schedules: Schedules) -> None:
        """Set the rate of each step where it is not the same in a whole round."""
        for row, (_, job), schedule in zip(self.rows, self.jobs, schedules.apart(), strict=True):
            steps = schedule.steps[:1] if row["together"] else schedule.steps
            rates = self.optimiser.rates(job, self.round_number, steps)
            updates = [own.astype(np.float32).reshape(job.updates, -1) for own in rates]
            self.held.append(np.concatenate(updates, axis=1).reshape(-1))
            row["rates"] = native.address(self.held[-1])


def mean_losses(updates: Int64, losses: Float64) -> list[float]:
    """The mean of the losses of each job, which follow one another; `updates` is how many."""
    if len(losses) == len(updates):
        return list(losses.tolist())
    parts = np.split(losses, np.cumsum(updates)[:-1])
    return [float(own.sum()) / len(own) for own in parts]
