"""The one loop: units train, send over the channel, and are aggregated, on a virtual clock.

A synchronous round is the case in which the server waits for all; a scheme that is ready earlier
makes the same loop asynchronous. Everything optional is a callback.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from camu.arrays import Float32
from camu.errors import CamuError
from camu.learning.job import Job, Trained
from camu.learning.weights import Weights
from camu.planning.costs import Costs, unit_costs
from camu.planning.plan import Plan, Unit
from camu.schemes.contract import Arrival, PilotRun, Scheme, View
from camu.schemes.fedavg import FedAvg
from camu.seeding import derive
from camu.simulation.channel import in_outage, receive, refuse
from camu.simulation.faults import Faults
from camu.simulation.history import FAULTS, Record
from camu.simulation.hooks import Hooks, check_trainer, encode
from camu.simulation.run import Callback, Flight, Run, Trainer

log = logging.getLogger(__name__)


def run_rounds(
    run: Run, scheme: Scheme, trainer: Trainer, callbacks: Sequence[Callback] = ()
) -> None:
    """Run rounds until the configured end, from the first or from where a checkpoint left off."""
    check_trainer(scheme, trainer)
    loop = Loop(run, scheme, trainer)
    try:
        if not run.records:
            loop.hooks.pilot(_Pilot(loop), run)
            loop.record(0, loop.no_faults(), ())
        run.check_budgets(run.records[-1])  # a resumed run may have reached its end already
        loop.hooks.finished(loop.view(), run)
        for callback in callbacks:
            callback.on_start(run)
        while run.stopped is None:
            record = loop.round()
            run.check_budgets(record)
            for callback in callbacks:
                callback.on_round(run, record)
    except BaseException:
        run.stopped = "failed"
        for callback in callbacks:
            callback.on_end(run, run.history())
        raise
    for callback in callbacks:
        callback.on_end(run, run.history())


class Loop:
    """The steps of a round; all state that outlives a round is in the run."""

    def __init__(self, run: Run, scheme: Scheme, trainer: Trainer) -> None:
        self.run, self.scheme, self.trainer = run, scheme, trainer
        self.hooks = Hooks(scheme, run.state)
        self.faults = Faults.of(run.world)
        self.config = run.world.config
        self.before = run.weights

    def no_faults(self) -> dict[str, int]:
        """A count of zero for every kind of fault."""
        return dict.fromkeys((*FAULTS, *self.trainer.fault_kinds), 0)

    def view(self, arrived: Sequence[Arrival] = ()) -> View:
        """The run as the scheme may see it now."""
        run = self.run
        joules = run.device_joules.view()
        joules.setflags(write=False)
        return View(
            world=run.world,
            plan=run.plan,
            round=run.round,
            seconds=run.clock.now_seconds,
            joules=run.compute_joules + run.transmit_joules,
            device_joules=joules,
            weights=run.weights,
            before=self.before,
            in_flight=MappingProxyType({u: flight.visible for u, flight in run.flights.items()}),
            arrived=tuple(arrived),
            oracle=self.trainer.oracle if self.scheme.uses_oracle else None,
        )

    def round(self) -> Record:
        """Start the selected units, wait until the server is ready, aggregate, record."""
        counts = self.no_faults()
        run = self.run
        self.before = run.weights
        self.launch(counts)
        arrived, waiting = self.wait(counts)
        if arrived:
            run.weights = self.hooks.aggregate(self.view(arrived))
        run.round += 1
        self.hooks.revise(self.view(arrived), run)
        self.hooks.finished(self.view(), run)
        return self.record(len(arrived), counts, waiting)

    def launch(self, counts: dict[str, int]) -> None:
        """Start the units that the scheme selects, from the present weights."""
        run, world = self.run, self.run.world
        view = self.view()
        attendance = self.faults.attend(run.plan, self.hooks.select(view), run.round)
        counts["absent"] += attendance.absent
        counts["leader_failures"] += attendance.leader_failures
        units = attendance.units
        if units:
            gain = world.links.uplink_gain * world.links.fading(run.round)
            uplinks = len(units) + len(run.flights)
            costs = unit_costs(
                world,
                [unit.members for unit in units.values()],
                [unit.leader for unit in units.values()],
                [unit.power_watts for unit in units.values()],
                [unit.payload_bits for unit in units.values()],
                run.plan.parameters,
                rules=[unit.rule for unit in units.values()],
                uplink_gain=gain,
                uplinks=uplinks,
            )
            noise_watts = world.links.share(uplinks).noise_watts
            jobs = [self.job(view, number, unit) for number, unit in units.items()]
            starts = [self.hooks.start(view, number) for number in units]
            shared = all(start is run.weights for start in starts)
            begin = run.weights if shared else starts
            results = self.trainer.iterate(begin, jobs, run.round)
            first = 0
            for index, (number, trained) in enumerate(zip(units, results, strict=True)):
                unit = units[number]
                members = slice(first, first + len(unit.members))
                first = members.stop
                if trained is None:
                    continue
                snr = unit.power_watts * float(gain[unit.leader]) / noise_watts
                moved = trained.weights.parameters - starts[index].parameters
                update = self.send(unit, moved, snr, attendance.corrupt.get(number))
                counts["outages"] += update is None
                self.charge(unit, costs, index, members)
                self.take_off(number, unit, costs, index, trained, update, starts[index])
        for kind, number in self.trainer.take_faults().items():
            counts[kind] += number

    def job(self, view: View, number: int, unit: Unit) -> Job:
        """The training of one unit in this round."""
        return Job(
            unit.members,
            unit.member_weights,
            unit.local_updates,
            rule=unit.rule,
            correction=self.hooks.correction(view, number),
        )

    def charge(self, unit: Unit, costs: Costs, index: int, members: slice) -> None:
        """Book the energy of a unit's round, in total and per device."""
        run, updates = self.run, unit.local_updates
        per_update = costs.per_update(index)
        run.compute_joules += updates * per_update.compute_joules
        uplink_joules = float(costs.uplink_joules[index])
        run.transmit_joules += updates * per_update.gather_joules + uplink_joules
        devices = list(unit.members)
        run.device_joules[devices] += updates * (
            costs.member_compute_joules[members] + costs.member_gather_joules[members]
        )
        run.device_joules[unit.leader] += uplink_joules

    def take_off(
        self,
        number: int,
        unit: Unit,
        costs: Costs,
        index: int,
        trained: Trained,
        update: Float32 | None,
        start: Weights,
    ) -> None:
        """Start the transmission of a unit's update."""
        run = self.run
        per_update, air = costs.per_update(index), float(costs.uplink_seconds[index])
        updates = unit.local_updates
        ready = updates * per_update.compute_seconds + updates * per_update.gather_seconds
        run.clock.start(number, ready, air)
        run.flights[number] = Flight(
            unit=number,
            round=run.round,
            started_seconds=run.clock.now_seconds,
            busy_seconds=ready + air,
            loss=trained.loss,
            update=update,
            buffers=trained.weights.buffers - start.buffers,
            start=start,
            trained=trained.weights if self.scheme.uses_oracle else None,
        )

    def send(self, unit: Unit, update: Float32, snr: float, corrupt: str | None) -> Float32 | None:
        """What arrives of a unit's update; None if the uplink fails."""
        run, radio = self.run, self.config.radio
        if in_outage(snr, radio.outage_snr_db):
            return None
        if unit.update_scale != 1.0:
            update = np.float32(unit.update_scale) * update
        memory = run.memory.pop(unit.leader, None)
        stream = derive(run.world.seed, "codec", run.round, unit.leader)
        update, kept = encode(unit, update, memory, stream)
        if kept is not None:
            run.memory[unit.leader] = kept
        if corrupt == "nan":
            return np.full_like(update, np.nan)
        if corrupt == "huge":
            return update + np.float32(1e30)
        stream = derive(run.world.seed, "noise", run.round, unit.leader)
        return receive(update, snr, radio.uplink, stream)

    def wait(self, counts: dict[str, int]) -> tuple[list[Arrival], tuple[float, ...]]:
        """Collect arrivals until the scheme is ready or its deadline has come.

        Returns the usable ones, and for each unit that arrived how long it was idle meanwhile.
        """
        run = self.run
        deadline = self.hooks.deadline(self.view())
        arrived: list[Arrival] = []
        landed: list[Flight] = []
        while run.flights and not self.hooks.ready(self.view(arrived)):
            unit = run.clock.next_arrival(deadline)
            if unit is None:
                break
            flight = run.flights.pop(unit)
            landed.append(flight)
            arrival = self.land(flight, counts)
            if arrival is not None:
                arrived.append(arrival)
        if deadline is not None and not run.flights and not landed:
            run.clock.wait_until(deadline)  # no unit started, but time passes
        waiting = tuple(
            max(0.0, run.clock.now_seconds - flight.started_seconds - flight.busy_seconds)
            for flight in sorted(landed, key=lambda flight: flight.unit)
        )
        return arrived, waiting

    def land(self, flight: Flight, counts: dict[str, int]) -> Arrival | None:
        """The arrival of a flight, or None if it cannot be used."""
        run = self.run
        if flight.update is None:
            return None
        limit = self.config.training.max_update_norm
        if fault := refuse(flight.update, flight.buffers, limit):
            counts["refused"] += 1
            log.warning("round %d: unit %d is refused: %s", run.round + 1, flight.unit, fault)
            return None
        for array in (flight.update, flight.buffers):
            array.setflags(write=False)
        return Arrival(
            unit=flight.unit,
            weight=run.plan.units[flight.unit].weight,
            staleness=run.round - flight.round,
            seconds=run.clock.now_seconds - flight.started_seconds,
            arrived_seconds=run.clock.now_seconds,
            loss=flight.loss,
            update=flight.update,
            buffers=flight.buffers,
            start=flight.start,
            trained=flight.trained,
        )

    def record(self, used: int, counts: dict[str, int], waiting: tuple[float, ...]) -> Record:
        """Evaluate when it is time, and note what happened."""
        run, limits = self.run, self.config.run
        ends = run.stopped is not None or run.round >= limits.rounds
        due = run.round % limits.eval_every == 0 or ends
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


