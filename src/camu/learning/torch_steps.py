"""The steps of a device on torch's tensors: clipping, penalty terms, momentum, Adam and decay."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from camu.arrays import Float32
from camu.learning.job import Job
from camu.learning.method import ADAM_BETAS, ADAM_EPSILON, Method


@dataclass
class Steps:
    """Moves flat parameters against their gradients, as the rule of a job says."""

    method: Method
    l2: float
    proximal: float
    anchor: Tensor | None  # that the proximal term pulls to
    correction: Tensor | None
    state: Tensor  # of the optimiser of the device that takes the next step

    @classmethod
    def of(cls, method: Method, l2: float, job: Job, start: Tensor) -> Steps:
        """The steps of a job that starts from these parameters."""

        def like(given: Float32) -> Tensor:
            return torch.from_numpy(given.copy()).to(start.device)

        anchor = None
        if job.rule.proximal:
            anchor = start.clone() if job.anchor is None else like(job.anchor)
        correction = None if job.correction is None else like(job.correction)
        own = method.under(job.rule)
        state = torch.zeros(own.state_length(len(start)), device=start.device)
        return cls(own, l2, job.rule.proximal, anchor, correction, state)

    def begin(self, kept: Float32 | None) -> Tensor:
        """The state that a device begins with; what another optimiser kept is of no use."""
        if kept is None or kept.shape != self.state.shape:
            return torch.zeros_like(self.state)
        return torch.from_numpy(kept.copy()).to(self.state.device)

    def move(
        self, parameters: Tensor, gradient: Tensor, rate: float, after: Tensor | None = None
    ) -> None:
        """Take a step, in place or into another tensor; the gradient of the loss is used up."""
        method, after = self.method, parameters if after is None else after
        if method.clip_norm:
            self._pull(parameters, gradient)
            norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
            gradient.mul_(min(1.0, method.clip_norm / (norm + 1e-6)))  # as torch clips
        if self.l2:
            gradient.add_(parameters, alpha=self.l2)
        if not method.clip_norm:
            self._pull(parameters, gradient)
        if self.correction is not None:
            gradient.add_(self.correction)
        if method.weight_decay:
            parameters = torch.mul(parameters, 1 - rate * method.weight_decay, out=after)
        if method.optimiser == "adam":
            self._move_by_adam(parameters, gradient, rate, after)
            return
        if method.momentum:
            self.state.mul_(method.momentum).add_(gradient)
            gradient = (
                gradient.add(self.state, alpha=method.momentum) if method.nesterov else self.state
            )
        torch.add(parameters, gradient, alpha=-rate, out=after)

    def _pull(self, parameters: Tensor, gradient: Tensor) -> None:
        """Add the gradient of the proximal term."""
        if self.anchor is not None:
            gradient.add_(parameters - self.anchor, alpha=self.proximal)

    def _move_by_adam(
        self, parameters: Tensor, gradient: Tensor, rate: float, after: Tensor
    ) -> None:
        first, second = ADAM_BETAS
        length = len(gradient)
        mean, square, count = self.state[:length], self.state[length:-1], self.state[-1:]
        count.add_(1)
        steps = float(count)
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = square.sqrt().div_(math.sqrt(1 - second**steps)).add_(ADAM_EPSILON)
        torch.addcdiv(parameters, mean, scale, value=-rate / (1 - first**steps), out=after)
