"""The contract between a scheme and the loop: one method must be written, the others may be.

A scheme is a frozen dataclass whose fields are its parameters. The loop calls its methods in this
order, and gives each of them a read-only `View` and the scheme's own `state`:

    plan(world)                   once, before anything else
    pilot(pilot, state)           once, before the first round; what it trains is charged
    select(view, state)           each round: which idle units start
    start(view, state, unit)      for each unit that starts: the model that it starts from
    correction(view, state, unit) for each unit that starts: a vector added to its gradients
    deadline(view, state)         each round: when the server aggregates at the latest
    ready(view, state)            after each arrival: whether the server aggregates now
    aggregate(view, state)        the new global model
    revise(view, state)           after each round: another plan, or None to keep it
    finished(view, state)         after each round: whether the run ends here

Every number per unit (weights, updates, powers, learning-rate factor, batch, proximal weight, steps
between gathers, codec) is part of the plan, so `revise` can change it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from camu.arrays import Float32, Float64
from camu.errors import InputError
from camu.planning.plan import Plan
from camu.schemes.mean import MeanUpdate
from camu.schemes.robust import robust_centre
from camu.seeding import Stream, derive
from camu.world import World

if TYPE_CHECKING:
    from camu.learning.weights import Weights


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


@dataclass(frozen=True, eq=False)
class InFlight:
    """A unit that has started and whose update has not been aggregated yet."""

    unit: int
    round: int  # aggregations done when it started
    started_seconds: float


@dataclass(frozen=True, eq=False)
class Arrival:
    """A usable update that has reached the server; lost and refused ones are not shown."""

    unit: int
    weight: float  # of the unit in the plan
    staleness: int  # aggregations since it started
    seconds: float  # from its start to its arrival
    arrived_seconds: float  # on the virtual clock
    loss: float  # mean training loss over its steps
    update: Float32  # (q,) change of the parameters, as received
    buffers: Float32  # change of the buffers, noise-free
    start: Weights  # the model that the unit started from
    trained: Weights | None = None  # the unit's own model, for schemes with `uses_oracle`


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

    @property
    def idle(self) -> tuple[int, ...]:
        """The units that could start now."""
        return tuple(u for u in range(len(self.plan.units)) if u not in self.in_flight)

    def random(self, *indices: int) -> Stream:
        """A random stream of the scheme's own, a function of seed, round and these numbers."""
        return derive(self.world.seed, "own-scheme", self.round, *indices)

    def draw(self, share: float) -> list[int]:
        """Idle units drawn without replacement: this share of all units, at least one."""
        wanted = max(1, round(share * len(self.plan.units)))
        drawn = self.random().numpy().permutation(self.idle)[:wanted]
        return sorted(int(unit) for unit in drawn)


@dataclass(frozen=True)
class PilotRun:
    """A short training before the first round."""

    weights: Weights  # the model at its end
    losses: tuple[float, ...]  # mean training loss of each round
    seconds: float
    joules: float


class Pilot(Protocol):
    """Trains on the fleet before the first round, at the fleet's expense."""

    @property
    def world(self) -> World: ...

    @property
    def plan(self) -> Plan:
        """The scheme's plan."""
        ...

    @property
    def weights(self) -> Weights:
        """The model that the run starts from."""
        ...

    def train(
        self,
        plan: Plan,
        rounds: int,
        weights: Weights | None = None,
        scheme: Scheme | None = None,
    ) -> PilotRun:
        """Train with a plan from the initial model or another one.

        Rounds are synchronous with all units, unless a scheme is given, whose methods then select
        and aggregate. Pilot runs see the batches and the fading of the first rounds. Their seconds
        and joules are charged to the run.
        """
        ...


