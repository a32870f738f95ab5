"""The contract between a scheme and the loop: one method must be written, the others may be.

A scheme is a frozen dataclass whose fields are its parameters. The loop calls its methods in this
order, and gives each of them a read-only `View` and the scheme's own `state`:

    plan(world)                   once, before anything else
    pilot(pilot, state)           once, before the first round; what it trains is charged
    select(view, state)           each round: which idle units start
    start(view, state, unit)      for each unit that starts: the model that it starts from
    correction(view, state, unit) for each unit that starts: a vector added to its gradients
    own_training(view, state, ..) for each unit that starts: what it trains for itself
    keep(view, state, unit, ...)  for each unit that has trained: the array that it keeps
    own_model(view, state, unit)  where devices are evaluated: the model that a unit uses itself
    deadline(view, state)         each round: when the server aggregates at the latest
    ready(view, state)            after each arrival: whether the server aggregates now
    aggregate(view, state)        the new global model
    revise(view, state)           after each round: another plan, or None to keep it
    finished(view, state)         after each round: whether the run ends here

Every number per unit (weights, updates, powers, learning-rate factor, batch, proximal weight, steps
between gathers, codec) is part of the plan, so `revise` can change it.
"""

# What is imported here is what users import from camu.schemes, and what files of schemes need.
# mypy: implicit-reexport

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from camu.arrays import AnyArray, Float32
from camu.errors import InputError
from camu.learning.job import OwnTraining
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.schemes.aggregation import MeanUpdate, add_updates
from camu.schemes.view import State, View
from camu.world import World

