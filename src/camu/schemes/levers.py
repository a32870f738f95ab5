"""The levers of a design, and how far a run with them gets by what is known of the training.

A run of T rounds gets

    T P x a / (1 + c P r (x a)^2)

far: P steps of the whole fleet a round (`progress` of camu-balanced), steps of x = learning rate
times curvature, which the server's momentum makes a times longer, and noise of r times the power
of a step, which costs more the longer steps are. What `bound` promises instead is one over the
smooth bound on the mean squared gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from camu.allocation.smooth_bound import SmoothBound
from camu.arrays import Float64

# Measured on tuning seeds: docs/notes/auto.md says by which command.
NOISE = 0.01  # c
LONGEST_STEP = 1.0  # x beyond which devices may diverge
LONGEST_MOVE = 5.0  # x / (1 - momentum) beyond which the model may
UNCODED = 32  # bits of a parameter that is sent as it is

Predictor = Literal["price", "bound"]


@dataclass(frozen=True)
class Levers:
    """What can be chosen for the groups of a structure."""

    cohorts: int = 1  # of which one trains in a round, in turn
    gathers: int = 1  # local updates a round
    steps: int = 1  # of a member between two gathers
    bits: int = UNCODED  # of a parameter on the uplink
    power: float | None = None  # of leaders, as a share of the most; None: their configured one
    rate: float = 1.0  # factor on training.learning_rate
    momentum: float = 0.0  # of the server
    air: bool = False  # units transmit at once


@dataclass(frozen=True)
class Training:
    """What a pilot found, or what is assumed before it."""

    step: float  # training.learning_rate times the curvature
    spread: float  # of a device's gradient: mean squared distance from everyone's, over its square
    shape: float  # sum of an update's absolute entries over its norm
    square: float = 1.0  # squared norm of everyone's gradient
    loss: float = 1.0

    @classmethod
    def assumed(cls, parameters: int) -> Training:
        """Before a pilot: about what it finds in the worlds that the planner was made in."""
        return cls(step=0.5, spread=8.0, shape=0.6 * math.sqrt(parameters))

    def codec_noise(self, bits: int, parameters: int) -> float:
        """Variance of the rounded update over the squared norm of the update."""
        if bits >= UNCODED:
            return 0.0
        levels = levels_of(bits)
        return min(self.shape / levels, parameters / (6 * levels**2))


def levels_of(bits: int) -> int:
    """The levels of a codec with a sign and so many bits in all."""
    return int(2 ** (bits - 1) - 1)


class Makeup(NamedTuple):
    """The units that train in a round, as noise sees them: means over the cohorts of a design."""

    weights: Float64  # of all units
    squares: float  # sum of squared weights within a cohort
    members: float  # of a unit
    devices: float  # of a cohort
    device_distance: float  # of labels from everyone's, total variation
    unit_distance: float
    cohort_distance: float
    channel: float  # noise of the channel on the mean of updates of equal norm

    def spread(self, training: Training, distance: float, members: float) -> float:
        """The spread of groups with these labels and members about everyone's gradient.

        As much of a device's as its labels are apart from everyone's is by labels; the rest is by
        chance, and less in a mean.
        """
        by_labels = training.spread * self.device_distance
        near = (distance / self.device_distance) ** 2 if self.device_distance > 0 else 0.0
        return by_labels * near + (training.spread - by_labels) / members


@dataclass(frozen=True)
class Goal:
    """Joules and seconds of a run; with `both` it ends when the first of them is spent."""

    joules: float | None
    seconds: float | None
    both: bool

    def less(self, joules: float, seconds: float) -> Goal:
        """What is left of it; at least a hundredth, because a pilot may take all."""
        left = [
            None if budget is None else max(budget - spent, budget / 100)
            for budget, spent in ((self.joules, joules), (self.seconds, seconds))
        ]
        return Goal(left[0], left[1], self.both)

    def rounds(self, joules: float, seconds: float) -> float:
        """How many rounds at this price; their geometric mean where each is read by itself."""
        counts = [
            budget / max(own, 1e-300)
            for budget, own in ((self.joules, joules), (self.seconds, seconds))
            if budget is not None
        ]
        if self.both:
            return min(counts)
        return float(math.prod(counts) ** (1 / len(counts)))


def amplified(momentum: float, rounds: float) -> float:
    """How much longer the server's momentum makes the mean step of so many rounds."""
    full = 1 / max(1 - momentum, 1e-3)
    return float(full * (1 - momentum * (1 - momentum**rounds) * full / rounds))


def reached(
    levers: Levers, training: Training, makeup: Makeup, steps: float, parameters: int, rounds: float
) -> float:
    """How far a run gets by the price; `steps` is the progress of a round."""
    if steps <= 0 or rounds <= 0:
        return 0.0
    noise = noise_power(levers, training, makeup, steps, parameters)
    x = training.step * levers.rate
    move = x * amplified(levers.momentum, max(rounds, 1.0))
    far = rounds * steps * move / (1 + NOISE * steps * noise * move**2)
    over = max(1.0, x / LONGEST_STEP, x / max(1 - levers.momentum, 1e-3) / LONGEST_MOVE)
    return float(far / over**4)


def promised(
    levers: Levers, training: Training, makeup: Makeup, parameters: int, rounds: float
) -> float:
    """One over the smooth bound on the mean squared gradient, at the pilot's constants."""
    count, square = len(makeup.weights), training.square
    unit = makeup.spread(training, makeup.unit_distance, makeup.members)
    member = makeup.spread(training, makeup.device_distance, 1.0)
    batch = square * training.spread * (1 - makeup.device_distance)
    ones = np.ones(count)
    bound = SmoothBound(
        weight=makeup.weights,
        divergence=math.sqrt(unit) * ones,
        dissimilarity=math.sqrt(1 + unit) * ones,
        offset=0.0 * ones,
        inner_dissimilarity=math.sqrt(max(0.0, member - unit)) * ones,
        inner_offset=0.0 * ones,
        variance=batch * ones,
        mean_variance=batch / makeup.members * ones,
        smoothness=1.0,  # rates are in units of one over the curvature
        learning_rate=training.step * levers.rate * amplified(levers.momentum, max(rounds, 1.0)),
        parameters=parameters,
    )
    total = levers.gathers * levers.steps
    moved = (bound.learning_rate * total) ** 2 * square
    noise = noise_power(levers, training, makeup, total, parameters) * moved / parameters
    found = bound.mean_square_gradient(
        levers.gathers * ones, levers.steps * ones, noise, training.loss, max(1, round(rounds))
    )
    return float(1 / found)


def noise_power(
    levers: Levers, training: Training, makeup: Makeup, steps: float, parameters: int
) -> float:
    """Power of all noise on the update of a round, relative to that of the update."""
    unit = 1 + makeup.spread(training, makeup.unit_distance, makeup.members)
    sent = training.codec_noise(levers.bits, parameters) * makeup.squares + makeup.channel
    # Labels of a cohort are those of all its steps; chance is drawn anew at each of them.
    by_labels = makeup.spread(training, makeup.cohort_distance, math.inf)
    by_chance = training.spread * (1 - makeup.device_distance) / makeup.devices / steps
    return float(unit * sent + by_labels + by_chance)
