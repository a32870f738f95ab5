"""A round: units train, send over the channel, and are aggregated, on a virtual clock.

A synchronous round waits for all; a scheme that is ready earlier makes the loop asynchronous.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from camu.learning.job import NOT_EVALUATED, Job
from camu.learning.task import task_of
from camu.learning.weights import Weights
from camu.planning.costs import Costs
from camu.planning.dvfs import full_speed_costs
from camu.planning.link_costs import senders
from camu.planning.rotation import rotated
from camu.planning.unit import Unit
from camu.schemes.aggregation import MeanUpdate
from camu.schemes.contract import Scheme, waits_for_all
from camu.schemes.view import Arrival, InFlight, View, no_array
from camu.simulation.attendance import Attendance, Faults
from camu.simulation.burst import Burst, Received, superpose
from camu.simulation.charges import Charges
from camu.simulation.cluster_burst import ClusterBursts
from camu.simulation.history import FAULTS, Record
from camu.simulation.hooks import Hooks
from camu.simulation.loop_pilot import LoopPilot
from camu.simulation.moving import move, replan
from camu.simulation.privacy import check_privacy, count_releases, epsilon_of
from camu.simulation.run import Jobs, OnNodes, Run, Trainer, Update, mean_steps
from camu.simulation.uplink import Delivery, delivery_of

log = logging.getLogger(__name__)


class Loop:
    """The steps of a round; all state that outlives a round is in the run."""

    def __init__(self, run: Run, scheme: Scheme, trainer: Trainer) -> None:
        self.run, self.scheme, self.trainer = run, scheme, trainer
        self.hooks = Hooks(scheme, run.state)
        self.faults = Faults.of(run.world)
        self.config = run.world.config
        check_privacy(run.world.config, scheme, run.plan)
        self.metrics = task_of(self.config).metrics
        self.keeps_state = self.config.training.optimiser_state == "keep"
        self.before = run.weights
        self.nodes = trainer if isinstance(trainer, OnNodes) else None
        known = run.records[-1].wall_seconds if run.records else None
        self.wall_zero = 0.0 if self.nodes is None else self.nodes.wall_seconds() - (known or 0.0)
        # Whether updates are added up as they come, so that none is kept.
        plain = self.config.scheme.aggregation == "mean" and run.plan.air is None
        self.waits_for_all = waits_for_all(scheme)
        self.takes_mean = plain and not self.hooks.shows_arrivals
        # Of the present round: its faults by kind, and the mean of its updates if that is taken.
        self.counts = dict.fromkeys((*FAULTS, *(self.nodes.fault_kinds if self.nodes else ())), 0)
        self.refusals: list[tuple[int, str]] = []  # units of the present round, and why
        self.mean: MeanUpdate | None = None
        self.steps = 0.0  # of the mean update
        self.received: Received | None = None  # the burst of a round over the air
        # The last price: what it depends on, what the ids in that belong to, the costs.
        self.priced: tuple[tuple[object, ...], object, Costs] | None = None
        self.charges = Charges(run)

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
            empty=frozenset(np.flatnonzero(run.batteries.gone).tolist()),
            kept=MappingProxyType(run.kept),
        )

    def begin(self) -> Record:
        """What the scheme tries out before the first round, and the record of round 0."""
        pilot = LoopPilot(self.run, self.scheme.name, partial(Loop, trainer=self.trainer))
        self.hooks.pilot(pilot, self.run)
        return self.record(0, ())

    def round(self) -> Record:
        """A round, what the scheme changes after it, and its record."""
        self.before = self.run.weights
        self.charges.book_idle(replan(self.run, self.scheme), self.run.clock.now_seconds)
        if self.config.run.every_seconds is not None:  # who reports has paid for that time
            self.run.batteries.harvest_until(self.run.clock.now_seconds)
        arrived, waiting = self.advance()
        self.hooks.revise(self.view(() if self.takes_mean else self.shown(arrived)), self.run)
        self.rotate()
        self.hooks.finished(self.view(), self.run)
        return self.record(len(arrived), waiting)

    def advance(self) -> tuple[list[Update], tuple[float, ...]]:
        """Start the selected units, wait until the server is ready, aggregate.

        Returns what was aggregated, and how long units were idle.
        """
        # The mean is that of `Scheme.aggregate`: the same class, in the same order of units.
        self.mean = MeanUpdate(self.run.weights) if self.takes_mean else None
        self.counts = dict.fromkeys(self.counts, 0)
        self.launch()
        arrived, waiting = self.wait()
        self.steps = mean_steps(arrived, self.run.plan)
        self.say_refusals(len(arrived))
        for kind, number in self.nodes.take_faults().items() if self.nodes else ():
            self.counts[kind] += number
        if self.mean is not None:
            self.run.move_to(self.mean.added())
        else:
            self.run.move_to(self.aggregated(arrived) if arrived else self.run.weights)
        return arrived, waiting

    def aggregated(self, arrived: Sequence[Update]) -> Weights:
        """The new model; of a burst, the sum that was received is that of the mean."""
        if self.received and self.received.weights and "aggregate" not in self.hooks.own:
            return self.received.weights
        return self.hooks.aggregate(self.view(self.shown(arrived)))

    def shown(self, arrived: Sequence[Update]) -> Sequence[Arrival]:
        """What a scheme sees of these arrivals: of a burst, one for all of them."""
        burst = self.received.arrival if self.received else None
        return [burst] if burst and arrived else arrived

    def launch(self) -> None:
        """Start the units that the scheme selects, from the present weights."""
        self.received = None
        self.faults.wait_to_begin(self.run)
        self.charges.rest(self.run.in_flight.values())
        move(self.run)
        self.faults = replace(self.faults, world=self.run.world)
        view = self.view()
        there = self.faults.attend(view.plan, self.hooks.select(view), view.round, view.seconds)
        self.counts["absent"] += len(there.absent)
        self.run.absent = there.absent
        self.counts["leader_failures"] += there.leader_failures
        run = self.run
        run.batteries.harvest_until(run.clock.now_seconds)
        units, costs = run.batteries.admit(there.units, self.price, run.round)
        if costs is not None:
            self.train(view, replace(there, units=units), costs)
        elif there.units and not run.in_flight:
            self.rest()

    def price(self, units: Mapping[int, Unit]) -> Costs:
        """What these units cost if they start now, together with those on their way."""
        run, own = self.run, list(units.values())
        links, radio, uplinks = run.world.links, self.config.radio, self.senders(own)
        gain = links.uplink_gain * links.rated_fading(run.round)
        drawn = radio.uplink == "packet" or radio.d2d_fading or not radio.knows_channels
        round_ = run.round if drawn else None
        known = id(run.world), id(run.plan), *map(id, own)
        asked = *uplinks.items(), round_, gain.tobytes(), *known
        if self.priced is None or self.priced[0] != asked:  # most rounds ask the same
            costs = full_speed_costs(
                *(run.world, own, run.plan.parameters),
                uplink_gain=gain,
                uplinks=uplinks,
                round_=round_,
                burst=run.plan.burst,
                gather_burst=run.plan.gather_burst,
            )
            costs = run.plan.dvfs_costs(costs, own, self.waits_for_all)
            if np.any(costs.idle_watts):
                seconds = run.plan.expected_seconds(costs, own, self.waits_for_all)
                costs = replace(costs, round_seconds=seconds)
            self.priced = asked, (run.world, run.plan, own), costs
        return self.priced[2]

    def senders(self, units: Iterable[Unit]) -> dict[str, int]:
        """How many units of each link type send, if these start now."""
        leaders = [unit.leader for unit in units]
        leaders += [update.leader for update in self.run.in_flight.values()]
        return senders(self.run.world.links, leaders)

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

    def prepare(
        self, view: View, attendance: Attendance, costs: Costs, burst: Burst | None = None
    ) -> Delivery:
        """The way of a round's updates to the server, with the models that units start from."""
        run = self.run
        starts = [self.hooks.start(view, number) for number in attendance.units]
        begin = run.weights if all(one is run.weights for one in starts) else starts
        keep = self.scheme.uses_oracle and self.hooks.shows_arrivals
        changes = "keep" in self.hooks.own
        found = delivery_of(run, attendance, costs.uplink_snr, begin, keep, changes)
        if burst is not None:
            return replace(found, air=burst.air, silent=burst.silent)
        return found if costs.outage is None else replace(found, outage=costs.outage)

    def train(self, view: View, attendance: Attendance, costs: Costs) -> None:
        """Train the units of a round, and start the transmission of each.

        Where the mean is taken, updates are added to it and dropped.
        """
        run, own = self.run, list(attendance.units.values())
        burst = Burst.of(run.world, run.plan, own, run.round)
        delivery = self.prepare(view, attendance, costs, burst)
        updates = np.array([float(unit.local_updates) for unit in own])
        ready, air = costs.ready_seconds(updates).tolist(), costs.uplink_seconds.tolist()
        ready = [max(ready)] * len(ready) if burst else ready  # all wait for the last one
        busy = costs.busy_seconds(updates).tolist()
        # A slowed unit is busy for longer. The clock and the scheme count at full speed: a device
        # knows how fast it would have been, and the round ends when it would have ended.
        longer = np.broadcast_to(costs.dvfs_seconds, len(ready)).tolist()
        jobs = Jobs(partial(self.job, view), attendance.units)
        if gathers := ClusterBursts.of(run, self.trainer, own, costs):
            results = gathers.train(self.trainer, delivery, list(jobs))
        else:
            results = self.trainer.iterate(delivery.start, jobs, run.round, delivery)
        started = np.zeros(len(ready), dtype=bool)
        for index, update in zip(range(len(ready)), results, strict=True):
            if update is None:
                continue
            started[index] = True
            count_releases(run.releases, run.world, own[index])
            update.start = delivery.start_of(index)
            self.receive(view, update)
            if self.mean is not None:
                if update.update.size:  # not lost, not refused, and not of a dry run
                    weight = run.plan.units[update.unit].weight
                    self.mean.add(weight, update.update, update.buffers)
                update.update = update.buffers = no_array()
            queue = () if costs.queues is None else (costs.queues[index],)
            run.clock.start(update.unit, ready[index], air[index], *queue)
            update.started_seconds = run.clock.now_seconds
            update.busy_seconds = busy[index] + air[index] + longer[index]
            run.in_flight[update.unit] = update
        costs = gathers.spent() if gathers else costs
        if burst is not None:
            self.received, costs = superpose(run, burst, costs, ready[0])
            self.counts["refused"] += self.received.fault is not None
        self.charges.book(attendance.units, costs, started)

    def job(self, view: View, number: int, unit: Unit) -> Job:
        """The training of one unit in this round."""
        return Job(
            unit.members,
            unit.member_weights,
            unit.local_updates,
            rule=unit.rule,
            correction=self.hooks.correction(view, number),
            states=tuple(map(self.run.optimisers.get, unit.members)) if self.keeps_state else None,
            own=self.hooks.own_training(view, number),
        )

    def receive(self, view: View, update: Update) -> None:
        """Count an update that is lost; otherwise its sender and its unit keep what they need.

        Optimisers keep their state in any case: the devices have trained.
        """
        run = self.run
        for device, kept in zip(update.members, update.states, strict=False):
            if kept is not None:
                run.optimisers[device] = kept
        update.states = ()
        if update.lost:
            self.counts[update.lost] += 1
            return
        run.memory.pop(update.leader, None)
        if update.memory is not None:
            run.memory[update.leader] = update.memory
        before = run.kept.get(update.unit)
        update.kept = self.hooks.keep(view, update.unit, update.change, before)
        update.memory = update.change = None

    def wait(self) -> tuple[list[Update], tuple[float, ...]]:
        """Collect arrivals until the scheme is ready or its deadline has come.

        Returns the usable ones, and for each unit that arrived how long it was idle meanwhile.
        """
        run, own = self.run, self.hooks.own
        deadline = self.hooks.deadline(self.view()) if "deadline" in own else None
        in_flight = run.visible() if "ready" in own else {}
        arrived, found = list[Update](), list[Update]()
        while run.in_flight:
            if "ready" in own and self.hooks.ready(self.view(arrived, in_flight.copy())):
                break
            update = self.next_update(deadline)
            if update is None:
                break
            in_flight.pop(update.unit, None)
            found.append(update)
            if self.accept(update):
                arrived.append(update)
        if deadline is not None and not run.in_flight and not found:
            self.next_update(deadline)  # no unit started, but time passes
        now = run.clock.now_seconds
        self.charges.book_idle(found, now)
        self.charges.rest([*found, *run.in_flight.values()])
        waiting = {one.unit: now - one.started_seconds - one.busy_seconds for one in found}
        return arrived, tuple(max(0.0, waiting[unit]) for unit in sorted(waiting))

    def next_update(self, deadline: float | None) -> Update | None:
        """The update that arrives next, if it arrives before the deadline."""
        unit = self.run.clock.next_arrival(deadline)
        return None if unit is None else self.run.in_flight.pop(unit)

    def accept(self, update: Update) -> bool:
        """Whether an update that arrives now can be used; if so, its unit keeps its array."""
        run = self.run
        if update.fault is not None:
            self.counts["refused"] += 1
            self.refusals.append((update.unit, update.fault))
        if not update.usable:
            return False
        if "keep" in self.hooks.own:
            run.kept.pop(update.unit, None)
            if update.kept is not None:
                run.kept[update.unit] = update.kept
        update.weight, update.staleness = (
            run.plan.units[update.unit].weight,
            run.round - update.round,
        )
        update.arrived_seconds = run.clock.now_seconds
        return True

    def say_refusals(self, arrived: int) -> None:
        """One line for all units that were refused."""
        found, self.refusals = self.refusals, []
        if not found:
            return
        (unit, fault), number = found[0], self.run.round + 1
        if len(found) == 1:
            log.warning("round %d: unit %d is refused: %s", number, unit, fault)
            return
        text = f"{len(found)} of {arrived + len(found)} units are refused; unit {unit}: {fault}"
        if not arrived:
            text += "; try a smaller training.learning_rate, and data.standardise for numbers"
        log.warning("round %d: %s", number, text)

    def record(self, used: int, waiting: tuple[float, ...]) -> Record:
        """Evaluate when it is time, and note what happened."""
        run, limits, nodes = self.run, self.config.run, self.nodes
        last = limits.rounds - limits.eval_last < run.round <= limits.rounds
        late = last or run.stopped is not None or run.has_all_rounds
        due = late or run.passes_share or run.round % limits.eval_every == 0
        found = self.trainer.evaluate(run.weights) if due else NOT_EVALUATED
        mean = self.trainer.evaluate(run.average) if late and run.average else None
        more = self.hooks.of_devices(self.view(), self.trainer, self.metrics) if due else {}
        record = Record(
            round=run.round,
            accuracy=found.accuracy,
            loss=found.value("loss"),
            label_accuracy=found.label_accuracy,
            metric=self.metrics[0].name,
            metrics=found.finite_metrics(more),
            average_score=mean.value(self.metrics[0].name) if mean else None,
            virtual_seconds=run.clock.now_seconds,
            joules=dict(run.ledger.totals),
            bits=dict(run.ledger.bits),
            units=used,
            steps=self.steps,
            faults=self.counts,
            waiting_seconds=waiting,
            empty=int(run.batteries.empty.sum()),
            epsilon=epsilon_of(run.releases, self.config.training) if due else None,
            wall_seconds=None if nodes is None else nodes.wall_seconds() - self.wall_zero,
            nodes=None if nodes is None else nodes.take_nodes(),
        )
        run.records.append(record)
        return record
