"""A burst of a round: units transmit at once, and the server receives the sum of their updates."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float32, Float64
from camu.config import RadioConfig
from camu.learning.weights import WeightedSum, Weights
from camu.planning.air import ALIGNED, Air, Amplitudes, Reception, Senders
from camu.planning.costs import Costs
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.schemes.aggregation import moved
from camu.schemes.view import Arrival, no_array
from camu.seeding import Stream, derive
from camu.simulation.run import Run, Update
from camu.simulation.uplink import refuse
from camu.world import World

log = logging.getLogger(__name__)


def senders_of(world: World, plan: Plan, units: Sequence[Unit], round_: int) -> Senders:
    """These units of a round, all of which could send at once."""
    links, leaders = world.links, np.array([unit.leader for unit in units], dtype=np.int64)
    return Senders(
        weight=np.array([unit.weight for unit in units]),
        power_watts=np.array([unit.power_watts for unit in units]),
        gain=np.square(np.abs(links.known_channels(round_)[leaders, 0])),
        mean_gain=links.uplink_gain[leaders] / world.config.radio.antennas,
        noise_watts=links.noise_watts,
        symbols=plan.burst.symbols if plan.burst else 0,
        leaders=leaders,
        links=links,
        round=round_,
    )


class Received(NamedTuple):
    """A burst as the server has received it."""

    power_watts: Float64  # mean power over the burst of each unit; 0: it was silent
    arrival: Arrival | None = None  # one for all units that sent; None: none did
    weights: Weights | None = None  # the model plus the estimate of the mean update
    fault: str | None = None  # why the server refuses it


@dataclass(frozen=True, eq=False)
class Mismatch:
    """How the symbols of each unit differ at the receiver from what its rule means.

    A unit divides by the channel that it knows, h', so that its symbols arrive times h / h', and
    turned by a phase error. With rectangular pulses, and a receiver that integrates over each
    symbol, a start that is late by a part t of a symbol mixes (1 - t) of a symbol with t of the one
    before.
    """

    turns: npt.NDArray[np.complex128]
    late: Float64  # in symbols, from 0 to 1

    @classmethod
    def of(cls, senders: Senders, air: Air = ALIGNED) -> Mismatch | None:
        """That of these units in their round, by their rule; None: there is none."""
        links, round_, leaders = senders.links, senders.round, senders.leaders
        radio = links.radio
        if radio.knows_channels and not (radio.phase_error_rad or radio.time_offset_symbols):
            return None
        draw = derive(links.seed, "burst", round_).numpy(1)  # for all devices, whoever sends
        phases = radio.phase_error_rad * draw.standard_normal(links.count)
        late = radio.time_offset_symbols * draw.random(links.count)
        ratio = np.ones(len(leaders)) if radio.knows_channels else air.true_over_known(senders)
        return cls(ratio * np.exp(1j * phases[leaders]), late[leaders])

    @classmethod
    def among(cls, radio: RadioConfig, count: int, stream: Stream) -> Mismatch | None:
        """That of so many devices that know their channels; None: there is none."""
        if not (radio.phase_error_rad or radio.time_offset_symbols):
            return None
        draw = stream.numpy(1)
        turns = np.exp(1j * radio.phase_error_rad * draw.standard_normal(count))
        return cls(turns, radio.time_offset_symbols * draw.random(count))

    def only(self, rows: npt.NDArray[np.bool_]) -> Mismatch:
        """That of some of the units."""
        return Mismatch(self.turns[rows], self.late[rows])

    def heard(self, row: int, numbers: Float32) -> Float32:
        """The numbers of a unit as they arrive, before they are scaled."""
        padded = np.zeros(2 * math.ceil(numbers.size / 2))
        padded[: numbers.size] = numbers
        symbols = padded.view(np.complex128)
        before = np.concatenate(([0.0], symbols[:-1]))
        late = self.late[row]
        mixed = self.turns[row] * ((1 - late) * symbols + late * before)
        return np.asarray(mixed.view(np.float64)[: numbers.size], dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Burst:
    """The units that could send at once in a round, and those that do not."""

    air: Air
    senders: Senders
    silent: frozenset[int] = frozenset()  # their rows
    mismatch: Mismatch | None = None

    @classmethod
    def of(cls, world: World, plan: Plan, units: Sequence[Unit], round_: int) -> Burst | None:
        """The burst of a round; None: the plan's units send on their own."""
        if plan.air is None:
            return None
        senders = senders_of(world, plan, units, round_)
        silent = frozenset(np.flatnonzero(plan.air.silent(senders)).tolist())
        return cls(plan.air, senders, silent, Mismatch.of(senders, plan.air))

    def receive(self, updates: Sequence[Update], start: Weights, limit: float) -> Received:
        """The sum of the updates that were sent, as one arrival.

        Updates are added in the order of units and in double precision, as in a mean of updates
        that were received one by one; noise is added once.
        """
        sends = np.array([not one.lost for one in updates])
        sent, there = [one for one in updates if not one.lost], self.senders.only(sends)
        heard = self.mismatch.only(sends) if self.mismatch else None
        power = np.zeros(len(updates))
        if not (there.weight > 0).any():
            return Received(power)
        amplitudes = self._amplitudes(there, np.array([one.squares for one in sent]))
        power[sends] = amplitudes.power_watts
        parameters, buffers = (WeightedSum(n.size) for n in (sent[0].update, start.buffers))
        total = 0.0
        factors = amplitudes.factors.tolist()
        for row, (one, own) in enumerate(zip(sent, there.weight.tolist(), strict=True)):
            total += own
            parameters.add(factors[row], heard.heard(row, one.update) if heard else one.update)
            buffers.add(own, one.buffers)
        stream = derive(there.links.seed, "burst", there.round)
        estimate = self.air.estimate(Reception(parameters.total, total, amplitudes, stream))
        mean = buffers.total / total
        arrival = Arrival(
            unit=sent[0].unit,
            round=there.round,
            started_seconds=sent[0].started_seconds,
            weight=total,
            loss=float(np.average([one.loss for one in sent], weights=there.weight)),
            update=estimate.astype(np.float32),
            buffers=mean.astype(np.float32),
            norms={one.unit: math.sqrt(one.squares) for one in sent},
        )
        arrival.start = start
        fault = refuse(float(np.square(estimate).sum()), arrival.buffers, limit)
        return Received(power, arrival, moved(start, estimate, mean), fault)

    def _amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        """How loud the units are; all have their full power where squares are not known.

        That is so in a dry run, and where one sends numbers that are not finite.
        """
        if np.isfinite(squares).all():
            return self.air.amplitudes(senders, squares)
        return Amplitudes(senders.weight, 0.0, senders.power_watts)


def superpose(run: Run, burst: Burst, costs: Costs, ready_seconds: float) -> tuple[Received, Costs]:
    """Receive the sum of a round's updates; returns also what they cost as they were sent.

    `ready_seconds` is when the last unit is ready, counted from now.
    """
    updates = list(run.in_flight.values())
    limit = run.world.config.training.max_update_norm
    found = burst.receive(updates, run.weights, limit)
    if found.fault is not None:
        log.warning("round %d: the burst is refused: %s", run.round + 1, found.fault)
    if found.arrival is not None:
        ready = run.clock.now_seconds + ready_seconds
        found.arrival.arrived_seconds = ready + float(costs.uplink_seconds[0])
    for update in updates:
        update.update = update.buffers = no_array()
        if found.fault is not None:
            update.lost = update.lost or "burst"
    links, own = run.world.links, burst.senders
    spared = links.supply_watts(own.power_watts) - links.supply_watts(found.power_watts)
    spared *= own.symbols / links.radio.bandwidth_hz  # of what was priced with all their power
    joules = np.where(found.power_watts > 0, costs.uplink_joules - spared, 0.0)
    return found, replace(costs, uplink_joules=joules)
