"""The one loop: units train, send over the channel, and are aggregated, on a virtual clock.

A synchronous round is the case in which the server waits for all; a scheme whose `server` is ready
earlier makes the same loop asynchronous. Everything optional is a callback.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from camu.data import Federation
from camu.errors import InputError
from camu.learning.engine import Engine, Job
from camu.learning.weights import Weights
from camu.planning.costs import unit_costs
from camu.schemes import Plan, Scheme
from camu.schemes.adapting import View
from camu.schemes.server import Server, WaitForAll
from camu.seeding import derive
from camu.simulation.channel import in_outage, receive
from camu.simulation.clock import Clock
from camu.simulation.engines import build_engine
from camu.simulation.faults import Faults, Part
from camu.simulation.history import FAULTS, History, Record
from camu.world import World

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Flight:
    """A unit's update between its start and its aggregation."""

    unit: int
    round: int  # aggregations done when it started
    started_seconds: float
    busy_seconds: float
    compute_joules: float
    transmit_joules: float
    update: Floats | None  # None: lost in an outage
    buffers: Floats  # change of the buffers, noise-free


@dataclass(eq=False)
class Run:
    """A run in progress: what callbacks see, and what a checkpoint holds."""

    world: World
    plan: Plan
    weights: Weights
    clock: Clock
    round: int = 0
    compute_joules: float = 0.0
    transmit_joules: float = 0.0
    flights: dict[int, Flight] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    stopped: str | None = None

    def stop(self, reason: str) -> None:
        """End the run after this round."""
        self.stopped = self.stopped or reason


class Callback:
    """Something that watches a run; override what you need."""

    def on_start(self, run: Run) -> None:
        """Before the first round, or after a resume."""

    def on_round(self, run: Run, record: Record) -> None:
        """After each round; `run.stop(reason)` ends the run."""

    def on_end(self, run: Run, history: History) -> None:
        """After the last round."""


class Trainer(Protocol):
    """What trains the units of a round: the engine here, or nodes elsewhere."""

    @property
    def initial(self) -> Weights:
        """The weights that the run starts from."""
        ...

    def iterate(
        self, start: Weights, jobs: Sequence[Job], round_number: int
    ) -> Iterator[Weights | None]:
        """The trained weights of each job, in the order of the jobs; None: nothing came back."""
        ...

    def evaluate(self, weights: Weights) -> tuple[float, float]:
        """Accuracy and loss on the test samples."""
        ...


def simulate(
    world: World,
    scheme: Scheme,
    callbacks: Sequence[Callback] = (),
    resume: Run | None = None,
) -> History:
    """Run a scheme in a world until the configured end; the same inputs give the same bits."""
    federation = world.federation
    if not isinstance(federation, Federation):
        raise InputError("fleet.file: a fleet file has no training data, so it can only be planned")
    with build_engine(world, federation) as engine:
        return conduct(world, scheme, engine, callbacks, resume)


def conduct(
    world: World,
    scheme: Scheme,
    trainer: Trainer,
    callbacks: Sequence[Callback] = (),
    resume: Run | None = None,
    noticed: dict[str, int] | None = None,
) -> History:
    """The loop, whatever trains.

    `noticed` counts by kind the faults that the trainer meets; each round takes them over into its
    record and sets them back to zero.
    """
    server: Server = getattr(scheme, "server", WaitForAll())
    adapt: Callable[[View], list[int]] | None = getattr(scheme, "adapt", None)
    if adapt is not None and not isinstance(trainer, Engine):
        raise InputError(
            f"scheme.name = {world.config.scheme.name}: it adapts by gradients on all data, which "
            "only a simulation has; choose another scheme"
        )
    run = resume or new_run(world, scheme.plan(world), trainer.initial)
    loop = _Loop(run, trainer, server, Faults.of(world), adapt, {} if noticed is None else noticed)
    if resume is None:
        loop.record(0, loop.no_faults(), ())
    for callback in callbacks:
        callback.on_start(run)
    while run.stopped is None:
        record = loop.round()
        check_budgets(run, record)
        for callback in callbacks:
            callback.on_round(run, record)
    history = History(tuple(run.records), run.weights.sha256(), run.stopped)
    for callback in callbacks:
        callback.on_end(run, history)
    return history


