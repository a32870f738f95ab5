"""Models side by side: their parameters in one tensor per layer, their batches and their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from camu.arrays import Float32, Int64
from camu.data.batches import Schedule
from camu.learning.grouped import batch_norm
from camu.learning.job import Job, Trained
from camu.learning.kernel import Optimiser
from camu.learning.layers import SegmentBatchNorm
from camu.learning.torch_steps import Steps
from camu.learning.weights import Entry, Layout, Weights

Layers = dict[str, Tensor]  # of each parameter or buffer, those of all models
Seen = list[list[tuple[Tensor, Tensor]]]  # by each batch norm in each of its calls: mean, variance
Given = tuple[Weights, Job, Schedule]


class Batch(NamedTuple):
    """The samples of some models in a step, and the weight of each in its model's loss."""

    indices: Int64  # (models, samples)
    scales: Float32  # (models, samples); 0: it fills up a batch that is smaller than others


@dataclass(frozen=True, eq=False)
class Row:
    """A model of the stack: that of a unit, or of one of its members that steps alone."""

    job: int
    share: float  # of the member in its unit
    steps: int  # per local update
    batches: Sequence[Sequence[tuple[Int64, float]]]  # of each step: samples and their weight

    def batch(self, number: int) -> tuple[Int64, Float32]:
        """The samples of a step and their weights."""
        parts = self.batches[number]
        sizes = [len(indices) for indices, _ in parts]
        scales = np.array([share / len(own) for own, share in parts], dtype=np.float32)
        return np.concatenate([own for own, _ in parts]), np.repeat(scales, sizes)


def rows_of(number: int, job: Job, schedule: Schedule, together: bool) -> list[Row]:
    """The models that a job trains."""
    batches, shares = schedule.batches, job.shares
    if together:
        count = len(shares)
        each = [
            list(zip(batches[first : first + count], shares, strict=True))
            for first in range(0, len(batches), count)
        ]
        return [Row(number, 1.0, 1, each)]
    per_update = int(schedule.steps.sum())
    ends = [0, *np.cumsum(schedule.steps).tolist()]
    return [
        Row(
            number,
            share,
            end - begin,
            [
                [(own, 1.0)]
                for update in range(job.updates)
                for own in batches[update * per_update + begin : update * per_update + end]
            ],
        )
        for (begin, end), share in zip(pairwise(ends), shares, strict=True)
    ]


def padded(batches: Sequence[tuple[Int64, Float32]]) -> Batch:
    """Batches of the size of the largest one; a sample that fills one up counts nothing."""
    most = max(len(indices) for indices, _ in batches)
    indices = np.stack(
        [np.pad(own, (0, most - len(own)), constant_values=own[0]) for own, _ in batches]
        if any(len(own) < most for own, _ in batches)
        else [own for own, _ in batches]
    )
    scales = np.zeros(indices.shape, dtype=np.float32)
    for row, (_, own) in enumerate(batches):
        scales[row, : len(own)] = own
    return Batch(indices, scales)


def stacked(flat: Sequence[Float32], device: torch.device) -> Tensor:
    """The flat states of models as one tensor (models, numbers) in memory of its own."""
    return torch.from_numpy(np.stack(flat)).to(device)


def layered(flat: Tensor, entries: Sequence[Entry]) -> Layers:
    """The layers (models, ...) of flat states (models, numbers), in the same memory."""
    parts = torch.split(flat, [entry.size for entry in entries], 1)
    return {
        entry.name: part.view(len(flat), *entry.shape)
        for entry, part in zip(entries, parts, strict=True)
    }