# Types of parameters, with their limits; a name has the same type in every scheme.
MOST = 1_000_000
Count = Annotated[int, Field(ge=1, le=MOST)]
CountFromZero = Annotated[int, Field(ge=0, le=MOST)]
CountFromTwo = Annotated[int, Field(ge=2, le=MOST)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Threshold = Annotated[float, Field(ge=0, allow_inf_nan=True)]


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

    def go_on_from(self, weights: Weights) -> None:
        """The run begins with this model, so that what the pilot trained is not lost."""
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
    simplified: ClassVar[Sequence[str]] = ()  # what the cited work has and this does not
    choices: ClassVar[Sequence[str]] = ()  # steps that the cited work leaves open
    uses_oracle: ClassVar[bool] = False  # needs exact losses or gradients: simulation only
    # What `camu tune` searches besides the learning rate and the server's momentum; see tunable.py.
    tunable: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _check_methods(cls)
        if "name" not in cls.__dict__:
            module = cls.__module__.partition("@")[0]  # what plugins add to a file's name
            cls.name = cls.__name__ if module == "__main__" else f"{module}:{cls.__name__}"

    @abstractmethod
    def plan(self, world: World) -> Plan:
        """Decide who trains with whom, how often, at what power, and how much each unit counts."""

    def pilot(self, pilot: Pilot, state: State) -> Plan | None:
        """Try something out before the first round; None keeps the plan.

        >>> class Tried(camu.schemes.FedSgd):
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

        >>> class Sampled(camu.schemes.FedSgd):
        ...     def select(self, view, state):       # five units, drawn without replacement
        ...         return view.random().numpy().choice(view.idle, 5, replace=False)
        >>> camu.simulate(world, Sampled()).history.final.units
        5
        """
        return view.idle

    def start(self, view: View, state: State, unit: int) -> Weights | None:
        """The model that a unit starts from; None is the global model.

        >>> class Restarted(camu.schemes.FedSgd):
        ...     def start(self, view, state, unit):  # two units go back to zero in every round
        ...         zero = 0 * view.weights.parameters
        ...         return view.weights.with_parameters(zero) if unit < 2 else None
        >>> camu.simulate(world, Restarted()).history.final.units
        20
        """
        return None

    def correction(self, view: View, state: State, unit: int) -> Float32 | None:
        """A vector (q,) that is added to every gradient of a unit; None adds nothing.

        >>> class Decayed(camu.schemes.FedSgd):
        ...     def correction(self, view, state, unit):     # weight decay at the round's start
        ...         return 0.01 * view.weights.parameters
        >>> camu.simulate(world, Decayed()).history.final.units
        20
        """
        return None

    def own_training(self, view: View, state: State, unit: int) -> OwnTraining | None:
        """What a unit trains for itself beside its update; None: nothing.

        `keep` is then given the parameters (q,) that it ends with, in place of `change`. Its steps
        are paid by `LocalRule.work`.

        >>> class Beside(camu.schemes.FedSgd):
        ...     def own_training(self, view, state, unit):   # a model that never meets others
        ...         own = view.kept.get(unit, view.weights.parameters)
        ...         return camu.schemes.OwnTraining(own, updates=1)
        ...     def keep(self, view, state, unit, change, kept):
        ...         return change
        >>> camu.simulate(world, Beside()).history.final.units
        20
        """
        return None

    def own_model(self, view: View, state: State, unit: int) -> Weights | None:
        """The model that a unit's devices use themselves; None: the global one.

        Metrics of devices (`training.metrics`, such as `mean-device-accuracy`) judge it.

        >>> class Halved(camu.schemes.FedSgd):
        ...     def own_model(self, view, state, unit):
        ...         return view.weights.with_parameters(view.weights.parameters / 2)
        >>> camu.simulate(world, Halved()).history.final.units
        20
        """
        return None

    def keep(
        self, view: View, state: State, unit: int, change: Float32, kept: AnyArray | None
    ) -> AnyArray | None:
        """The array that a unit keeps on its devices for its next rounds; None keeps nothing.

        `change` (q,) is what the unit's training did to the parameters: its own, exact, before the
        codec and the uplink. `kept` is what it kept so far, None at first. The result is in
        `view.kept[unit]` from the unit's arrival on, also for the aggregation it is part of.
        A unit whose update is lost or refused keeps what it had, and so does one that does not
        take part: what devices hold then fits what the server has aggregated. What a unit keeps
        is forgotten when `revise` or a new plan (`clustering.replan_every`) changes the members.
        `view` is the run at the unit's start, and so is `state`; on nodes that are not waited for,
        `state` is the present one.

        >>> class Sums(camu.schemes.FedSgd):
        ...     def keep(self, view, state, unit, change, kept):
        ...         return change if kept is None else kept + change
        ...     def correction(self, view, state, unit):     # each unit slows down as it goes
        ...         return 0.01 * view.kept[unit] if unit in view.kept else None
        >>> camu.simulate(world, Sums()).history.final.units
        20
        """
        return None

    def deadline(self, view: View, state: State) -> float | None:
        """When the server aggregates at the latest, on the virtual clock; None: it waits.

        >>> class Window(camu.schemes.FedSgd):
        ...     def deadline(self, view, state):
        ...         return view.seconds + 0.2
        >>> round(camu.simulate(world, Window()).history.final.virtual_seconds, 3)
        0.6
        """
        return None

    def ready(self, view: View, state: State) -> bool:
        """Whether the server aggregates now; by default when no unit is on its way any more.

        >>> class FirstThree(camu.schemes.FedSgd):
        ...     def ready(self, view, state):
        ...         return len(view.arrived) >= 3
        >>> camu.simulate(world, FirstThree()).history.final.units
        3
        """
        return not view.in_flight

    def aggregate(self, view: View, state: State) -> Weights:
        """The new global model; by default the model plus the mean update, weighted by the plan.

        >>> class Momentum(camu.schemes.FedSgd):
        ...     def aggregate(self, view, state):
        ...         mean = super().aggregate(view, state)
        ...         step = mean.parameters - view.weights.parameters
        ...         state["velocity"] = 0.7 * state.get("velocity", 0) + step
        ...         return mean.with_parameters(view.weights.parameters + state["velocity"])
        >>> camu.simulate(world, Momentum()).history.final.units
        20
        """
        if view.world.config.scheme.aggregation != "mean":
            return add_updates(view, view.shares)
        mean = MeanUpdate(view.weights)
        for arrival in sorted(view.arrived, key=lambda arrival: arrival.unit):
            mean.add(arrival.weight, arrival.update, arrival.buffers)
        return mean.added()

    def revise(self, view: View, state: State) -> Plan | None:
        """The plan from the next round on; None keeps it.

        >>> class Growing(camu.schemes.FedSgd):
        ...     def revise(self, view, state):       # one update more after every round
        ...         return view.plan.with_updates([1 + view.round] * 20)
        >>> camu.simulate(world, Growing()).plan.units[0].local_updates
        4
        """
        return None

    def finished(self, view: View, state: State) -> bool:
        """Whether the run ends after this round; by default the configuration decides.

        >>> class Brief(camu.schemes.FedSgd):
        ...     def finished(self, view, state):
        ...         return view.round == 2
        >>> camu.simulate(world, Brief()).history.stopped
        'scheme'
        """
        return False


_OUTDATED = {"adapt": "revise"}


def _check_methods(kind: type[Scheme]) -> None:
    """Refuse a method whose name is nearly that of the contract: it would never be called."""
    known = [name for name, value in vars(Scheme).items() if inspect.isfunction(value)]
    for name, value in vars(kind).items():
        if name.startswith("_") or name in known or not inspect.isfunction(value):
            continue
        close = [_OUTDATED[name]] if name in _OUTDATED else get_close_matches(name, known, 1, 0.8)
        if close:
            raise InputError(
                f"scheme {kind.__name__}: camu never calls a method {name}; did you mean "
                f"`{close[0]}`? Call a helper of your own _{name}"
            )


def waits_for_all(scheme: Scheme) -> bool:
    """Whether the server waits until no unit is on its way: neither `ready` nor `deadline`."""
    own = type(scheme)
    return own.ready is Scheme.ready and own.deadline is Scheme.deadline
