"""What units and devices cost in seconds, joules and bits: computing, gathering, sending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.planning.gathering import Gathers, gathers_of_round
from camu.planning.medium import Medium
from camu.planning.queues import Queue
from camu.world.link_types import SHANNON


@dataclass(frozen=True)
class UpdateCost:
    """What one local update of a unit costs, the gather at its leader included."""

    compute_seconds: float  # of the slowest member
    gather_seconds: float  # members send to the leader, in turn, and the leader answers
    compute_joules: float  # of all members
    gather_joules: float
    answer_seconds: float = 0.0  # the part of the gather in which the leader answers

    @property
    def seconds(self) -> float:
        """Of the slowest member, with the gather."""
        return self.compute_seconds + self.gather_seconds


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of several units, one array entry per unit; of members, one entry per member.

    Members follow each other unit by unit, in the order in which they were given.
    """

    sizes: Int64  # members of each unit
    compute_seconds: Float64  # of one local update
    gather_seconds: Float64  # alone on the medium, with the leader's answer
    answer_seconds: Float64  # the part of it in which the leader answers
    compute_joules: Float64
    gather_joules: Float64
    uplink_seconds: Float64  # of the whole round
    uplink_joules: Float64
    uplink_snr: Float64  # linear, within the band of each unit
    member_compute_joules: Float64  # of one local update
    member_gather_joules: Float64  # of a leader: its answer
    member_compute_seconds: Float64  # of one local update at its own frequency
    member_slowest: Float64  # the least frequency, as a share of its own
    uplink_bits: Int64  # of the whole round
    gather_bits: Int64  # of one local update: what the members and the answering leader send
    downlink_bits: int  # of the broadcast that all units receive, over each link type
    downlink_seconds: Float64 | float = 0.0  # of the broadcast, before units start
    receive_watts: Float64 | float = 0.0  # of a device of each unit while it receives
    station_seconds: float = 0.0  # in which the base station sends
    queues: Sequence[Queue] | None = None  # of uplinks; None: all have the link type `shannon`
    member_speeds: Float64 | None = None  # shares of own frequencies; None: all at full speed
    dvfs_seconds: Float64 | float = 0.0  # by how much slowed units compute longer, per round
    static_watts: Float64 | float = 0.0  # of each member that computes, whatever its frequency
    medium: Medium | None = None  # that gathers share; None: none waits for another
    outage: npt.NDArray[np.bool_] | None = None  # rates that are too high; None: none is
    idle_watts: Float64 | float = 0.0  # of each member that takes part, whatever it does
    round_seconds: Float64 | float = 0.0  # how long each unit is expected to take part in a round

    @property
    def all_idle_watts(self) -> float:
        """The idle power of all members together."""
        watts = np.broadcast_to(self.idle_watts, int(self.sizes.sum()))
        # Counted from the first one, so that equal ones add up without rounding.
        return float(watts[0] * len(watts) + (watts - watts[0]).sum())

    @property
    def update_seconds(self) -> Float64:
        """Seconds of one local update alone on the medium: compute, gather, answer."""
        return self.compute_seconds + self.gather_seconds

    @property
    def update_joules(self) -> Float64:
        """Energy of one local update: all compute, members send to the leader, which receives."""
        return self.compute_joules + self.gather_joules + self.listening_joules

    @property
    def listening_joules(self) -> Float64:
        """Energy with which the leader receives from its members, and they receive its answer.

        It is that of a gather without interference.
        """
        heard = self.gather_seconds + (self.sizes - 2) * self.answer_seconds
        return self.receive_watts * heard

    @property
    def fixed_joules(self) -> Float64:
        """Energy of a round without its updates: members receive the model, the leader sends."""
        return self.uplink_joules + self.receive_watts * self.downlink_seconds * self.sizes

    def busy_seconds(self, updates: Float64 | float) -> Float64:
        """When each unit could send after so many updates if it never waited for the medium."""
        busy = updates * self.compute_seconds + updates * self.gather_seconds
        return self.downlink_seconds + busy

    def ready_seconds(self, updates: Float64 | float) -> Float64:
        """When each unit can send after so many updates, counted from the start of the round."""
        gathers = self.gathers(updates)
        return self.busy_seconds(updates) if gathers is None else gathers.ready_seconds

    def gathers(self, updates: Float64 | float) -> Gathers | None:
        """The gathers of a round with so many updates of each unit, on the medium they share."""
        if self.medium is None or not (self.sizes > 1).any():
            return None
        each = np.broadcast_to(np.asarray(updates, dtype=np.float64), self.sizes.shape)
        start = self.downlink_seconds
        return gathers_of_round(self.medium, self.compute_seconds, each, start)

    def extra_joules(self, updates: Float64 | float) -> Float64:
        """What interference adds to the energy of each member's sending in a round."""
        gathers = self.gathers(updates)
        count = int(self.sizes.sum())
        return np.zeros(count) if gathers is None else gathers.extra_joules

    def extra_listening_joules(self, updates: Float64 | float) -> Float64:
        """What interference adds to the energy of each member's receiving in a round."""
        gathers = self.gathers(updates)
        watts = np.repeat(self._each(self.receive_watts), self.sizes)
        return 0.0 * watts if gathers is None else watts * gathers.extra_seconds

    def by_unit(self, of_members: Float64) -> Float64:
        """The sum of these numbers over the members of each unit."""
        return np.asarray(np.add.reduceat(of_members, np.cumsum(self.sizes) - self.sizes))

    def round_joules(self, updates: Float64 | float) -> Float64:
        """Energy of a round with so many updates of each unit, all members together."""
        extra = self.by_unit(self.extra_joules(updates) + self.extra_listening_joules(updates))
        return self.fixed_joules + updates * self.update_joules + extra

    def with_steps(self, steps: int) -> Costs:
        """The costs if each local update were so many times as long."""
        return replace(
            self,
            compute_seconds=steps * self.compute_seconds,
            compute_joules=steps * self.compute_joules,
            member_compute_seconds=steps * self.member_compute_seconds,
            member_compute_joules=steps * self.member_compute_joules,
        )

    def columns(self, updates: Float64) -> dict[str, list[Any]]:
        """The fields of units that are prices, a list each: faster than one unit after another.

        They are those of a round with so many updates of each unit.
        """
        names = ("compute_seconds", "gather_seconds", "compute_joules", "gather_joules")
        values = (getattr(self, name).tolist() for name in (*names, "answer_seconds"))
        per_update = map(UpdateCost, *values)
        extra, heard = self.extra_joules(updates), self.extra_listening_joules(updates)
        waits = self.ready_seconds(updates) - self.busy_seconds(updates)
        queues = self.queues or [Queue(SHANNON, 0)] * len(self.sizes)
        return {
            "wait_seconds": waits.tolist(),
            "interference_joules": self.by_unit(extra).tolist(),
            "interference_listening_joules": self.by_unit(heard).tolist(),
            "per_update": list(per_update),
            "uplink_seconds": self.uplink_seconds.tolist(),
            "uplink_joules": self.uplink_joules.tolist(),
            "downlink_seconds": self._each(self.downlink_seconds).tolist(),
            "receive_watts": self._each(self.receive_watts).tolist(),
            "idle_watts": self._mean_idle_watts().tolist(),
            "link": [queue.link for queue in queues],
            "channels": [queue.channels for queue in queues],
            "cell": [queue.cell for queue in queues],
        }

    def _mean_idle_watts(self) -> Float64:
        """The idle power of a member of each unit, on average."""
        starts = np.cumsum(self.sizes) - self.sizes
        watts = np.broadcast_to(self.idle_watts, int(self.sizes.sum()))
        first = watts[starts]
        more = np.add.reduceat(watts - np.repeat(first, self.sizes), starts)
        return np.asarray(first + more / self.sizes)

    def _each(self, value: Float64 | float) -> Float64:
        """A number of each unit, where one may stand for all."""
        return np.broadcast_to(np.asarray(value, dtype=np.float64), self.sizes.shape)


