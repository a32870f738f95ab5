"""How a device turns gradients into steps: optimiser, decay, clipping, schedule of the rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from camu.arrays import Float64
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.config.training_section import TrainingConfig
    from camu.learning.job import LocalRule
    from camu.learning.weights import Layout

ADAM_BETAS, ADAM_EPSILON = (0.9, 0.999), 1e-8  # as in torch


@dataclass(frozen=True)
class Method:
    """The keys of `[training]` about steps, by their names; a rule may replace some of them."""

    optimiser: str = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    schedule: str = "constant"
    schedule_rounds: int = 100
    schedule_factor: float = 0.1
    schedule_by: str = "round"
    dp_unit: str = "none"
    dp_clip: float = 1.0
    dp_noise: float = 1.0

    @classmethod
    def of(cls, training: TrainingConfig) -> Method:
        """The configured method."""
        return cls(**{own.name: getattr(training, own.name) for own in fields(cls)})

    def under(self, rule: LocalRule) -> Method:
        """The method of devices with this rule."""
        names = ("optimiser", "momentum", "nesterov", "weight_decay", "clip_norm")
        given = {name: getattr(rule, name) for name in names}
        own = {name: value for name, value in given.items() if value is not None}
        found = replace(self, **own) if own else self
        # Momentum is one of SGD; Adam has its own.
        return found if found.optimiser == "sgd" else replace(found, momentum=0.0, nesterov=False)

    def state_length(self, parameters: int) -> int:
        """How many numbers it keeps from step to step."""
        if self.optimiser == "adam":
            return 2 * parameters + 1  # both means, and the number of steps
        return parameters if self.momentum else 0

    @property
    def has_state(self) -> bool:
        """Whether a step depends on the steps before it."""
        return self.state_length(1) > 0

    @property
    def varies_in_a_round(self) -> bool:
        """Whether steps of a round have rates of their own."""
        return self.schedule_by == "step" and self.schedule not in ("constant", "step")

    @property
    def is_linear(self) -> bool:
        """Whether the mean of devices' steps is the step on their mean gradient."""
        return self.optimiser == "sgd" and not self.clip_norm and self.dp_unit == "none"

    def rate_factors(self, round_number: int, begun: float, steps: int, total: float) -> Float64:
        """The factor on the rate at each of some steps; rounds count from 0.

        `begun` is how many of the round's `total` steps were done before them.
        """
        progress = np.full(steps, float(round_number))
        if self.schedule_by == "step":
            progress += (begun + np.arange(steps)) / total
        part = progress / self.schedule_rounds
        if self.schedule == "cosine":
            least = self.schedule_factor
            return least + (1 - least) * (1 + np.cos(math.pi * np.minimum(part, 1.0))) / 2
        if self.schedule == "inverse":
            return np.asarray(1 / (1 + part))
        if self.schedule == "step":
            return np.asarray(self.schedule_factor ** np.floor(part))
        return np.ones(steps)

    def gradients_per_step(self, steps: float) -> float:
        """By how much momentum makes so many steps longer than as many plain ones, at most.

        A gradient acts in its own step and, through the velocity, in later ones: FedNova's ||a||_1
        divided by the number of steps.
        """
        if not self.momentum:
            return 1.0
        rho, more = self.momentum, 1 if self.nesterov else 0
        # Of gradient i the sum is (1 - rho^j) / (1 - rho), with j steps to go (Nesterov: j + 1).
        geometric = rho ** (1 + more) * (1.0 - rho**steps) / (1 - rho)
        return float((steps - geometric) / (1 - rho) / steps)


PLAIN_METHOD = Method()


def check_private(method: Method, layout: Layout) -> None:
    """Refuse noise on models that send statistics without it."""
    if method.dp_unit != "none" and layout.buffer_count:
        raise InputError(
            f"training.dp_unit = {method.dp_unit}: the model has buffers (statistics of batch "
            "norm), which leave a device without noise; use another normalisation, such as "
            "training.normalisation = group"
        )
