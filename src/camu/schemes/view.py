"""A run as its scheme sees it: the view of one moment, arrivals, and the scheme's own state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from camu.arrays import AnyArray, Float32, Float64
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.seeding import Stream, derive
from camu.world import World

# What a scheme keeps from round to round, by name: numpy arrays, numbers, text and booleans. It is
# saved in checkpoints.
State = dict[str, Any]


class Oracle(Protocol):
    """Exact losses and gradients on all data of some devices; only a simulation has them."""

    def loss(self, weights: Weights, members: Sequence[int] | None = None) -> float:
        """The mean loss of these devices (None: of all), weighted by their samples."""
        ...

    def gradient(self, weights: Weights, members: Sequence[int] | None = None) -> Float32:
        """The gradient of that loss, (q,)."""
        ...


def no_array() -> Float32:
    """An array without entries, in place of one that is not there."""
    return np.zeros(0, np.float32)


@dataclass(eq=False)
class InFlight:
    """A unit that has started and whose update has not been aggregated yet."""

    unit: int
    round: int  # aggregations done when it started
    started_seconds: float = 0.0


@dataclass(eq=False)
class Arrival(InFlight):
    """A usable update that has reached the server; lost and refused ones are not shown."""

    weight: float = 0.0  # of the unit in the plan
    staleness: int = 0  # aggregations since it started
    arrived_seconds: float = math.nan  # on the virtual clock
    loss: float = math.nan  # mean training loss over its steps
    update: Float32 = field(default_factory=no_array)  # (q,) change of the parameters, as received
    buffers: Float32 = field(default_factory=no_array)  # change of the buffers, noise-free
    start: Weights = field(init=False, repr=False)  # the model that the unit started from
    trained: Weights | None = None  # the unit's own model, for schemes with `uses_oracle`
    # Of units that transmit at once, one arrival stands for all: the norm of what each sent.
    norms: Mapping[int, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """From its start to its arrival."""
        return self.arrived_seconds - self.started_seconds


@dataclass(frozen=True, eq=False)
class View:
    """The run at one moment, read-only. Seconds are virtual, joules are totals since the start."""

    world: World
    plan: Plan
    round: int  # aggregations done
    seconds: float
    joules: float
    device_joules: Float64  # (K,)
    battery_joules: Float64  # (K,) what is left; inf on mains power
    weights: Weights  # the global model
    before: Weights  # the global model at the start of this round; `revise` compares it
    in_flight: Mapping[int, InFlight] = field(default_factory=dict)
    arrived: tuple[Arrival, ...] = ()  # since the last aggregation, in the order of arrival
    oracle: Oracle | None = None  # only for a scheme with `uses_oracle`
    empty: frozenset[int] = frozenset()  # devices whose batteries are empty for good
    kept: Mapping[int, AnyArray] = field(default_factory=dict)  # by unit: what `keep` returned

    @property
    def idle(self) -> tuple[int, ...]:
        """The units that could start now."""
        return tuple(u for u in range(len(self.plan.units)) if u not in self.in_flight)

    @property
    def powered(self) -> tuple[int, ...]:
        """The idle units with a device that is not empty for good; all idle units if none has."""
        units = self.plan.units
        able = tuple(u for u in self.idle if not self.empty.issuperset(units[u].members))
        return able if self.empty and able else self.idle

    @property
    def shares(self) -> list[float]:
        """The weight of each arrival as a share of their sum; zeros where that is 0."""
        total = sum(arrival.weight for arrival in self.arrived)
        return [arrival.weight / total if total > 0 else 0.0 for arrival in self.arrived]

    def random(self, *indices: int) -> Stream:
        """A random stream of the scheme's own, a function of seed, round and these numbers."""
        return derive(self.world.seed, "own-scheme", self.round, *indices)

    def draw(self, share: float) -> list[int]:
        """Units of `powered` drawn without replacement: this share of all, at least one."""
        wanted = max(1, round(share * len(self.plan.units)))
        drawn = self.random().numpy().permutation(self.powered)[:wanted]
        return sorted(int(unit) for unit in drawn)