@dataclass(frozen=True, eq=False)
class Spending:
    """What a round costs each device that takes part, by kind; one array entry per device."""

    devices: Int64
    compute_joules: Float64
    transmit_joules: Float64
    receive_joules: Float64
    idle_joules: Float64  # as expected: it is known when the round has ended

    @property
    def busy_joules(self) -> Float64:
        """What is known when a round starts: all kinds but idle power."""
        return self.compute_joules + self.transmit_joules + self.receive_joules

    @property
    def joules(self) -> Float64:
        """All kinds together."""
        return self.busy_joules + self.idle_joules


def device_spending(
    members: Sequence[Sequence[int]], leaders: Sequence[int], updates: Float64, costs: Costs
) -> Spending:
    """What a round of these units costs each of their members, unit by unit.

    Members compute, send to their leader after every update and receive its answer and the model;
    leaders also receive from their members and send to the server.
    """
    flat, sizes = flatten_groups(members)[0], costs.sizes
    each = np.repeat(updates, sizes)
    transmit = each * costs.member_gather_joules + costs.extra_joules(updates)
    heard = costs.downlink_seconds + updates * costs.answer_seconds
    receive = np.repeat(costs.receive_watts * heard, sizes)
    leads = flat == np.repeat(np.asarray(leaders, dtype=np.int64), sizes)
    transmit[leads] += costs.uplink_joules
    members_send = updates * (costs.gather_seconds - costs.answer_seconds)
    receive[leads] = costs.receive_watts * (costs.downlink_seconds + members_send)
    receive += costs.extra_listening_joules(updates)
    idle = costs.idle_watts * np.repeat(np.broadcast_to(costs.round_seconds, sizes.shape), sizes)
    compute = each * costs.member_compute_joules
    return Spending(flat, compute, transmit, receive, idle)


def flatten_groups(groups: Sequence[Sequence[int]]) -> tuple[Int64, Int64]:
    """The devices of all groups one after the other, and where each group begins."""
    sizes = np.array([len(group) for group in groups])
    flat = np.fromiter(chain.from_iterable(groups), np.int64, int(sizes.sum()))
    return flat, np.cumsum(sizes) - sizes
