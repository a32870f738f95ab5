"""A plan: which units train, who leads them, how much they count, how long and at what power.

A plan is made once per world by a scheme and says everything a round needs. It checks itself, and
predicts the time and the energy of a round without fading and faults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from camu.allocation.answer import Allocation
from camu.arrays import Float64
from camu.errors import InputError
from camu.learning.job import PLAIN_RULE, LocalRule
from camu.notebook import html_table
from camu.planning.codecs import (
    RAW,
    Codec,
    codec_faults,
    codec_from_dict,
    codec_to_dict,
    payload_bits,
)
from camu.planning.costs import UpdateCost, send_in_turn, unit_costs
from camu.world import World

_SHOWN_UNITS = 40  # in a notebook


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

    @property
    def compute_seconds(self) -> float:
        """N_c updates of the slowest member."""
        return self.local_updates * self.per_update.compute_seconds

    @property
    def gather_seconds(self) -> float:
        """Time in which the members send to the leader, once per update."""
        return self.local_updates * self.per_update.gather_seconds

    @property
    def compute_joules(self) -> float:
        """Energy of N_c updates of all members."""
        return self.local_updates * self.per_update.compute_joules

    @property
    def gather_joules(self) -> float:
        """Energy with which the members send to the leader, once per update."""
        return self.local_updates * self.per_update.gather_joules

    @property
    def ready_seconds(self) -> float:
        """When the unit could send, counted from the start of the round."""
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


@dataclass(frozen=True)
class Plan:
    """The units of a scheme in a world, and the seconds and joules of a round.

    Attributes:
        scheme: name of the scheme.
        seed: seed of the world.
        parameters: q, the number of trainable parameters of the model.
        access: how leaders share the uplink: in turn (`tdma`) or at the same time (`ofdma`).
        units: the units, in an order that does not change.
        allocation: the certified answer to P1, where a scheme optimised powers and updates.
    """

    scheme: str
    seed: int
    parameters: int
    access: str
    units: tuple[Unit, ...]
    allocation: Allocation | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse a plan that no fleet could carry out, naming the unit."""
        if not self.units:
            raise InputError(f"scheme {self.scheme}: the plan has no unit")
        seen: set[int] = set()
        for index, unit in enumerate(self.units):
            for wrong in _faults(unit, seen):
                raise InputError(f"scheme {self.scheme}: unit {index}: {wrong}")
            seen.update(unit.members)
        total = math.fsum(unit.weight for unit in self.units)
        if abs(total - 1) > 1e-9:
            raise InputError(f"scheme {self.scheme}: the units' weights add up to {total}, not 1")

    @cached_property
    def arrival_seconds(self) -> Float64:
        """When each unit's update has arrived, counted from the start of the round."""
        ready = np.array([unit.ready_seconds for unit in self.units])
        air = np.array([unit.uplink_seconds for unit in self.units])
        return ready + air if self.access == "ofdma" else send_in_turn(ready, air)

    @cached_property
    def round_seconds(self) -> float:
        """Length of a round in which the server waits for all units."""
        return float(self.arrival_seconds.max())

    @property
    def round_joules(self) -> float:
        """Energy of a round, all devices together."""
        return math.fsum(unit.joules for unit in self.units)

    def idle_seconds(self, index: int) -> float:
        """How long a unit neither computes nor sends in a round."""
        unit = self.units[index]
        busy = unit.downlink_seconds + unit.compute_seconds + unit.transmit_seconds
        return max(0.0, self.round_seconds - busy)

    def with_updates(self, local_updates: Sequence[int]) -> Plan:
        """The same plan with other numbers of local updates; their costs follow."""
        if len(local_updates) != len(self.units):
            raise InputError(
                f"with_updates: {len(local_updates)} numbers were given for {len(self.units)} "
                "units; give one per unit"
            )
        units = [
            replace(unit, local_updates=int(updates))
            for unit, updates in zip(self.units, local_updates, strict=True)
        ]
        return replace(self, units=tuple(units))

    def repriced(self, world: World) -> Plan:
        """The same plan with the seconds, joules and payloads that its units have in a world."""
        width = world.config.radio.bits_per_parameter
        bits = [payload_bits(unit.codec, self.parameters, width) for unit in self.units]
        costs = unit_costs(
            world,
            [unit.members for unit in self.units],
            [unit.leader for unit in self.units],
            [unit.power_watts for unit in self.units],
            bits,
            self.parameters,
            rules=[unit.rule for unit in self.units],
        )
        per_update = costs.per_update_of_all()
        units = tuple(
            replace(
                unit,
                per_update=per_update[index],
                uplink_seconds=float(costs.uplink_seconds[index]),
                uplink_joules=float(costs.uplink_joules[index]),
                payload_bits=bits[index],
                downlink_seconds=costs.downlink_seconds,
                receive_watts=costs.receive_watts,
            )
            for index, unit in enumerate(self.units)
        )
        return replace(self, units=units)

    def to_dict(self, world: World) -> dict[str, Any]:
        """The plan as plain data, with the devices it is for."""
        names = _device_names(world)
        return {
            "scheme": self.scheme,
            "seed": self.seed,
            "parameters": self.parameters,
            "access": self.access,
            "devices": _device_dicts(world, names),
            "units": [self._unit_dict(index, names) for index in range(len(self.units))],
            "round_seconds": self.round_seconds,
            "round_joules": self.round_joules,
            **self._allocation_dict(),
        }

    def _repr_html_(self) -> str:
        """A table of the units for notebooks, with the totals of a round."""
        head = ["unit", "members", "leader", "weight", "N", "power W", "seconds", "joules"]
        rows = [
            [
                str(index),
                str(len(unit.members)),
                str(unit.leader),
                f"{unit.weight:.4f}",
                str(unit.local_updates),
                f"{unit.power_watts:.3g}",
                f"{unit.compute_seconds + unit.transmit_seconds:.3g}",
                f"{unit.joules:.3g}",
            ]
            for index, unit in enumerate(self.units[:_SHOWN_UNITS])
        ]
        first = f"the first {_SHOWN_UNITS} of " if len(self.units) > _SHOWN_UNITS else ""
        caption = (
            f"{self.scheme}: {first}{len(self.units)} units, "
            f"{sum(len(unit.members) for unit in self.units)} devices; a round takes "
            f"{self.round_seconds:.4g} s and {self.round_joules:.4g} J"
        )
        return html_table(head, rows, caption)

    def _allocation_dict(self) -> dict[str, Any]:
        """How well P1 was solved; what was decided is said unit by unit."""
        if self.allocation is None:
            return {}
        answer = self.allocation.to_dict()
        # Wall time would make two files of the same plan differ.
        shown = {key: answer[key] for key in answer if key not in ("seconds", "clusters")}
        return {"allocation": shown}

    def _unit_dict(self, index: int, names: list[int] | list[str]) -> dict[str, Any]:
        unit = self.units[index]
        return {
            "members": [names[k] for k in unit.members],
            "leader": names[unit.leader],
            "weight": unit.weight,
            "member_weights": list(unit.member_weights),
            "local_updates": unit.local_updates,
            "power_watts": unit.power_watts,
            "update_scale": unit.update_scale,
            "samples": unit.samples,
            "wasserstein": unit.wasserstein,
            "contribution": unit.contribution,
            "multi_update": unit.multi_update,
            "compute_seconds": unit.compute_seconds,
            "gather_seconds": unit.gather_seconds,
            "transmit_seconds": unit.transmit_seconds,
            "idle_seconds": self.idle_seconds(index),
            "compute_joules": unit.compute_joules,
            "gather_joules": unit.gather_joules,
            "transmit_joules": unit.transmit_joules,
            "uplink_seconds": unit.uplink_seconds,
            "uplink_joules": unit.uplink_joules,
            "payload_bits": unit.payload_bits,
            "downlink_seconds": unit.downlink_seconds,
            "receive_watts": unit.receive_watts,
            "receive_joules": unit.receive_joules,
            "per_update": dict(vars(unit.per_update)),
            "rule": dict(vars(unit.rule)),
            "codec": codec_to_dict(unit.codec),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], source: str = "plan") -> Plan:
        """The plan that `to_dict` wrote; `source` is named in errors."""
        try:
            place = {device["id"]: index for index, device in enumerate(data["devices"])}
            units = tuple(_read_unit(unit, place) for unit in data["units"])
            answer = data.get("allocation")
            return cls(
                scheme=data["scheme"],
                seed=data["seed"],
                parameters=data["parameters"],
                access=data["access"],
                units=units,
                allocation=None if answer is None else _read_allocation(answer, units),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{source}: is not a plan that this version wrote ({type(error).__name__}: {error})"
            ) from None