class _Pilot:
    """Trains before the first round, and charges it to the run."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.world, self.plan, self.weights = loop.run.world, loop.run.plan, loop.run.weights

    def train(
        self,
        plan: Plan,
        rounds: int,
        weights: Weights | None = None,
        scheme: Scheme | None = None,
    ) -> PilotRun:
        """Train with a plan from the initial model or another one."""
        loop, whole = self._loop, self._loop.run
        run = Run.new(self.world, plan, weights or self.weights)
        trial = Loop(run, scheme or FedAvg(), loop.trainer)
        losses = []
        for _ in range(rounds):
            counts = trial.no_faults()
            trial.launch(counts)
            arrived, _ = trial.wait(counts)
            if not arrived:
                raise CamuError(f"scheme {loop.scheme.name}: no update of its pilot arrived")
            run.weights = trial.hooks.aggregate(trial.view(arrived))
            run.round += 1
            share = sum(arrival.weight for arrival in arrived)
            losses.append(sum(a.weight * a.loss for a in arrived) / share)
        whole.clock.wait_until(whole.clock.now_seconds + run.clock.now_seconds)
        whole.compute_joules += run.compute_joules
        whole.transmit_joules += run.transmit_joules
        whole.device_joules += run.device_joules
        joules = run.compute_joules + run.transmit_joules
        return PilotRun(run.weights, tuple(losses), run.clock.now_seconds, joules)