class Scheme(ABC):
    """A policy for a fleet. Only `plan` must be written; examples share these two lines:

    >>> import camu
    >>> world = camu.build_world(camu.load_config(preset="demo", overrides={"run.rounds": 3}))

    >>> class Equal(camu.Scheme):
    ...     def plan(self, world):       # every device counts the same, whatever data it holds
    ...         devices = camu.single_devices(world)
    ...         return camu.make_plan(self, devices, [1 / len(devices)] * len(devices))
    >>> camu.simulate(world, Equal()).history.final.units
    20
    """

    name: ClassVar[str]  # the class's import path unless the class sets it
    family: ClassVar[str] = "own"
    citation: ClassVar[str] = ""
    simplified: ClassVar[tuple[str, ...]] = ()  # what the cited work has and this does not
    choices: ClassVar[tuple[str, ...]] = ()  # steps that the cited work leaves open
    uses_oracle: ClassVar[bool] = False  # needs exact losses or gradients: simulation only

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            module = cls.__module__.partition("@")[0]  # what plugins add to a file's name
            cls.name = cls.__name__ if module == "__main__" else f"{module}:{cls.__name__}"

    @abstractmethod
    def plan(self, world: World) -> Plan:
        """Decide who trains with whom, how often, at what power, and how much each unit counts."""

    def pilot(self, pilot: Pilot, state: State) -> Plan | None:
        """Try something out before the first round; None keeps the plan.

        >>> class Tried(camu.schemes.FedAvg):
        ...     def pilot(self, pilot, state):   # which gains more per joule?
        ...         plans = [pilot.plan.with_updates([n] * 20) for n in (1, 2)]
        ...         runs = [pilot.train(plan, rounds=2) for plan in plans]
        ...         gains = [(run.losses[0] - run.losses[1]) / run.joules for run in runs]
        ...         return plans[gains.index(max(gains))]
        >>> result = camu.simulate(world, Tried())
        >>> result.history.records[0].total_joules > 0      # the pilot was charged
        True
        """
        return None

    def select(self, view: View, state: State) -> Iterable[int]:
        """Which of `view.idle` start now; by default all.

        >>> class Sampled(camu.schemes.FedAvg):
        ...     def select(self, view, state):       # five units, drawn without replacement
        ...         return view.random().numpy().choice(view.idle, 5, replace=False)
        >>> camu.simulate(world, Sampled()).history.final.units
        5
        """
        return view.idle

    def start(self, view: View, state: State, unit: int) -> Weights | None:
        """The model that a unit starts from; None is the global model.

        >>> class Restarted(camu.schemes.FedAvg):
        ...     def start(self, view, state, unit):  # two units go back to zero in every round
        ...         zero = 0 * view.weights.parameters
        ...         return view.weights.with_parameters(zero) if unit < 2 else None
        >>> camu.simulate(world, Restarted()).history.final.units
        20
        """
        return None

    def correction(self, view: View, state: State, unit: int) -> Float32 | None:
        """A vector (q,) that is added to every gradient of a unit; None adds nothing.

        >>> class Decayed(camu.schemes.FedAvg):
        ...     def correction(self, view, state, unit):     # weight decay at the round's start
        ...         return 0.01 * view.weights.parameters
        >>> camu.simulate(world, Decayed()).history.final.units
        20
        """
        return None

    def deadline(self, view: View, state: State) -> float | None:
        """When the server aggregates at the latest, on the virtual clock; None: it waits.

        >>> class Window(camu.schemes.FedAvg):
        ...     def deadline(self, view, state):
        ...         return view.seconds + 0.2
        >>> round(camu.simulate(world, Window()).history.final.virtual_seconds, 3)
        0.6
        """
        return None

    def ready(self, view: View, state: State) -> bool:
        """Whether the server aggregates now; by default when no unit is on its way any more.

        >>> class FirstThree(camu.schemes.FedAvg):
        ...     def ready(self, view, state):
        ...         return len(view.arrived) >= 3
        >>> camu.simulate(world, FirstThree()).history.final.units
        3
        """
        return not view.in_flight

    def aggregate(self, view: View, state: State) -> Weights:
        """The new global model; by default the model plus the mean update, weighted by the plan.

        >>> class Momentum(camu.schemes.FedAvg):
        ...     def aggregate(self, view, state):
        ...         mean = super().aggregate(view, state)
        ...         step = mean.parameters - view.weights.parameters
        ...         state["velocity"] = 0.7 * state.get("velocity", 0) + step
        ...         return mean.with_parameters(view.weights.parameters + state["velocity"])
        >>> camu.simulate(world, Momentum()).history.final.units
        20
        """
        if view.world.config.scheme.aggregation != "mean":
            total = sum(arrival.weight for arrival in view.arrived)
            return add_updates(view, [arrival.weight / total for arrival in view.arrived])
        mean = MeanUpdate(view.weights)
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            mean.add(arrival.weight, arrival.update, arrival.buffers)
        return mean.added()

    def revise(self, view: View, state: State) -> Plan | None:
        """The plan from the next round on; None keeps it.

        >>> class Growing(camu.schemes.FedAvg):
        ...     def revise(self, view, state):       # one update more after every round
        ...         return view.plan.with_updates([1 + view.round] * 20)
        >>> camu.simulate(world, Growing()).plan.units[0].local_updates
        4
        """
        return None

    def finished(self, view: View, state: State) -> bool:
        """Whether the run ends after this round; by default the configuration decides.

        >>> class Brief(camu.schemes.FedAvg):
        ...     def finished(self, view, state):
        ...         return view.round == 2
        >>> camu.simulate(world, Brief()).history.stopped
        'scheme'
        """
        return False


