"""A plan: which units train, who leads them, how much they count, how long and at what power.

A plan is made once per world by a scheme and says everything a round needs. It checks itself, and
predicts the time and the energy of a round without fading and faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from camu.arrays import AnyArray, Float64
from camu.errors import InputError
from camu.planning import plan_io
from camu.planning.air import ALIGNED, TOGETHER, Air, Signal, air_from_dict, air_to_dict
from camu.planning.codecs import RAW, payload_bits
from camu.planning.costs import Costs
from camu.planning.dvfs import DVFS_KINDS, DvfsKind, dvfs_of_units, full_speed_costs, with_dvfs
from camu.planning.queues import Queue, arrivals, under
from camu.planning.unit import Unit, UnitDvfs, unit_faults, with_columns
from camu.world import World
from camu.world.link_types import SHANNON

if TYPE_CHECKING:
    from camu.allocation.answer import Allocation


@dataclass(frozen=True)
class Plan:
    """The units of a scheme in a world, and the seconds and joules of a round.

    Attributes:
        scheme: name of the scheme.
        seed: seed of the world.
        parameters: q, the number of trainable parameters of the model.
        access: how leaders share the uplink: in turn (`tdma`), at the same time on shares of the
            band (`ofdma`), or at the same time on all of it (`together`, over the air).
        units: the units, in an order that does not change.
        allocation: the certified answer to P1, where a scheme optimised powers and updates.
        dvfs: whether devices that would wait slow down (`camu.planning.dvfs`).
        air: the rule of amplitudes of units that transmit at once; None: each sends on its own.
        gathers_together: whether the members of a unit transmit to their leader at once.
    """

    scheme: str
    seed: int
    parameters: int
    access: str
    units: tuple[Unit, ...]
    allocation: Allocation | None = field(default=None, compare=False)
    dvfs: DvfsKind = "none"
    air: Air | None = None
    gathers_together: bool = False

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
        self._check_air()

    def _check_air(self) -> None:
        """Refuse units that cannot transmit at once."""
        if (self.air is None) != (self.access != TOGETHER):
            raise InputError(
                f'scheme {self.scheme}: access = "{TOGETHER}" and a rule `air` belong together; '
                "use plan.over_the_air(rule)"
            )
        for index, unit in enumerate(self.units if self.air else ()):
            if unit.codec != RAW or unit.bandwidth_hz is not None:
                raise InputError(
                    f"scheme {self.scheme}: unit {index}: all units that transmit at once send "
                    "uncoded numbers on the same band; leave codec and bandwidth_hz out"
                )

    def column(self, name: str) -> AnyArray:
        """A number of all units as a read-only array, such as `weight` or `ready_seconds`."""
        if name not in self._columns:
            self._columns[name] = np.array([getattr(unit, name) for unit in self.units])
            self._columns[name].setflags(write=False)
        return self._columns[name]

    @cached_property
    def _columns(self) -> dict[str, AnyArray]:
        return {}

    def with_columns(self, **columns: Iterable[Any]) -> Plan:
        """The same plan with other values of some fields of the units, one value per unit."""
        return replace(self, units=with_columns(self.units, **columns))

    def with_updates(self, local_updates: Sequence[int]) -> Plan:
        """The same plan with other numbers of local updates; their costs follow, at full speed.

        Waits for the medium and interference depend on all units: `repriced` finds them again.
        """
        nothing = [0.0] * len(self.units)
        return self.with_columns(
            local_updates=map(int, local_updates),
            wait_seconds=nothing,
            interference_joules=nothing,
            interference_listening_joules=nothing,
            dvfs=[None] * len(self.units),
        )

    def over_the_air(self, air: Air) -> Plan:
        """The same plan with units that transmit at once, by this rule; `repriced` prices it."""
        return replace(self, air=air, access=TOGETHER)

    @property
    def burst(self) -> Signal | None:
        """What each unit sends where all send at once; None: each sends on its own."""
        return None if self.air is None else self.air.signal(self.parameters)

    @property
    def gather_burst(self) -> Signal | None:
        """The same of the members of a unit in a gather; None: they send in turn, as bits."""
        return ALIGNED.signal(self.parameters) if self.gathers_together else None

    def with_rates(self, rates: Iterable[float]) -> Plan:
        """The same plan with other factors on the learning rate, one per unit."""
        pairs = zip(self.units, rates, strict=True)
        return self.with_columns(rule=[replace(unit.rule, rate=float(own)) for unit, own in pairs])

    @cached_property
    def arrival_seconds(self) -> Float64:
        """When each unit's update has arrived, counted from the start of the round."""
        if self.dvfs == "none":
            return self._arrivals(0.0)
        return np.minimum(self._arrivals(self.column("late_seconds")), self.round_seconds)

    @cached_property
    def round_seconds(self) -> float:
        """Length of a round in which the server waits for all units; slow-down keeps it."""
        return float(self._arrivals(0.0).max())

    def _arrivals(self, late_seconds: Float64 | float) -> Float64:
        ready = self.column("ready_seconds") + late_seconds
        return arrivals(ready, self.column("uplink_seconds"), self.access, self.queues)

    @cached_property
    def queues(self) -> list[Queue] | None:
        """Where each unit queues for its uplink; None if all are `shannon` in one cell."""
        found = [Queue(unit.link, unit.channels, unit.cell) for unit in self.units]
        return found if any(queue.band != SHANNON for queue in found) else None

    @property
    def uplink_queues(self) -> list[Queue]:
        """The same of every unit, with the channels that `access` gives to `shannon`."""
        found = [Queue(unit.link, unit.channels, unit.cell) for unit in self.units]
        return under(found, self.access)

    @property
    def round_joules(self) -> float:
        """Energy of a round, all devices together."""
        return math.fsum(unit.joules for unit in self.units) + self.idle_joules

    @property
    def idle_watts(self) -> float:
        """Idle power of all devices together."""
        return math.fsum(unit.idle_watts * len(unit.members) for unit in self.units)

    @property
    def idle_joules(self) -> float:
        """Energy of a round that idle power takes, in which the server waits for all units."""
        return self.idle_watts * self.round_seconds if self.idle_watts else 0.0

    def unit_joules(self, index: int) -> float:
        """Energy of a round of one unit, with its idle power until the end of the round."""
        unit = self.units[index]
        if not unit.idle_watts:
            return unit.joules
        return unit.joules + unit.idle_watts * len(unit.members) * self.round_seconds

    @property
    def joules_of_updates(self) -> tuple[float, float]:
        """Energy of one local update of all units, and of a round without its updates.

        Idle power counts for as long as the slowest update and all uplinks take.
        """
        update = sum(unit.update_joules for unit in self.units)
        fixed = sum(unit.fixed_joules for unit in self.units)
        if not self.idle_watts:
            return update, fixed
        seconds = max(unit.per_update.seconds for unit in self.units)
        rest = self.with_updates([1] * len(self.units)).round_seconds - seconds
        return update + self.idle_watts * seconds, fixed + self.idle_watts * rest

    @property
    def saved_joules(self) -> float:
        """Energy that devices save in a round by computing more slowly."""
        return math.fsum(unit.dvfs.joules for unit in self.units if unit.dvfs)

    def idle_seconds(self, index: int) -> float:
        """How long a unit neither computes nor sends in a round."""
        unit = self.units[index]
        busy = unit.downlink_seconds + unit.compute_seconds + unit.transmit_seconds
        return max(0.0, self.round_seconds - busy - unit.dvfs_seconds)

    def repriced(self, world: World) -> Plan:
        """The same plan with the seconds, joules and payloads that its units have in a world."""
        width = world.config.radio.bits_per_parameter
        bits = [payload_bits(unit.codec, self.parameters, width) for unit in self.units]
        units = with_columns(self.units, payload_bits=bits)
        costs = full_speed_costs(
            world,
            units,
            self.parameters,
            burst=self.burst,
            gather_burst=self.gather_burst,
        )
        columns = costs.columns(np.array([float(unit.local_updates) for unit in units]))
        slow: Sequence[UnitDvfs | None] = [None] * len(units)
        if self.dvfs != "none":
            slow = dvfs_of_units(costs, self.dvfs_costs(costs, units), units, world)
        return replace(self, units=with_columns(units, **columns, dvfs=slow))

    def with_dvfs(self, world: World, together: bool = True) -> Plan:
        """The same plan with devices that slow down where they would wait.

        Parameters:
            world: the fleet.
            together: whether the server waits for all units. Only then can a whole unit be late
                without a change; otherwise members wait for the slowest of their unit only.

        Returns:
            The plan, with the same seconds; with the printed readings.compute_model, this plan,
            because by that formula a slower device spends more.
        """
        if world.config.readings.compute_model == "literal":
            return self
        kind: DvfsKind = "units" if together else "members"
        return replace(self, dvfs=kind).repriced(world)

    def dvfs_costs(self, costs: Costs, units: Sequence[Unit], together: bool = True) -> Costs:
        """What units cost with this plan's slow-down, from their costs at full speed."""
        kind = self.dvfs if together or self.dvfs == "none" else "members"
        return with_dvfs(costs, units, self.access, kind)

    def expected_seconds(self, costs: Costs, units: Sequence[Unit], together: bool) -> Float64:
        """How long each of these units takes part in a round, if no other unit sends.

        It is the whole round if the server waits for all of them together, and otherwise until its
        own update has arrived.
        """
        ready = costs.ready_seconds(np.array([float(unit.local_updates) for unit in units]))
        end = arrivals(ready, costs.uplink_seconds, self.access, costs.queues)
        return np.full(len(units), end.max()) if together else end

    def to_dict(self, world: World) -> dict[str, Any]:
        """The plan as plain data, with the devices it is for."""
        names = plan_io.device_names(world)
        document: dict[str, Any] = {
            "scheme": self.scheme,
            "seed": self.seed,
            "parameters": self.parameters,
            "access": self.access,
            "devices": plan_io.device_dicts(world, names),
            "units": [
                {**plan_io.unit_dict(unit, names), "idle_seconds": self.idle_seconds(index)}
                for index, unit in enumerate(self.units)
            ],
            "round_seconds": self.round_seconds,
            "round_joules": self.round_joules,
        }
        if self.dvfs != "none":
            document |= {"dvfs": self.dvfs, "saved_joules": self.saved_joules}
        if self.air is not None:
            document["air"] = air_to_dict(self.air)
        if self.gathers_together:
            document["gathers_together"] = True
        if self.allocation is not None:
            answer = self.allocation.to_dict()
            # Units hold what was decided, and wall time would make files of one plan differ.
            document["allocation"] = {k: answer[k] for k in answer if k not in plan_io.NOT_SAVED}
        return document

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], source: str = "plan") -> Plan:
        """The plan that `to_dict` wrote; `source` is named in errors."""
        try:
            place = {device["id"]: index for index, device in enumerate(data["devices"])}
            units = tuple(plan_io.read_unit(unit, place) for unit in data["units"])
            dvfs: Any = plan_io.read_dvfs(data) or "none"
            if dvfs not in DVFS_KINDS:
                raise ValueError(f"dvfs = {dvfs}")
            return cls(
                scheme=data["scheme"],
                seed=data["seed"],
                parameters=data["parameters"],
                access=data["access"],
                units=units,
                allocation=plan_io.read_allocation(data.get("allocation"), units),
                dvfs=dvfs,
                air=air_from_dict(data.get("air")),
                gathers_together=bool(data.get("gathers_together", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{source}: is not a plan that this version wrote ({type(error).__name__}: {error})"
            ) from None

    def to_csv(self, world: World) -> str:
        """The plan as CSV for other tools, a row per unit; members are separated by semicolons.

        `uplink_share` is the share of a round in which the unit's leader sends. `base_station` is
        the id of its base station, or 0 where no file names it.
        """
        return plan_io.units_csv(self.units, world, self.round_seconds, self.access == TOGETHER)

    def __repr__(self) -> str:
        devices = sum(len(unit.members) for unit in self.units)
        return (
            f"Plan({self.scheme}: {len(self.units)} units of {devices} devices; a round of all "
            f"takes {self.round_seconds:.4g} s and {self.round_joules:.4g} J)"
        )

    def _repr_html_(self) -> str:
        """A table of the units for notebooks, with the totals of a round."""
        cost = f"a round of all units takes {self.round_seconds:.4g} s, {self.round_joules:.4g} J"
        joules = [self.unit_joules(index) for index in range(len(self.units))]
        return plan_io.units_html(self.units, joules, self.scheme, cost)
