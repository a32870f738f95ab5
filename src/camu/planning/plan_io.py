"""The units and devices of a plan as JSON, CSV and HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from camu.files import to_csv
from camu.learning.job import LocalRule
from camu.notebook import html_table
from camu.planning.codecs import codec_from_dict, codec_to_dict
from camu.planning.costs import UpdateCost
from camu.planning.link_costs import senders
from camu.planning.queues import band_name
from camu.planning.unit import Unit, UnitDvfs
from camu.world import World
from camu.world.link_types import SHANNON
from camu.world.places import station_ids

if TYPE_CHECKING:
    from camu.allocation.answer import Allocation

NOT_SAVED = ("seconds", "clusters")  # of the answer to P1
_SHOWN_UNITS = 40  # in a notebook
_FIELDS = (
    *("weight", "local_updates", "power_watts", "update_scale", "samples", "wasserstein"),
    *("contribution", "multi_update", "uplink_seconds", "uplink_joules", "payload_bits"),
    *("downlink_seconds", "receive_watts"),
)
_OPTIONAL = {  # written where they differ from this
    "bandwidth_hz": None,
    "interference_watts": 0.0,
    "cpu_share": 1.0,
    "link": SHANNON,
    "channels": 0,
    "cell": 0,
    "wait_seconds": 0.0,
    "interference_joules": 0.0,
    "interference_listening_joules": 0.0,
    "idle_watts": 0.0,
}
_SUMS = (  # they follow from the fields
    *("compute_seconds", "gather_seconds", "transmit_seconds"),
    *("compute_joules", "gather_joules", "transmit_joules", "receive_joules"),
)

Names = list[int] | list[str]


def device_names(world: World) -> Names:
    """A fleet file's own ids; devices placed by camu are numbered."""
    if world.config.fleet.file is None:
        return list(range(world.devices.count))
    return list(world.devices.ids)


def device_dicts(world: World, names: Names) -> list[dict[str, Any]]:
    """The devices as plain data: where they are, and what data they hold."""
    devices, found = world.devices, []
    samples, labels = devices.samples.tolist(), devices.label_counts.tolist()
    epsilons = devices.label_epsilon.tolist()
    for k, position in enumerate(devices.positions.tolist()):
        device = {
            "id": names[k],
            "position": [None if math.isnan(x) else x for x in position],
            "region": devices.regions[k],
            "samples": samples[k],
            "label_counts": labels[k],
        }
        if not math.isnan(epsilons[k]):
            device["label_epsilon"] = epsilons[k]  # of the noise on its label_counts
        found.append(device)
    return found


def unit_dict(unit: Unit, names: Names) -> dict[str, Any]:
    """A unit as plain data, with these names of the devices."""
    return {
        "members": [names[k] for k in unit.members],
        "leader": names[unit.leader],
        "member_weights": list(unit.member_weights),
        **{key: getattr(unit, key) for key in (*_FIELDS, *_SUMS)},
        "per_update": dict(vars(unit.per_update)),
        "rule": {k: v for k, v in vars(unit.rule).items() if v is not None or k == "batch"},
        "codec": codec_to_dict(unit.codec),
        **({} if unit.dvfs is None else {"dvfs": dict(vars(unit.dvfs))}),
        **{k: getattr(unit, k) for k, usual in _OPTIONAL.items() if getattr(unit, k) != usual},
    }


def read_unit(data: Mapping[str, Any], place: Mapping[Any, int]) -> Unit:
    """The unit that a plan's file holds; `place` is the index of each device."""
    slow, rule = read_dvfs(data), dict(data["rule"])
    if rule["batch"] is not None and rule["batch"] > 1:
        rule["batch"] = round(rule["batch"])  # version 0.3 wrote samples as a float
    return Unit(
        members=tuple(place[name] for name in data["members"]),
        leader=place[data["leader"]],
        member_weights=tuple(data["member_weights"]),
        per_update=UpdateCost(**data["per_update"]),
        rule=LocalRule(**rule),
        codec=codec_from_dict(data["codec"]),
        dvfs=None if slow is None else UnitDvfs(**{**slow, "cpu_hz": tuple(slow["cpu_hz"])}),
        **{key: data[key] for key in _FIELDS},
        **{key: data.get(key, usual) for key, usual in _OPTIONAL.items()},
    )


def read_dvfs(data: Mapping[str, Any]) -> Any:
    """The entry `dvfs`, which was `slow_down` up to version 0.3."""
    return data.get("dvfs", data.get("slow_down"))


def read_allocation(data: Mapping[str, Any] | None, units: Sequence[Unit]) -> Allocation | None:
    """The answer to P1, where a plan has one; its powers and updates are those of the units."""
    if data is None:
        return None
    from camu.allocation.answer import Allocation  # few plans have one

    clusters = [
        {"power_watts": unit.power_watts, "extra_updates": unit.local_updates - 1} for unit in units
    ]
    return Allocation.from_dict({**data, "seconds": 0.0, "clusters": clusters})


def units_csv(
    units: Sequence[Unit], world: World, round_seconds: float, together: bool = False
) -> str:
    """A row per unit, with its leader, members and channel use; `together`: all send at once."""
    ids, serving = world.devices.ids, world.links.serving
    links, types = world.links, world.links.types
    counts = {} if together else senders(links, [unit.leader for unit in units])
    file = world.config.fleet.base_station_file
    stations = None if file is None else station_ids(file)
    own = {} if types is None else {n: kind.bandwidth_hz for n, kind in types.kinds.items()}
    rows: list[dict[str, object]] = [
        {
            "unit": number,
            "leader": ids[unit.leader],
            "members": ";".join(ids[member] for member in unit.members),
            "local_updates": unit.local_updates,
            "power_watts": unit.power_watts,
            "max_power_watts": float(world.devices.max_power_watts[unit.leader]),
            "base_station": stations[serving[unit.leader]] if stations else 0,
            "link": unit.link,
            "bandwidth_hz": unit.bandwidth_hz
            or own.get(unit.link)
            or links.share(counts.get(band_name(unit.link, unit.cell), 1)).bandwidth_hz,
            "payload_bits": unit.payload_bits,
            "uplink_seconds": unit.uplink_seconds,
            "uplink_share": unit.uplink_seconds / round_seconds,
            "gather_seconds": unit.gather_seconds,
            "compute_seconds": unit.compute_seconds + unit.dvfs_seconds,
            "compute_joules": unit.compute_joules,
            "transmit_joules": unit.transmit_joules,
            "samples": unit.samples,
            "weight": unit.weight,
        }
        for number, unit in enumerate(units)
    ]
    return to_csv([list(rows[0]), *(list(row.values()) for row in rows)])


def units_html(units: Sequence[Unit], joules: Sequence[float], scheme: str, cost: str) -> str:
    """A table of the first units for notebooks, with their joules; `cost` is that of a round."""
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
            f"{joules[index]:.3g}",
        ]
        for index, unit in enumerate(units[:_SHOWN_UNITS])
    ]
    first = f"the first {_SHOWN_UNITS} of " if len(units) > _SHOWN_UNITS else ""
    devices = sum(len(unit.members) for unit in units)
    return html_table(head, rows, f"{scheme}: {first}{len(units)} units, {devices} devices; {cost}")
