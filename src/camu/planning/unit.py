"""A unit of a plan: devices that train together, with the seconds and joules of a round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from camu.errors import InputError
from camu.learning.job import PLAIN_RULE, LocalRule
from camu.planning.codecs import RAW, Codec, codec_faults
from camu.planning.costs import UpdateCost
from camu.world.link_types import LINK_NAMES, SHANNON


@dataclass(frozen=True)
class UnitDvfs:
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
        wait_seconds: by how much its gathers end later in a round than alone on the medium: it
            waits for others, all members idle, and sends longer under interference.
        interference_joules: what interference adds to the energy of sending in its gathers, per
            round.
        interference_listening_joules: the same of listening.
        idle_watts: power of a member, on average, that takes part in a round; the plan knows
            for how long, so that it is in none of the unit's joules.
        bandwidth_hz: of the leader's uplink; None: the share that `radio.access` gives it.
        interference_watts: what the base station receives of strangers in that band.
        cell: in which its leader sends: the number of its base station, or 0 if all are one.
        link: link type of the members.
        channels: uplinks of this link type that are received at once; of `shannon` it is 0, and
            `radio.access` decides.
        cpu_share: frequency at which its members compute, as a share of their own.
        dvfs: how its members slow down; None: they compute at full speed. Seconds of a unit
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
    wait_seconds: float = 0.0
    interference_joules: float = 0.0
    interference_listening_joules: float = 0.0
    idle_watts: float = 0.0
    dvfs: UnitDvfs | None = None
    bandwidth_hz: float | None = None
    interference_watts: float = 0.0
    cpu_share: float = 1.0
    link: str = SHANNON
    channels: int = 0
    cell: int = 0

    @property
    def compute_seconds(self) -> float:
        """N_c updates of the slowest member, at full speed."""
        return self.local_updates * self.per_update.compute_seconds

    @property
    def dvfs_seconds(self) -> float:
        """By how much the members compute longer than at full speed."""
        return 0.0 if self.dvfs is None else self.dvfs.seconds

    @property
    def late_seconds(self) -> float:
        """By how much it is ready later than at full speed; it may also compute while it waits."""
        return max(0.0, self.dvfs_seconds - self.wait_seconds)

    @property
    def gather_seconds(self) -> float:
        """Time in which members send to the leader, and it answers, once per update."""
        return self.local_updates * self.per_update.gather_seconds

    @property
    def compute_joules(self) -> float:
        """Energy of N_c updates of all members."""
        full = self.local_updates * self.per_update.compute_joules
        return full if self.dvfs is None else full - self.dvfs.joules

    @property
    def gather_joules(self) -> float:
        """Energy with which members send to the leader, and it answers, once per update."""
        return self.local_updates * self.per_update.gather_joules + self.interference_joules

    @property
    def ready_seconds(self) -> float:
        """When the unit could send at full speed, counted from the start of the round."""
        busy = self.compute_seconds + self.gather_seconds
        return self.downlink_seconds + busy + self.wait_seconds

    @property
    def seconds(self) -> float:
        """When its update arrives at full speed if no other unit sends."""
        return self.ready_seconds + self.uplink_seconds

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
        """Energy with which the members receive the model, and all receive in gathers."""
        broadcast = self.receive_watts * len(self.members) * self.downlink_seconds
        gathers = self.local_updates * self._listening_joules + self.interference_listening_joules
        return broadcast + gathers

    @property
    def _listening_joules(self) -> float:
        """Energy with which, in a gather, the leader hears its members and they its answer.

        It is that of a gather without interference.
        """
        cost = self.per_update
        heard = cost.gather_seconds + (len(self.members) - 2) * cost.answer_seconds
        return self.receive_watts * heard

    @property
    def update_joules(self) -> float:
        """Energy of one local update at full speed, the gather at the leader included."""
        cost = self.per_update
        return cost.compute_joules + cost.gather_joules + self._listening_joules

    @property
    def fixed_joules(self) -> float:
        """Energy of a round without its updates: members receive the model, the leader sends."""
        return self.uplink_joules + self.receive_watts * self.downlink_seconds * len(self.members)

    @property
    def joules(self) -> float:
        """Energy of a round, all members together, without idle power."""
        return self.compute_joules + self.transmit_joules + self.receive_joules


def with_columns(units: Sequence[Unit], **columns: Iterable[Any]) -> tuple[Unit, ...]:
    """These units with other values of some fields, one value per unit."""
    values = {name: list(column) for name, column in columns.items()}
    for name, own in values.items():
        if len(own) != len(units):
            raise InputError(
                f"{name}: {len(own)} values were given for {len(units)} units; give one per unit"
            )
    rows = zip(units, *values.values(), strict=True)
    return tuple(replace(unit, **dict(zip(values, row, strict=True))) for unit, *row in rows)


def unit_faults(unit: Unit, seen: set[int]) -> list[str]:
    """What is wrong with a unit; `seen` are the devices of the units before it."""
    faults = []
    if not unit.members or len(set(unit.members)) < len(unit.members):
        faults.append("members must be different devices, at least one")
    if seen.intersection(unit.members):
        faults.append(f"device {min(seen.intersection(unit.members))} is in another unit too")
    if unit.leader not in unit.members:
        faults.append(f"the leader {unit.leader} is not a member")
    if not 0 <= unit.weight < math.inf:
        faults.append(f"weight = {unit.weight} must be a number from 0")
    own = unit.member_weights
    if len(own) != len(unit.members) or not all(0 <= share < math.inf for share in own):
        faults.append("member_weights must be one number from 0 per member")
    elif abs(math.fsum(own) - 1) > 1e-9:
        faults.append(f"member_weights add up to {math.fsum(own)}, not 1")
    if unit.local_updates < 1:
        faults.append(f"local_updates = {unit.local_updates} must be at least 1")
    for name in ("update_scale", "power_watts"):
        if not 0 < getattr(unit, name) < math.inf:
            faults.append(f"{name} = {getattr(unit, name)} must be a positive number")
    if unit.bandwidth_hz is not None and not 0 < unit.bandwidth_hz < math.inf:
        faults.append(f"bandwidth_hz = {unit.bandwidth_hz} must be a positive number or None")
    if not 0 <= unit.interference_watts < math.inf:
        faults.append(f"interference_watts = {unit.interference_watts} must be a number from 0")
    if not 0 < unit.cpu_share <= 1:
        faults.append(f"cpu_share = {unit.cpu_share} must be above 0 and at most 1")
    if unit.link not in LINK_NAMES:
        faults.append(f"link = {unit.link} is no link type")
    elif unit.link != SHANNON and unit.channels < 1:
        faults.append(f"channels = {unit.channels} must be at least 1")
    if not isinstance(unit.payload_bits, int) or unit.payload_bits < 1:
        faults.append(f"payload_bits = {unit.payload_bits} must be a whole number from 1")
    return [*faults, *unit.rule.faults(), *codec_faults(unit.codec)]