def _read_unit(data: Mapping[str, Any], place: Mapping[Any, int]) -> Unit:
    plain = ["weight", "local_updates", "power_watts", "samples", "wasserstein", "contribution"]
    plain += ["multi_update", "uplink_seconds", "uplink_joules", "payload_bits", "update_scale"]
    plain += ["downlink_seconds", "receive_watts"]
    return Unit(
        members=tuple(place[name] for name in data["members"]),
        leader=place[data["leader"]],
        member_weights=tuple(data["member_weights"]),
        per_update=UpdateCost(**data["per_update"]),
        rule=LocalRule(**data["rule"]),
        codec=codec_from_dict(data["codec"]),
        **{key: data[key] for key in plain},
    )


def _read_allocation(data: Mapping[str, Any], units: Sequence[Unit]) -> Allocation:
    """The answer to P1; its powers and updates are those of the units."""
    clusters = [
        {"power_watts": unit.power_watts, "extra_updates": unit.local_updates - 1} for unit in units
    ]
    return Allocation.from_dict({**data, "seconds": 0.0, "clusters": clusters})


def _device_names(world: World) -> list[int] | list[str]:
    """A fleet file's own ids; devices placed by camu are numbered."""
    if world.config.fleet.file is None:
        return list(range(world.devices.count))
    return list(world.devices.ids)


def _device_dicts(world: World, names: list[int] | list[str]) -> list[dict[str, Any]]:
    devices = world.devices
    positions = devices.positions.tolist()
    if np.isnan(devices.positions).any():
        positions = [[None if math.isnan(x) else x for x in place] for place in positions]
    keys = ("id", "position", "region", "samples", "label_counts")
    rows = zip(
        names,
        positions,
        devices.regions,
        devices.samples.tolist(),
        devices.label_counts.tolist(),
        strict=True,
    )
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _faults(unit: Unit, seen: set[int]) -> list[str]:
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
