"""A plan: which units train, who leads them, how much they count, how long and at what power.

A plan is made once per world by a scheme and says everything a round needs. It checks itself, and
predicts the time and the energy of a round without fading and faults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from camu.arrays import Float64
from camu.errors import InputError
from camu.notebook import html_table
from camu.planning.codecs import codec_to_dict, payload_bits
from camu.planning.costs import Costs, send_in_turn
from camu.planning.slow_down import (
    SLOW_DOWNS,
    SlowDownKind,
    full_speed_costs,
    slow_downs,
    slowed,
)
from camu.planning.unit import SlowDown, Unit, read_unit, unit_faults
from camu.world import World

if TYPE_CHECKING:
    from camu.allocation.answer import Allocation

_SHOWN_UNITS = 40  # in a notebook


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
        slow_down: whether devices that would wait slow down (`camu.planning.slow_down`).
    """

    scheme: str
    seed: int
    parameters: int
    access: str
    units: tuple[Unit, ...]
    allocation: Allocation | None = field(default=None, compare=False)
    slow_down: SlowDownKind = "none"

    def __post_init__(self) -> None:
        """Refuse a plan that no fleet could carry out, naming the unit."""
        if not self.units:
            raise InputError(f"scheme {self.scheme}: the plan has no unit")
        seen: set[int] = set()
        for index, unit in enumerate(self.units):
            for wrong in unit_faults(unit, seen):
                raise InputError(f"scheme {self.scheme}: unit {index}: {wrong}")
            seen.update(unit.members)
        total = math.fsum(unit.weight for unit in self.units)
        if abs(total - 1) > 1e-9:
            raise InputError(f"scheme {self.scheme}: the units' weights add up to {total}, not 1")

    @cached_property
    def arrival_seconds(self) -> Float64:
        """When each unit's update has arrived, counted from the start of the round."""
        if self.slow_down == "none":
            return self._arrivals(0.0)
        slow = np.array([unit.slow_seconds for unit in self.units])
        return np.minimum(self._arrivals(slow), self.round_seconds)  # rounding

    @cached_property
    def round_seconds(self) -> float:
        """Length of a round in which the server waits for all units; slow-down keeps it."""
        return float(self._arrivals(0.0).max())

    def _arrivals(self, slow_seconds: Float64 | float) -> Float64:
        ready = np.array([unit.ready_seconds for unit in self.units]) + slow_seconds
        air = np.array([unit.uplink_seconds for unit in self.units])
        return ready + air if self.access == "ofdma" else send_in_turn(ready, air)

    @property
    def round_joules(self) -> float:
        """Energy of a round, all devices together."""
        return math.fsum(unit.joules for unit in self.units)

    @property
    def saved_joules(self) -> float:
        """Energy that devices save in a round by computing more slowly."""
        return math.fsum(unit.slow_down.joules for unit in self.units if unit.slow_down)

    def idle_seconds(self, index: int) -> float:
        """How long a unit neither computes nor sends in a round."""
        unit = self.units[index]
        busy = unit.downlink_seconds + unit.compute_seconds + unit.transmit_seconds
        return max(0.0, self.round_seconds - busy - unit.slow_seconds)

    def with_updates(self, local_updates: Sequence[int]) -> Plan:
        """The same plan with other numbers of local updates; their costs follow, at full speed."""
        if len(local_updates) != len(self.units):
            raise InputError(
                f"with_updates: {len(local_updates)} numbers were given for {len(self.units)} "
                "units; give one per unit"
            )
        units = [
            replace(unit, local_updates=int(updates), slow_down=None)
            for unit, updates in zip(self.units, local_updates, strict=True)
        ]
        return replace(self, units=tuple(units))

    def repriced(self, world: World) -> Plan:
        """The same plan with the seconds, joules and payloads that its units have in a world."""
        width = world.config.radio.bits_per_parameter
        units = [
            replace(unit, payload_bits=payload_bits(unit.codec, self.parameters, width))
            for unit in self.units
        ]
        costs = full_speed_costs(world, units, self.parameters)
        per_update = costs.per_update_of_all()
        slow: list[SlowDown | None] = [None] * len(units)
        if self.slow_down != "none":
            slow = [*slow_downs(costs, self.slow_costs(costs, units), units, world)]
        priced = tuple(
            replace(
                unit,
                per_update=per_update[index],
                uplink_seconds=float(costs.uplink_seconds[index]),
                uplink_joules=float(costs.uplink_joules[index]),
                downlink_seconds=costs.downlink_seconds,
                receive_watts=costs.receive_watts,
                slow_down=slow[index],
            )
            for index, unit in enumerate(units)
        )
        return replace(self, units=priced)

    def slowed(self, world: World, together: bool = True) -> Plan:
        """The same plan with devices that slow down where they would wait.

        Parameters:
            world: the fleet.
            together: whether the server waits for all units. Only then can a whole unit be late
                without a change; otherwise members wait for the slowest of their unit only.

        Returns:
            The plan, with the same seconds. With fleet.compute_model `literal` it is this plan: by
            that formula a slower device spends more.
        """
        if world.config.fleet.compute_model == "literal":
            return self
        kind: SlowDownKind = "units" if together else "members"
        return replace(self, slow_down=kind).repriced(world)

    def slow_costs(self, costs: Costs, units: Sequence[Unit], together: bool = True) -> Costs:
        """What units cost with this plan's slow-down, from their costs at full speed."""
        kind = self.slow_down if together or self.slow_down == "none" else "members"
        return slowed(costs, units, self.access, kind)

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
            **self._slow_down_dict(),
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

    def _slow_down_dict(self) -> dict[str, Any]:
        """How devices slow down and what a round saves by it; nothing at full speed."""
        if self.slow_down == "none":
            return {}
        return {"slow_down": self.slow_down, "saved_joules": self.saved_joules}

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
            **({} if unit.slow_down is None else {"slow_down": dict(vars(unit.slow_down))}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], source: str = "plan") -> Plan:
        """The plan that `to_dict` wrote; `source` is named in errors."""
        try:
            place = {device["id"]: index for index, device in enumerate(data["devices"])}
            units = tuple(read_unit(unit, place) for unit in data["units"])
            answer, slow = data.get("allocation"), data.get("slow_down", "none")
            if slow not in SLOW_DOWNS:
                raise ValueError(f"slow_down = {slow}")
            return cls(
                scheme=data["scheme"],
                seed=data["seed"],
                parameters=data["parameters"],
                access=data["access"],
                units=units,
                allocation=None if answer is None else _read_allocation(answer, units),
                slow_down=slow,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{source}: is not a plan that this version wrote ({type(error).__name__}: {error})"
            ) from None


def _read_allocation(data: Mapping[str, Any], units: Sequence[Unit]) -> Allocation:
    """The answer to P1; its powers and updates are those of the units."""
    clusters = [
        {"power_watts": unit.power_watts, "extra_updates": unit.local_updates - 1} for unit in units
    ]
    from camu.allocation.answer import Allocation  # few plans have one

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
    found = [dict(zip(keys, row, strict=True)) for row in rows]
    for device, epsilon in zip(found, devices.label_epsilon.tolist(), strict=True):
        if not math.isnan(epsilon):
            device["label_epsilon"] = epsilon  # of the noise on its label_counts
    return found
