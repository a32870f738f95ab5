"""Gathers over the air: members of a unit transmit to their leader at once, after every update.

The leader adds its own model without noise. Channels between devices are known, errors of phase and
time apart, and what leaders out of range send counts as noise, as if all of them gathered at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from camu.arrays import Float64, Int64, sum_of_squares
from camu.learning.job import Job, Trained, one_update
from camu.learning.weights import Weights, weighted_mean
from camu.planning.air import Amplitudes, Senders, Signal, aligned
from camu.planning.costs import Costs
from camu.planning.unit import Unit
from camu.seeding import derive
from camu.simulation.burst import Mismatch
from camu.simulation.run import Run, Trainer, Update
from camu.simulation.uplink import Delivery
from camu.world import World


@dataclass(eq=False)
class ClusterBursts:
    """The gathers of one round; the joules of members are those that they were sent with."""

    world: World
    round: int
    units: Sequence[Unit]
    costs: Costs
    burst: Signal
    joules: Float64 = field(init=False)  # of each member for sending, in the whole round

    def __post_init__(self) -> None:
        self.starts = np.cumsum(self.costs.sizes) - self.costs.sizes
        self.joules = np.zeros(int(self.costs.sizes.sum()))

    @classmethod
    def of(
        cls, run: Run, trainer: Trainer, units: Sequence[Unit], costs: Costs
    ) -> ClusterBursts | None:
        """The gathers of this round; None: members send in turn.

        A dry run has nothing to gather: its members count with their full power.
        """
        burst = run.plan.gather_burst
        if burst is None or trainer.provenance.kernel == "none":
            return None
        return cls(run.world, run.round, units, costs, burst)

    def train(
        self, trainer: Trainer, delivery: Delivery, jobs: Sequence[Job]
    ) -> Iterator[Update | None]:
        """Train all units, one local update after another, and deliver what they have learned."""
        begin = [delivery.start_of(unit) for unit in range(len(jobs))]
        states, losses = list(begin), [0.0] * len(jobs)
        # What each member's optimiser keeps from one update to the next.
        kept = [list(job.states or (None,) * len(job.members)) for job in jobs]
        for update in range(max(job.updates for job in jobs)):
            there = [unit for unit, job in enumerate(jobs) if update < job.updates]
            parts = [
                (unit, one_update(jobs[unit], device, update, begin[unit], kept[unit]))
                for unit in there
                for device in jobs[unit].members
            ]
            starts = [states[unit] for unit, _ in parts]
            found = trainer.iterate(starts, [job for _, job in parts], self.round, _kept)
            for unit in there:
                models = [one for one in islice(found, len(jobs[unit].members)) if one]
                states[unit] = self.gathered(unit, update, states[unit], models)
                kept[unit] = [own for one in models for own in one.states or (None,)]
                each = zip(jobs[unit].shares, models, strict=True)
                losses[unit] += sum(share * one.loss for share, one in each) / jobs[unit].updates
        for unit, state in enumerate(states):
            own = tuple(one for one in kept[unit] if one is not None)
            yield delivery(unit, Trained(state, losses[unit], own if jobs[unit].states else ()))

    def gathered(
        self, unit: int, update: int, start: Weights, models: Sequence[Trained]
    ) -> Weights:
        """The mean of the members' models as the leader has it, with noise on what it received."""
        own = self.units[unit]
        mean = weighted_mean(
            (w, one.weights) for w, one in zip(own.member_weights, models, strict=True)
        )
        rows = np.array([k for k, device in enumerate(own.members) if device != own.leader])
        if not len(rows):
            return mean
        changes = (models[k].weights.parameters - start.parameters for k in rows)
        squares = np.array([sum_of_squares(change) for change in changes])
        senders = self.senders(unit, rows)
        found = aligned(senders, squares)
        self.joules[self.starts[unit] + rows] += self.sent_joules(senders, found)
        stream = derive(self.world.seed, "gather-burst", self.round, own.leader, update)
        draws = stream.numpy().standard_normal(mean.parameters.size)
        received = mean.parameters + found.noise * draws
        if (mismatch := Mismatch.among(self.world.config.radio, len(rows), stream)) is not None:
            for row, k in enumerate(rows):
                change = models[k].weights.parameters - start.parameters
                received += own.member_weights[k] * (mismatch.heard(row, change) - change)
        return mean.with_parameters(received.astype(np.float32))

    def sent_joules(self, senders: Senders, found: Amplitudes) -> Float64:
        """What each member spends on a gather: its report, and its part of the burst."""
        links, most = self.world.links, senders.power_watts
        report = links.transmit_seconds(self.burst.report_bits, most, senders.gain)
        watts = np.where(found.power_watts > 0, links.supply_watts(found.power_watts), 0.0)
        seconds = self.burst.symbols / self.world.config.radio.bandwidth_hz
        return np.asarray(links.supply_watts(most) * report + watts * seconds)

    def senders(self, unit: int, rows: Int64) -> Senders:
        """The members of a unit that send to its leader."""
        own, links, medium = self.units[unit], self.world.links, self.costs.medium
        devices = np.array(own.members)[rows]
        gain = links.pair_gain(devices, np.full(len(rows), own.leader), self.round)
        louder = 0.0
        if medium is not None:
            others, gains = medium.disturbed(unit)
            far = ~np.isin(others, medium.neighbours(unit))
            louder = float(medium.loudness(unit, others[far], gains[far])[0].sum())
        return Senders(
            weight=np.array(own.member_weights)[rows],
            power_watts=self.world.devices.power_watts[devices],
            gain=gain,
            mean_gain=gain,
            noise_watts=links.noise_watts * (1 + louder),
            symbols=self.burst.symbols,
            leaders=devices,
            links=links,
            round=self.round,
        )

    def spent(self) -> Costs:
        """The costs of the round with the energy that members sent with."""
        updates = np.repeat([float(unit.local_updates) for unit in self.units], self.costs.sizes)
        members = [(device, unit.leader) for unit in self.units for device in unit.members]
        leads = np.array([device == leader for device, leader in members])
        each = np.where(leads, self.costs.member_gather_joules, self.joules / updates)
        total = np.add.reduceat(each, self.starts)
        return replace(self.costs, member_gather_joules=each, gather_joules=total)


def _kept(number: int, trained: Trained) -> Trained:
    """A result of its own memory."""
    return trained._replace(weights=trained.weights.copied())
