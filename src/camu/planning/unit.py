"""A unit of a plan: devices that train together, with the seconds and joules of a round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from camu.learning.job import PLAIN_RULE, LocalRule
from camu.planning.codecs import RAW, Codec, codec_faults, codec_from_dict
from camu.planning.costs import UpdateCost


@dataclass(frozen=True)
class SlowDown:
    """How the members of a unit slow down in a round.

    Attributes:
        cpu_hz: frequency of each member.
        seconds: by how much computing takes longer than the slowest member's at full speed.
        joules: energy that is saved.
    """

    cpu_hz: tuple[float, ...]
    seconds: float
    joules: float


@dataclass(frozen=True)
class Unit:
    """Devices that train together and are aggregated as one: a cluster, or a single device.

    Attributes:
        members: the devices, by index.
        leader: the member that sends to the server.
        weight: G_c, the share of the unit in the global model.
        member_weights: G_k, the shares of the members inside the unit.
        local_updates: N_c, the local updates per round.
        power_watts: p_c, the power of the leader.
        samples: |D_c|, the samples of all members.
        wasserstein: W_c, the distance between the unit's labels and those of the fleet.
        contribution: theta_c.
        multi_update: S_c, whether the unit may update more than once.
        per_update: seconds and joules of one local update.
        uplink_seconds: air time of the leader, per round.
        uplink_joules: energy of the leader's transmission, per round.
        payload_bits: size of the update on the uplink.
        update_scale: factor on the update before it is sent.
        rule: how the members train.
        codec: how the update is compressed.
        downlink_seconds: time in which the members receive the model, per round.
        receive_watts: power of a device while it receives.
        slow_down: how its members slow down; None: they compute at full speed. Seconds of a unit
            are those at full speed all the same, joules are those that are spent.
    """

    members: tuple[int, ...]
    leader: int
    weight: float
    member_weights: tuple[float, ...]
    local_updates: int
    power_watts: float
    samples: int
    wasserstein: float
    contribution: float
    multi_update: bool
    per_update: UpdateCost
    uplink_seconds: float
    uplink_joules: float
    payload_bits: int
    update_scale: float = 1.0
    rule: LocalRule = PLAIN_RULE
    codec: Codec = RAW
    downlink_seconds: float = 0.0
    receive_watts: float = 0.0
    slow_down: SlowDown | None = None

    @property
    def compute_seconds(self) -> float:
        """N_c updates of the slowest member, at full speed."""
        return self.local_updates * self.per_update.compute_seconds

    @property
    def slow_seconds(self) -> float:
        """By how much the members compute longer than at full speed."""
        return 0.0 if self.slow_down is None else self.slow_down.seconds

    @property
    def gather_seconds(self) -> float:
        """Time in which the members send to the leader, once per update."""
        return self.local_updates * self.per_update.gather_seconds

    @property
    def compute_joules(self) -> float:
        """Energy of N_c updates of all members."""
        full = self.local_updates * self.per_update.compute_joules
        return full if self.slow_down is None else full - self.slow_down.joules

    @property
    def gather_joules(self) -> float:
        """Energy with which the members send to the leader, once per update."""
        return self.local_updates * self.per_update.gather_joules

    @property
    def ready_seconds(self) -> float:
        """When the unit could send at full speed, counted from the start of the round."""
        return self.downlink_seconds + self.compute_seconds + self.gather_seconds

    @property
    def transmit_seconds(self) -> float:
        """Air time of the members and the leader."""
        return self.gather_seconds + self.uplink_seconds

    @property
    def transmit_joules(self) -> float:
        """Energy that the members and the leader send with."""
        return self.gather_joules + self.uplink_joules

    @property
    def receive_joules(self) -> float:
        """Energy with which the members receive the model, and the leader receives from them."""
        return self.receive_watts * (
            len(self.members) * self.downlink_seconds + self.gather_seconds
        )

    @property
    def joules(self) -> float:
        """Energy of a round, all members together."""
        return self.compute_joules + self.transmit_joules + self.receive_joules


def read_unit(data: Mapping[str, Any], place: Mapping[Any, int]) -> Unit:
    """The unit that a plan's file holds; `place` is the index of each device."""
    plain = ["weight", "local_updates", "power_watts", "samples", "wasserstein", "contribution"]
    plain += ["multi_update", "uplink_seconds", "uplink_joules", "payload_bits", "update_scale"]
    plain += ["downlink_seconds", "receive_watts"]
    slow = data.get("slow_down")
    return Unit(
        members=tuple(place[name] for name in data["members"]),
        leader=place[data["leader"]],
        member_weights=tuple(data["member_weights"]),
        per_update=UpdateCost(**data["per_update"]),
        rule=LocalRule(**data["rule"]),
        codec=codec_from_dict(data["codec"]),
        slow_down=None if slow is None else SlowDown(**{**slow, "cpu_hz": tuple(slow["cpu_hz"])}),
        **{key: data[key] for key in plain},
    )


def unit_faults(unit: Unit, seen: set[int]) -> list[str]:
    """What is wrong with a unit; `seen` are the devices of the units before it."""
    faults = []
    if not unit.members or len(set(unit.members)) < len(unit.members):
        faults.append("members must be different devices, at least one")
    if seen.intersection(unit.members):
        faults.append(f"device {min(seen.intersection(unit.members))} is in another unit too")
    if unit.leader not in unit.members:
        faults.append(f"the leader {unit.leader} is not a member")
    if not (math.isfinite(unit.weight) and unit.weight >= 0):
        faults.append(f"weight = {unit.weight} must be a number from 0")
    if len(unit.member_weights) != len(unit.members) or not all(
        math.isfinite(w) and w >= 0 for w in unit.member_weights
    ):
        faults.append("member_weights must be one number from 0 per member")
    elif abs(math.fsum(unit.member_weights) - 1) > 1e-9:
        faults.append(f"member_weights add up to {math.fsum(unit.member_weights)}, not 1")
    if unit.local_updates < 1:
        faults.append(f"local_updates = {unit.local_updates} must be at least 1")
    if not (math.isfinite(unit.update_scale) and unit.update_scale > 0):
        faults.append(f"update_scale = {unit.update_scale} must be a positive number")
    if not (math.isfinite(unit.power_watts) and unit.power_watts > 0):
        faults.append(f"power_watts = {unit.power_watts} must be a positive number")
    if not isinstance(unit.payload_bits, int) or unit.payload_bits < 1:
        faults.append(f"payload_bits = {unit.payload_bits} must be a whole number from 1")
    return [*faults, *unit.rule.faults(), *codec_faults(unit.codec)]
