"""A run in progress: its state, what trains it, and what may watch it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from camu.arrays import AnyArray, Float32, Float64
from camu.learning.job import Evaluation, Job, Trained
from camu.learning.kernel import Provenance
from camu.learning.weights import Weights
from camu.planning.batteries import Batteries
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.schemes.view import Arrival, InFlight, Oracle, State
from camu.simulation.clock import Clock
from camu.simulation.history import History, Record
from camu.simulation.ledger import DeviceEnergy, Ledger
from camu.simulation.privacy import Releases
from camu.world import World

Outcome = TypeVar("Outcome")
EVALUATED_SHARES = (0.8, 0.85, 0.9, 0.95, 1.0)  # of the least joules and seconds of a run


@dataclass(eq=False)
class Update(Arrival):
    """A unit's update from its start to its aggregation; schemes see it once it has arrived.

    The uplink fills in what training gave. Arrays stay empty where the update was lost or refused,
    and are dropped once they are part of a sum.
    """

    leader: int = -1  # the device that sends it
    members: tuple[int, ...] = ()  # the devices that take part
    busy_seconds: float = 0.0
    # Why it does not arrive: "outages", "lost_packets", "truncated", "silent"; "": it does.
    lost: str = ""
    fault: str | None = None  # why the server refuses it
    memory: Float32 | None = None  # what the sender's codec keeps for its next update
    change: Float32 | None = None  # of the unit's own parameters, exact, where it is asked for
    kept: AnyArray | None = None  # what the unit keeps from its arrival on
    states: tuple[Float32 | None, ...] = ()  # what the members' optimisers keep, where they do
    squares: float = math.nan  # of what it sends, together with others; nan: not known

    @property
    def usable(self) -> bool:
        """Whether it counts once it has arrived."""
        return not self.lost and self.fault is None

    @cached_property
    def visible(self) -> InFlight:
        """The part that a scheme may see before it arrives."""
        return InFlight(self.unit, self.round, self.started_seconds)


def mean_steps(arrived: Sequence[Update], plan: Plan) -> float:
    """Local steps of the mean update, weighted as the updates are."""
    units = [plan.units[one.unit] for one in arrived]
    total = sum(one.weight for one in arrived)
    steps = (unit.local_updates * unit.rule.steps for unit in units)
    own = sum(one.weight * n for one, n in zip(arrived, steps, strict=True))
    return own / total if total > 0 else 0.0


@dataclass(frozen=True)
class Jobs:
    """The jobs of a round, made as they are needed: a correction is as large as the model."""

    make: Callable[[int, Unit], Job]
    units: Mapping[int, Unit]

    def __len__(self) -> int:
        return len(self.units)

    def __iter__(self) -> Iterator[Job]:
        return (self.make(number, unit) for number, unit in self.units.items())


@dataclass(eq=False)
class Run:
    """A run in progress: what callbacks see, and what a checkpoint holds.

    Joules are charged when a unit starts, so that updates on their way are paid for too; those of
    idle power when its round ends.
    """

    world: World
    plan: Plan
    weights: Weights
    clock: Clock
    ledger: Ledger
    batteries: Batteries
    round: int = 0
    in_flight: dict[int, Update] = field(default_factory=dict)
    state: State = field(default_factory=dict)  # owned by the scheme
    memory: dict[int, Float32] = field(default_factory=dict)  # of codecs, by sending device
    kept: dict[int, AnyArray] = field(default_factory=dict)  # by unit: what `Scheme.keep` returned
    optimisers: dict[int, Float32] = field(default_factory=dict)  # by device: what they keep
    releases: Releases = field(default_factory=dict)  # of each device, with noise for privacy
    velocity: Float64 | None = None  # of the server's momentum
    average: Weights | None = None  # running average of the global model
    records: list[Record] = field(default_factory=list)
    absent: tuple[int, ...] = ()  # devices that were missing when units last started
    revised: bool = False  # whether the plan is no longer the one the run began with
    stopped: str | None = None
    notes: list[str] = field(default_factory=list)  # what happened to the run besides its rounds

    @classmethod
    def new(cls, world: World, plan: Plan, initial: Weights) -> Run:
        """A run before its first round."""
        clock = Clock(in_turn=plan.access == "tdma")
        ledger = Ledger.new(world.devices.count)
        return cls(world, plan, initial, clock, ledger, Batteries(world))

    @property
    def device_joules(self) -> Float64:
        """What each device has spent so far, read-only (K,)."""
        return self.ledger.device_joules

    def move_to(self, weights: Weights) -> None:
        """End a round with this model, or beyond it where the server has momentum."""
        config = self.world.config
        if config.training.server_momentum and weights is not self.weights:
            here = self.weights.parameters.astype(np.float64)
            before = 0.0 if self.velocity is None else self.velocity
            self.velocity = config.training.server_momentum * before + (weights.parameters - here)
            weights = weights.with_parameters(here + self.velocity)
        if past := config.run.server_average:
            known = self.average or self.weights
            self.average = replace(
                weights,
                parameters=past * known.parameters + (1 - past) * weights.parameters,
                buffers=past * known.buffers + (1 - past) * weights.buffers,
            )
        self.weights = weights
        self.round += 1

    def visible(self) -> dict[int, InFlight]:
        """The units on their way, as a scheme may see them."""
        return {unit: update.visible for unit, update in self.in_flight.items()}

    def stop(self, reason: str) -> None:
        """End the run after this round."""
        self.stopped = self.stopped or reason

    @property
    def has_all_rounds(self) -> bool:
        """Whether it has run for `run.rounds`, and for the least joules and the like if set."""
        enough = all(spent >= least for spent, least in self._least_costs())
        return self.round >= self.world.config.run.rounds and enough

    @property
    def expected_rounds(self) -> int:
        """How many rounds it will have, if the rounds to come cost what those so far did."""
        shares = [spent / least for spent, least in self._least_costs() if 0 < spent < least]
        needed = math.ceil(self.round / min(shares)) if shares else 0
        return max(self.world.config.run.rounds, self.round + (not self.has_all_rounds), needed)

    def _least_costs(self) -> list[tuple[float, float]]:
        """What has been spent, and the least that is to be, of each cost with such a limit."""
        limits = self.world.config.run
        costs = (
            (self.ledger.joules, limits.min_joules),
            (self.clock.now_seconds, limits.min_virtual_seconds),
            (self.ledger.megabytes, limits.min_megabytes),
        )
        return [(spent, least) for spent, least in costs if least is not None]

    @property
    def passes_share(self) -> bool:
        """Whether this round passes 80, 85, ..., 100 % of the least joules and the like."""
        if not self.records:
            return False
        limits, before = self.world.config.run, self.records[-1]
        spent = (
            (limits.min_joules, before.total_joules, self.ledger.joules),
            (limits.min_virtual_seconds, before.virtual_seconds, self.clock.now_seconds),
            (limits.min_megabytes, before.megabytes, self.ledger.megabytes),
        )
        return any(
            least is not None and earlier < share * least <= now
            for least, earlier, now in spent
            for share in EVALUATED_SHARES
        )

    def check_budgets(self, record: Record) -> None:
        """Stop where the configuration says so."""
        limits = self.world.config.run
        if limits.target is not None and record.reached(limits.target):
            self.stop("target")
        for reason, value, limit in (
            ("energy budget", record.total_joules, limits.max_joules),
            ("time budget", record.virtual_seconds, limits.max_virtual_seconds),
        ):
            if limit is not None and value >= limit:
                self.stop(reason)
        if self.has_all_rounds:
            self.stop("rounds")

    def history(self) -> History:
        """What has happened so far."""
        devices = DeviceEnergy.of(self.world.devices.ids, self.ledger, self.batteries)
        stopped, notes = self.stopped or "running", tuple(self.notes)
        return History(tuple(self.records), self.weights.sha256(), stopped, notes, devices)


class Callback:
    """A watcher of a run; override the methods that you need.

    `run` has the world, the plan, the weights, the number of the round and the records so far.

    >>> class Loudest(camu.Callback):
    ...     def on_round(self, run, record):
    ...         if record.total_joules > 0.5:
    ...             run.stop("half a joule")
    >>> camu.simulate(world, camu.schemes.FedSgd(), [Loudest()]).history.stopped
    'half a joule'
    """

    def on_start(self, run: Run) -> None:
        """Before the first round, or after a resume."""

    def on_round(self, run: Run, record: Record) -> None:
        """After each round; `run.stop(reason)` ends the run."""

    def on_end(self, run: Run, history: History) -> None:
        """After the last round, and also when the run fails; `history.stopped` says which."""


class Trainer(Protocol):
    """What trains the units of a round: the engine, or nodes of a deployment."""

    @property
    def initial(self) -> Weights:
        """The weights that the run starts from."""
        ...

    @property
    def provenance(self) -> Provenance:
        """The kernel, device and libraries that decide the last bits of what it trains."""
        ...

    @property
    def oracle(self) -> Oracle | None:
        """Exact losses and gradients, where the devices' data can be read."""
        ...

    def iterate(
        self,
        start: Weights | Sequence[Weights],
        jobs: Iterable[Job],
        round_number: int,
        deliver: Callable[[int, Trained], Outcome],
    ) -> Iterator[Outcome | None]:
        """The outcome of each job, in the order of the jobs; None: nothing came back.

        `start` is one model for all jobs, or one for each.
        `deliver(number, trained)` makes the outcome of a job, by its number from 0 and its trained
        model. It is called where the job was trained.
        """
        ...

    def evaluate(self, weights: Weights) -> Evaluation:
        """The loss and the metrics on the test samples."""
        ...

    def evaluate_devices(
        self, weights: Weights, own: Mapping[int, Weights]
    ) -> list[tuple[float, float]]:
        """Accuracy and loss of each device on test samples of its own, by its own model if any."""
        ...


@runtime_checkable
class OnNodes(Protocol):
    """A trainer whose units run on real nodes, so that time passes and nodes come and go."""

    @property
    def fault_kinds(self) -> tuple[str, ...]:
        """The kinds of faults that only nodes meet."""
        ...

    def take_faults(self) -> Mapping[str, int]:
        """The faults since the last call, by kind."""
        ...

    def wall_seconds(self) -> float:
        """The time on a clock that only goes forward."""
        ...

    def take_nodes(self) -> dict[str, Any]:
        """What happened on nodes since the last call, for the record of the round."""
        ...