def new_run(world: World, plan: Plan, initial: Weights) -> Run:
    """A run before its first round."""
    return Run(world, plan, initial, Clock(in_turn=plan.access == "tdma"))


def check_budgets(run: Run, record: Record) -> None:
    """Stop where the configuration says so."""
    limits = run.world.config.run
    if (
        limits.target_accuracy is not None
        and record.accuracy is not None
        and record.accuracy >= limits.target_accuracy
    ):
        run.stop("target accuracy")
    if limits.max_joules is not None and record.total_joules >= limits.max_joules:
        run.stop("energy budget")
    if (
        limits.max_virtual_seconds is not None
        and record.virtual_seconds >= limits.max_virtual_seconds
    ):
        run.stop("time budget")
    if record.round >= limits.rounds:
        run.stop("rounds")


def refuse(update: Floats, buffers: Floats, limit: float) -> str | None:
    """Why an update must not touch the model, or None."""
    if not (np.isfinite(update).all() and np.isfinite(buffers).all()):
        return "it has entries that are not finite"
    norm = float(np.linalg.norm(update.astype(np.float64)))
    if norm > limit:
        return f"its norm {norm:.3g} exceeds training.max_update_norm = {limit:g}"
    return None


class _Loop:
    """The steps of a round; all state that outlives a round is in the run."""

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        server: Server,
        faults: Faults,
        adapt: Callable[[View], list[int]] | None,
        noticed: dict[str, int],
    ) -> None:
        self.run, self.trainer, self.server, self.faults = run, trainer, server, faults
        self.adapt, self.noticed = adapt, noticed
        self.trained: dict[int, Weights] = {}  # kept only for a scheme that adapts
        self.config = run.world.config

    def no_faults(self) -> dict[str, int]:
        """A count of zero for every kind of fault."""
        return dict.fromkeys((*FAULTS, *self.noticed), 0)

    def round(self) -> Record:
        """Start idle units, wait until the server is ready, aggregate, record."""
        counts = self.no_faults()
        self.launch(counts)
        arrived: list[Flight] = []
        run = self.run
        while run.flights and not self.server.ready(len(arrived), len(run.flights)):
            flight = run.flights.pop(run.clock.next_arrival())
            run.compute_joules += flight.compute_joules
            run.transmit_joules += flight.transmit_joules
            arrived.append(flight)
        waiting = tuple(
            max(0.0, run.clock.now_seconds - flight.started_seconds - flight.busy_seconds)
            for flight in sorted(arrived, key=lambda flight: flight.unit)
        )
        before = run.weights
        used = self.aggregate(arrived, counts)
        run.round += 1
        if self.adapt is not None:
            self.replan(self.adapt, before, arrived)
        return self.record(used, counts, waiting)

    def replan(
        self, adapt: Callable[[View], list[int]], before: Weights, arrived: list[Flight]
    ) -> None:
        """Let the scheme change the local updates from the next round on."""
        run = self.run
        assert isinstance(self.trainer, Engine)
        view = View(
            world=run.world,
            plan=run.plan,
            engine=self.trainer,
            round=run.round,
            joules=run.compute_joules + run.transmit_joules,
            before=before,
            after=run.weights,
            trained={flight.unit: self.trained.pop(flight.unit) for flight in arrived},
        )
        run.plan = run.plan.with_updates(adapt(view))

    def launch(self, counts: dict[str, int]) -> None:
        """Units that are not on their way start from the present weights."""
        run, world = self.run, self.run.world
        idle = [unit for unit in range(len(run.plan.units)) if unit not in run.flights]
        attendance = self.faults.attend(run.plan, idle, run.round)
        counts["absent"] += attendance.absent
        counts["leader_failures"] += attendance.leader_failures
        parts = attendance.parts
        if not parts:
            return
        gain = world.links.uplink_gain * world.links.fading(run.round)
        units = [run.plan.units[part.unit] for part in parts]
        costs = unit_costs(
            world,
            [part.members for part in parts],
            [part.leader for part in parts],
            [unit.local_updates for unit in units],
            [unit.power_watts for unit in units],
            run.plan.payload_bits,
            gain,
        )
        jobs = [
            Job(part.members, part.member_weights, unit.local_updates)
            for part, unit in zip(parts, units, strict=True)
        ]
        results = self.trainer.iterate(run.weights, jobs, run.round)
        band = world.links.share(len(parts))
        for index, (part, unit, trained) in enumerate(zip(parts, units, results, strict=True)):
            if trained is None:
                continue
            snr = unit.power_watts * float(gain[part.leader]) / band.noise_watts
            if self.adapt is not None:
                self.trained[part.unit] = trained
            update, lost = self.send(part, trained, snr)
            counts["outages"] += lost
            cost = costs.of(index)
            ready = cost["compute_seconds"] + cost["gather_seconds"]
            run.clock.start(part.unit, ready, cost["uplink_seconds"])
            run.flights[part.unit] = Flight(
                unit=part.unit,
                round=run.round,
                started_seconds=run.clock.now_seconds,
                busy_seconds=ready + cost["uplink_seconds"],
                compute_joules=cost["compute_joules"],
                transmit_joules=cost["gather_joules"] + cost["uplink_joules"],
                update=update,
                buffers=trained.buffers - run.weights.buffers,
            )
        for kind, number in self.noticed.items():
            counts[kind] += number
            self.noticed[kind] = 0

    def send(self, part: Part, trained: Weights, snr: float) -> tuple[Floats | None, bool]:
        """What arrives of a unit's update, and whether the uplink failed."""
        radio = self.config.radio
        if in_outage(snr, radio.outage_snr_db):
            return None, True
        update = trained.parameters - self.run.weights.parameters
        scale = self.run.plan.units[part.unit].update_scale
        if scale != 1.0:
            update = np.float32(scale) * update
        if part.corrupt == "nan":
            return np.full_like(update, np.nan), False
        if part.corrupt == "huge":
            return update + np.float32(1e30), False
        stream = derive(self.run.world.seed, "noise", self.run.round, part.leader)
        return receive(update, snr, radio.uplink, stream), False

    def aggregate(self, arrived: list[Flight], counts: dict[str, int]) -> int:
        """Add the accepted updates, weighted and in the order of units; returns how many."""
        run = self.run
        accepted = []
        for flight in sorted(arrived, key=lambda flight: flight.unit):
            if flight.update is None:
                continue
            limit = self.config.training.max_update_norm
            if fault := refuse(flight.update, flight.buffers, limit):
                counts["refused"] += 1
                log.warning("round %d: unit %d is refused: %s", run.round + 1, flight.unit, fault)
                continue
            late = self.server.discount(run.round - flight.round)
            accepted.append((run.plan.units[flight.unit].weight * late, flight))
        total = sum(weight for weight, _ in accepted)
        if total <= 0:  # nothing arrived: the model stays
            return 0
        parameters = run.weights.parameters.astype(np.float64)
        buffers = run.weights.buffers.astype(np.float64)
        for weight, flight in accepted:
            assert flight.update is not None
            parameters += (weight / total) * flight.update.astype(np.float64)
            buffers += (weight / total) * flight.buffers.astype(np.float64)
        run.weights = replace(
            run.weights,
            parameters=parameters.astype(np.float32),
            buffers=buffers.astype(np.float32),
        )
        return len(accepted)

    def record(self, used: int, counts: dict[str, int], waiting: tuple[float, ...]) -> Record:
        """Evaluate when it is time, and note what happened."""
        run, limits = self.run, self.config.run
        due = run.round % limits.eval_every == 0 or run.round >= limits.rounds
        accuracy, loss = self.trainer.evaluate(run.weights) if due else (None, None)
        record = Record(
            round=run.round,
            accuracy=accuracy,
            # A model that has blown up has no loss; nan is not JSON.
            loss=loss if loss is not None and math.isfinite(loss) else None,
            virtual_seconds=run.clock.now_seconds,
            joules={"compute": run.compute_joules, "transmit": run.transmit_joules},
            units=used,
            faults=counts,
            waiting_seconds=waiting,
        )
        run.records.append(record)
        return record