class Stack:
    """The models of some jobs of one kind, with what their optimiser needs."""

    def __init__(
        self, layout: Layout, given: Sequence[Given], optimiser: Optimiser, device: torch.device
    ) -> None:
        self._layout, self._device = layout, device
        self._starts, self._jobs, schedules = zip(*given, strict=True)
        first = self._jobs[0]
        self._together = optimiser.together(first)
        rows = [
            row
            for number, (job, own) in enumerate(zip(self._jobs, schedules, strict=True))
            for row in rows_of(number, job, own, self._together)
        ]
        # Those that take more steps come first, so that those at work are always the first ones.
        self.order = sorted(range(len(rows)), key=lambda row: -rows[row].steps)
        self.rows = [rows[row] for row in self.order]
        self.steps = self.rows[0].steps
        starts = [self._starts[row.job] for row in self.rows]
        # Where all start alike, the first step reads one model, which stays in the caches.
        begun = [own.parameters for own in starts]
        same = all(own is begun[0] for own in begun)
        begin = stacked(begun[:1] if same else begun, device).expand(len(begun), -1)
        self._start = layered(begin, layout.parameters)
        self._flat = torch.empty(begin.shape, device=device)
        self._own = layered(self._flat, layout.parameters)
        self._flat_buffers = stacked([own.buffers for own in starts], device)
        self.buffers = layered(self._flat_buffers, layout.buffers)
        self._optimiser, self._rule = optimiser, first.rule
        self._method = optimiser.method.under(first.rule)
        self._anchors, self._corrections = self._terms(first)
        self._states = self._begun(rows) if self._method.has_state else None

    def _layers(self, flat: Sequence[Float32]) -> Layers:
        return layered(stacked(flat, self._device), self._layout.parameters)

    def parameters(self, begun: bool) -> Layers:
        """Those of all models, before or after the first step of each."""
        return self._own if begun else self._start

    def _terms(self, first: Job) -> tuple[Layers | None, Layers | None]:
        """What the proximal term pulls to, and what is added to gradients."""
        jobs = [self._jobs[row.job] for row in self.rows]
        anchors = corrections = None
        if self._rule.proximal:
            own = [job.anchor for job in jobs if job.anchor is not None]
            anchors = self._layers(own) if own else self._start
        if first.correction is not None:
            given = [job.correction for job in jobs if job.correction is not None]
            corrections = self._layers(given)
        return anchors, corrections

    def _begun(self, rows: Sequence[Row]) -> Layers:
        """The velocities that the models begin with."""
        count = self._layout.parameter_count
        kept: list[Float32 | None] = []
        for job in self._jobs:
            own = job.states or (None,) * len(job.members)
            kept += own[:1] if self._together else own
        nothing = np.zeros(count, dtype=np.float32)
        # What another optimiser kept is of no use.
        known = [own if own is not None and own.shape == (count,) else nothing for own in kept]
        return self._layers([known[row] for row in self.order])

    def move(self, part: slice, gradients: Layers, rate: float, begun: bool) -> None:
        """Let some models take a step against their gradients, perhaps the first."""

        def own(layers: Layers | None, name: str) -> Tensor | None:
            return None if layers is None else layers[name][part]

        with torch.no_grad():
            for name, gradient in gradients.items():
                anchor, correction = own(self._anchors, name), own(self._corrections, name)
                state = own(self._states, name)
                if state is None:
                    state = gradient[:0]
                steps = Steps(
                    *(self._method, self._optimiser.l2, self._rule.proximal),
                    *(anchor, correction, state),
                )
                before, after = self.parameters(begun)[name][part], self._own[name][part]
                steps.move(before, gradient, rate, after)

    def average(self) -> None:
        """Give the members of each unit that stepped alone the mean of their states."""
        members: dict[int, list[int]] = {}
        for row in np.argsort(self.order).tolist():  # in the order of the members
            members.setdefault(self.rows[row].job, []).append(row)
        for rows in members.values():
            if len(rows) == 1:
                continue
            shares = torch.tensor([self.rows[row].share for row in rows], dtype=torch.float64)
            for flat in (self._flat, self._flat_buffers):
                own = flat[rows].double().mul_(shares.to(self._device)[:, None])
                flat[rows] = own.sum(0).float()

    def results(self, losses: Sequence[float]) -> list[Trained]:
        """What the jobs have trained; the losses are those of the models."""
        place = np.argsort(self.order)  # of the models in the order of jobs and members
        firsts, begin = [], 0
        for job in self._jobs:
            firsts.append(int(place[begin]))
            begin += 1 if self._together else len(job.members)
        parameters, buffers = (_of_rows(flat, firsts) for flat in (self._flat, self._flat_buffers))
        means = np.zeros(len(self._jobs))
        for row, loss in zip(self.rows, losses, strict=True):
            means[row.job] += row.share * loss
        kept = self._kept(place)
        return [
            Trained(Weights.owning(own, its, self._layout), float(mean), states)
            for own, its, mean, states in zip(parameters, buffers, means, kept, strict=True)
        ]

    def _kept(self, place: Int64) -> list[tuple[Float32, ...]]:
        """The velocities that the jobs asked for."""
        if self._states is None or self._jobs[0].states is None:
            return [()] * len(self._jobs)
        held = torch.cat([layer.flatten(1) for layer in self._states.values()], 1)
        states, kept, begin = _of_rows(held, place.tolist()), [], 0
        for job in self._jobs:
            end = begin + (1 if self._together else len(job.members))
            kept.append(tuple(own.copy() for own in states[begin:end]))
            begin = end
        return kept


def _of_rows(flat: Tensor, rows: list[int]) -> Float32:
    """The states of some models, one to a row."""
    result: Float32 = (flat if rows == list(range(len(flat))) else flat[rows]).cpu().numpy()
    return result


class UnitBatchNorm(nn.Module):
    """A batch norm in a batched program: that of one unit, which keeps what it saw for the stack.

    It has the parameters and buffers of the engine's layer under the same names.
    """

    def __init__(self, norm: SegmentBatchNorm) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.eps, self.momentum, self.track = norm.eps, norm.momentum, norm.track
        if norm.track:
            self.register_buffer("running_mean", norm.running_mean)
            self.register_buffer("running_var", norm.running_var)
        self.seen: list[tuple[Tensor, Tensor]] = []

    def forward(self, batch: Tensor) -> Tensor:
        """The batch, normalised by its own samples."""
        outputs, mean, scale = batch_norm(batch, self.weight, self.bias, self.eps)
        values = batch.numel() // batch.shape[1]
        # The scale is 1 / sqrt(variance + eps), and running variances are without bias.
        variance = scale.detach().square().reciprocal().sub(self.eps).clamp(min=0)
        self.seen.append((mean.detach(), variance * (values / max(1, values - 1))))
        return outputs
