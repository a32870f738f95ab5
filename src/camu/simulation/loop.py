"""A round: units train, send over the channel, and are aggregated, on a virtual clock.

A synchronous round is the case in which the server waits for all; a scheme that is ready earlier
makes the same loop asynchronous.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
from camu.learning.job import Job
from camu.learning.weights import Weights
from camu.planning.batteries import spending_of
from camu.planning.costs import Costs, Spending
from camu.planning.rotation import rotated
from camu.planning.slow_down import full_speed_costs
from camu.planning.unit import Unit
from camu.schemes.contract import Arrival, InFlight, Scheme, View, waits_for_all
from camu.schemes.mean import MeanUpdate
from camu.simulation.delivery import Delivery, Received, delivery_of
from camu.simulation.faults import Attendance, Faults
from camu.simulation.history import FAULTS, Record
from camu.simulation.hooks import Hooks
from camu.simulation.run import Flight, OnNodes, Run, Trainer

log = logging.getLogger(__name__)

Landed = Flight | Arrival  # the scheme sees arrivals; flights are in a sum already


@dataclass(frozen=True, eq=False)
class Departure:
    """The units that start in a round, in order: what they cost, and where they start from."""

    units: list[Unit]
    costs: Costs
    updates: Float64  # local updates
    starts: list[Weights]
    delivery: Delivery


@dataclass(frozen=True)
class _Jobs:
    """The jobs of a round, made as they are needed: a correction is as large as the model."""

    make: Callable[[int, Unit], Job]
    units: Mapping[int, Unit]

    def __len__(self) -> int:
        return len(self.units)

    def __iter__(self) -> Iterator[Job]:
        return (self.make(number, unit) for number, unit in self.units.items())


class Loop:
    """The steps of a round; all state that outlives a round is in the run."""

    def __init__(self, run: Run, scheme: Scheme, trainer: Trainer) -> None:
        self.run, self.scheme, self.trainer = run, scheme, trainer
        self.hooks = Hooks(scheme, run.state)
        self.faults = Faults.of(run.world)
        self.config = run.world.config
        self.before = run.weights
        self.nodes = trainer if isinstance(trainer, OnNodes) else None
        known = run.records[-1].wall_seconds if run.records else None
        self.wall_zero = 0.0 if self.nodes is None else self.nodes.wall_seconds() - (known or 0.0)
        # Whether updates are added up as they come, so that none is kept.
        plain = self.config.scheme.aggregation == "mean"
        self.waits_for_all = waits_for_all(scheme)
        self.takes_mean = plain and not self.hooks.shows_arrivals
        # The last answer of `price`: what it depends on, what the ids in that belong to, the costs.
        self.priced: tuple[tuple[object, ...], object, Costs] | None = None
        self.spending: tuple[Costs, Spending] | None = None  # of these costs

    def no_faults(self) -> dict[str, int]:
        """A count of zero for every kind of fault."""
        return dict.fromkeys((*FAULTS, *self.trainer.fault_kinds), 0)

    def view(
        self, arrived: Sequence[Arrival] = (), in_flight: dict[int, InFlight] | None = None
    ) -> View:
        """The run as the scheme may see it now."""
        run = self.run
        left = run.batteries.charge_joules.view()
        left.setflags(write=False)
        return View(
            world=run.world,
            plan=run.plan,
            round=run.round,
            seconds=run.clock.now_seconds,
            joules=run.ledger.joules,
            device_joules=run.device_joules,
            battery_joules=left,
            weights=run.weights,
            before=self.before,
            in_flight=MappingProxyType(run.visible() if in_flight is None else in_flight),
            arrived=tuple(arrived),
            oracle=self.trainer.oracle if self.scheme.uses_oracle else None,
        )

    def round(self) -> Record:
        """A round, what the scheme changes after it, and its record."""
        counts = self.no_faults()
        self.before = self.run.weights
        landed, waiting = self.advance(counts)
        arrived = [one for one in landed if isinstance(one, Arrival)]
        self.hooks.revise(self.view(arrived), self.run)
        self.rotate()
        self.hooks.finished(self.view(), self.run)
        return self.record(len(landed), counts, waiting)

    def advance(self, counts: dict[str, int]) -> tuple[Sequence[Landed], tuple[float, ...]]:
        """Start the selected units, wait until the server is ready, aggregate.

        Returns what was aggregated, and how long units were idle.
        """
        if self.takes_mean:
            return self.mean_round(counts)
        self.launch(counts)
        arrived, waiting = self.wait(counts)
        self.run.move_to(self.hooks.aggregate(self.view(arrived)) if arrived else self.run.weights)
        return arrived, waiting

    def mean_round(self, counts: dict[str, int]) -> tuple[list[Flight], tuple[float, ...]]:
        """Start the selected units, wait for all, and take the mean; no update is kept.

        Returns the usable flights, in the order of their arrival, and how long units were idle.
        """
        run = self.run
        mean = MeanUpdate(run.weights)
        self.launch(counts, mean)
        landed = []
        while (unit := run.clock.next_arrival()) is not None:
            landed.append(run.flights.pop(unit))
            self.count_refused(landed[-1], counts)
        run.move_to(mean.added())
        return [flight for flight in landed if flight.usable], self.waiting(landed)

    def launch(self, counts: dict[str, int], mean: MeanUpdate | None = None) -> None:
        """Start the units that the scheme selects, from the present weights.

        With a mean, their updates are added to it and dropped.
        """
        self.faults.wait_for_devices(self.run)
        view = self.view()
        there = self.faults.attend(view.plan, self.hooks.select(view), view.round, view.seconds)
        counts["absent"] += there.absent
        counts["leader_failures"] += there.leader_failures
        run = self.run
        run.batteries.harvest_until(run.clock.now_seconds)
        units, costs = run.batteries.admit(there.units, self.price, run.round)
        if costs is not None:
            self.train(view, replace(there, units=units), costs, counts, mean)
        elif there.units and not run.flights:
            self.rest()
        for kind, number in self.trainer.take_faults().items():
            counts[kind] += number

    @property
    def uplink_gain(self) -> Float64:
        """The gains of this round's uplinks (K,)."""
        links = self.run.world.links
        return links.uplink_gain * links.fading(self.run.round)

    def price(self, units: Mapping[int, Unit]) -> Costs:
        """What these units cost if they start now, together with those on their way."""
        run, own = self.run, list(units.values())
        gain, uplinks = self.uplink_gain, len(own) + len(run.flights)
        asked = uplinks, gain.tobytes(), id(run.plan), *map(id, own)
        if self.priced is None or self.priced[0] != asked:  # most rounds ask the same
            costs = full_speed_costs(
                *(run.world, own, run.plan.parameters), uplink_gain=gain, uplinks=uplinks
            )
            costs = run.plan.slow_costs(costs, own, self.waits_for_all)
            self.priced = asked, (run.plan, own), costs
        return self.priced[2]

    def rest(self) -> None:
        """No unit can pay for a round: wait for a round's time, or end the run if none ever can."""
        run = self.run
        members = np.concatenate([unit.members for unit in run.plan.units])
        if run.batteries.gone[members].all():
            run.stop("batteries empty")
        else:
            run.clock.wait_until(run.clock.now_seconds + run.plan.round_seconds)

    def rotate(self) -> None:
        """Choose leaders again when it is time."""
        run, clustering = self.run, self.config.clustering
        if clustering.leader != "rotating" or run.round % clustering.rotate_every:
            return
        charge, gone = run.batteries.charge_joules, run.batteries.gone
        plan = rotated(run.plan, run.world, charge, run.device_joules, gone)
        if plan is not run.plan:
            run.plan, run.revised = plan.repriced(run.world), True

    def prepare(self, view: View, attendance: Attendance, costs: Costs) -> Departure:
        """A round's units with the models they start from, and their delivery."""
        run, world, units = self.run, self.run.world, list(attendance.units.values())
        updates = np.array([float(unit.local_updates) for unit in units])
        starts = [self.hooks.start(view, number) for number in attendance.units]
        begin = run.weights if all(one is run.weights for one in starts) else starts
        share = world.links.share(len(units) + len(run.flights))
        keep = self.scheme.uses_oracle and self.hooks.shows_arrivals
        delivery = delivery_of(run, attendance, self.uplink_gain, share.noise_watts, begin, keep)
        return Departure(units, costs, updates, starts, delivery)

    def train(
        self,
        view: View,
        attendance: Attendance,
        costs: Costs,
        counts: dict[str, int],
        mean: MeanUpdate | None,
    ) -> None:
        """Train the units of a round, and start the transmission of each."""
        run = self.run
        go = self.prepare(view, attendance, costs)
        busy = go.updates * costs.compute_seconds + go.updates * costs.gather_seconds
        ready, air = (costs.downlink_seconds + busy).tolist(), costs.uplink_seconds.tolist()
        # A slowed unit is busy for longer. The clock and the scheme count at full speed: a device
        # knows how fast it would have been, and the round ends when it would have ended.
        longer = np.broadcast_to(costs.slow_seconds, len(ready)).tolist()
        jobs = _Jobs(partial(self.job, view), attendance.units)
        results = self.trainer.iterate(go.delivery.start, jobs, run.round, go.delivery)
        started = np.zeros(len(go.units), dtype=bool)
        numbers = enumerate(attendance.units)
        for (index, number), received in zip(numbers, results, strict=True):
            if received is None:
                continue
            started[index] = True
            if received.lost:
                counts[received.lost] += 1
            self.keep_memory(go.units[index].leader, received)
            update, buffers = received.update, received.buffers
            if mean is not None:
                if update is not None and buffers is not None:
                    mean.add(run.plan.units[number].weight, update, buffers)
                update = buffers = None
            run.clock.start(number, ready[index], air[index])
            run.flights[number] = Flight(
                unit=number,
                round=run.round,
                started_seconds=run.clock.now_seconds,
                busy_seconds=ready[index] + air[index] + longer[index],
                loss=received.loss,
                lost=bool(received.lost),
                fault=received.fault,
                update=update,
                buffers=buffers,
                start=go.starts[index],
                trained=received.trained,
            )
        self.charge(attendance.units, costs, started)

    def job(self, view: View, number: int, unit: Unit) -> Job:
        """The training of one unit in this round."""
        return Job(
            unit.members,
            unit.member_weights,
            unit.local_updates,
            rule=unit.rule,
            correction=self.hooks.correction(view, number),
        )

    def keep_memory(self, leader: int, received: Received) -> None:
        """Keep what a unit's codec did not send; an update that was lost changes nothing."""
        if received.lost:
            return
        self.run.memory.pop(leader, None)
        if received.memory is not None:
            self.run.memory[leader] = received.memory

    def charge(
        self, units: Mapping[int, Unit], costs: Costs, started: npt.NDArray[np.bool_]
    ) -> None:
        """Book the energy of the units that started, in total and per device."""
        own = units.values()
        if self.spending is None or self.spending[0] is not costs:
            self.spending = costs, spending_of(units, costs)
        spent = self.run.ledger.book(
            np.array([float(unit.local_updates) for unit in own]),
            costs,
            self.spending[1],
            [len(unit.members) for unit in own],
            started,
            self.config.radio.bs_power_watts,
        )
        self.run.batteries.draw(*spent)

    def wait(self, counts: dict[str, int]) -> tuple[list[Arrival], tuple[float, ...]]:
        """Collect arrivals until the scheme is ready or its deadline has come.

        Returns the usable ones, and for each unit that arrived how long it was idle meanwhile.
        """
        run = self.run
        deadline = self.hooks.deadline(self.view())
        arrived: list[Arrival] = []
        landed: list[Flight] = []
        in_flight = run.visible()
        asks = "ready" in self.hooks.own
        while run.flights:
            if asks and self.hooks.ready(self.view(arrived, in_flight.copy())):
                break
            flight = self.next_flight(deadline, counts)
            if flight is None:
                break
            del in_flight[flight.unit]
            landed.append(flight)
            arrival = self.land(flight, counts)
            if arrival is not None:
                arrived.append(arrival)
        if deadline is not None and not run.flights and not landed:
            self.next_flight(deadline, counts)  # no unit started, but time passes
        return arrived, self.waiting(landed)

    def next_flight(self, deadline: float | None, counts: dict[str, int]) -> Flight | None:
        """The flight that lands next, if it lands before the deadline."""
        unit = self.run.clock.next_arrival(deadline)
        return None if unit is None else self.run.flights.pop(unit)

    def waiting(self, landed: Sequence[Flight]) -> tuple[float, ...]:
        """How long each unit that arrived was idle, in the order of units."""
        now = self.run.clock.now_seconds
        return tuple(
            max(0.0, now - flight.started_seconds - flight.busy_seconds)
            for flight in sorted(landed, key=lambda flight: flight.unit)
        )

    def count_refused(self, flight: Flight, counts: dict[str, int]) -> None:
        """Count and report a flight whose update the server refuses."""
        if flight.fault is not None:
            counts["refused"] += 1
            number = self.run.round + 1
            log.warning("round %d: unit %d is refused: %s", number, flight.unit, flight.fault)

    def land(self, flight: Flight, counts: dict[str, int]) -> Arrival | None:
        """The arrival of a flight, or None if it cannot be used."""
        run = self.run
        self.count_refused(flight, counts)
        if flight.update is None or flight.buffers is None:
            return None
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
        run, limits, nodes = self.run, self.config.run, self.nodes
        last = limits.rounds - limits.eval_last < run.round <= limits.rounds
        late = last or run.stopped is not None or run.has_all_rounds
        due = late or run.passes_share or run.round % limits.eval_every == 0
        found = self.trainer.evaluate(run.weights) if due else None
        mean = self.trainer.evaluate(run.average) if late and run.average else None
        record = Record(
            round=run.round,
            accuracy=found.accuracy if found else None,
            # A model that has blown up has no loss; nan is not JSON.
            loss=found.loss if found and math.isfinite(found.loss) else None,
            label_accuracy=found.label_accuracy if found else (),
            average_accuracy=mean.accuracy if mean else None,
            virtual_seconds=run.clock.now_seconds,
            joules=run.ledger.totals(),
            units=used,
            faults=counts,
            waiting_seconds=waiting,
            empty=int(run.batteries.empty.sum()),
            wall_seconds=None if nodes is None else nodes.wall_seconds() - self.wall_zero,
            nodes=None if nodes is None else nodes.take_nodes(),
        )
        run.records.append(record)
        return record