def waits_for_all(scheme: Scheme) -> bool:
    """Whether the server waits until no unit is on its way: neither `ready` nor `deadline`."""
    own = type(scheme)
    return own.ready is Scheme.ready and own.deadline is Scheme.deadline


def add_updates(view: View, factors: Sequence[float]) -> Weights:
    """The global model plus a factor times each arrived update; one factor per arrival.

    Updates are added in the order of units and in double precision, so that the order of arrival
    does not change the result. With scheme.aggregation other than `mean`, a robust centre of the
    updates takes their place, times the sum of the factors.
    """
    if len(factors) != len(view.arrived):
        raise InputError(
            f"add_updates: {len(factors)} factors were given for {len(view.arrived)} arrivals; "
            "give one per arrival"
        )
    parameters = view.weights.parameters.astype(np.float64)
    buffers = view.weights.buffers.astype(np.float64)
    pairs = sorted(zip(view.arrived, factors, strict=True), key=lambda pair: pair[0].unit)
    rule = view.world.config.scheme
    if rule.aggregation != "mean" and pairs:
        rows = [np.concatenate((arrival.update, arrival.buffers)) for arrival, _ in pairs]
        centre = robust_centre(np.stack(rows), rule.aggregation, rule.faulty_share)
        step = math.fsum(factors) * centre
        parameters += step[: parameters.size]
        buffers += step[parameters.size :]
        pairs = []
    for arrival, factor in pairs:
        parameters += factor * arrival.update.astype(np.float64)
        buffers += factor * arrival.buffers.astype(np.float64)
    return replace(
        view.weights,
        parameters=parameters.astype(np.float32),
        buffers=buffers.astype(np.float32),
    )


def mix_models(view: View, shares: Sequence[float]) -> Weights:
    """The global model with a share of each arrived model mixed in; the rest stays as it is.

    w + sum_k share_k (w_k - w), where w_k is the model that unit k started from plus its update.
    """
    here = view.weights
    moved = tuple(
        replace(
            arrival,
            update=(arrival.start.parameters - here.parameters) + arrival.update,
            buffers=(arrival.start.buffers - here.buffers) + arrival.buffers,
        )
        for arrival in view.arrived
    )
    return add_updates(replace(view, arrived=moved), shares)
