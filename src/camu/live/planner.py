"""Plans for a page: the world, every scheme's plan, and all numbers and rows that it shows."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from camu.arrays import Int64, decibels
from camu.config import Config, DataConfig
from camu.data import federate
from camu.data.catalog import CATALOG
from camu.data.store import is_cached
from camu.errors import CamuError, InputError
from camu.live.fleet_facts import battery_rows, lost, lost_words, station_names
from camu.live.settings import (
    LARGEST_FLEET,
    FleetEdits,
    PageState,
    configured,
    edited,
    faults,
    in_metres,
    plain,
)
from camu.planning.air_words import unused_errors
from camu.planning.central import send_data
from camu.planning.codecs import parameter_count
from camu.planning.link_words import unsendable
from camu.planning.secure_words import not_hidden
from camu.report import rows
from camu.report.style import PALETTE
from camu.schemes import make_scheme, plans
from camu.schemes.registry import configs_for
from camu.simulation.dry_run import round_cost
from camu.world import World, build_world
from camu.world.fleet_file import parse_fleet
from camu.world.places import Origin
from camu.world.tables import Table, read_table
from camu.world.world import world_of_fleet


class Planner:
    """Answers pages from the configuration that the server was started with.

    `folder` is the server's run directory; edited fleet files are written there.
    """

    def __init__(self, base: Config, folder: Path) -> None:
        self.base, self.folder = base, folder

    @cached_property
    def _fleet(self) -> tuple[Table, Origin | None]:
        """The rows of the server's fleet file, with places in metres, and what these start from."""
        table = read_table(Path(str(self.base.fleet.file)))
        fleet = parse_fleet(table, None, self.base)
        return in_metres(table, fleet), fleet.origin

    def table(self, state: PageState) -> Table:
        """The rows of the fleet file with a page's edits."""
        edits = state.fleet or FleetEdits()
        if self.base.fleet.snr_file is not None and (edits.added or edits.removed):
            raise InputError(
                "fleet.snr_file: the measured SNR is for the devices of the fleet file, so none "
                "can be added or removed here"
            )
        return edited(self._fleet[0], edits)

    def world(self, config: Config, state: PageState) -> World:
        """The world of a page; the partition of unchanged data is kept."""
        if config.fleet.file is None:
            counts = _label_counts(config.data, config.fleet.devices, config.run.seed)
            return build_world(config, label_counts=counts)
        origin = self._fleet[1]
        fleet = parse_fleet(self.table(state), config.fleet.snr_file, config, origin)
        world = world_of_fleet(config, fleet)
        if world.devices.count > LARGEST_FLEET:
            raise InputError(
                f"fleet.file: {world.devices.count} devices; a live page shows at most "
                f"{LARGEST_FLEET}"
            )
        return world

    def plan(self, state: PageState) -> dict[str, Any]:
        """Everything that a page shows; `errors` in place of plans where something is wrong."""
        try:
            config = configured(self.base, state)
            world = self.world(config, state)
            schemes = {
                name: _scheme(world, own)
                for name, own in configs_for(config, state.schemes).items()
            }
        except (CamuError, ArithmeticError) as error:
            return {"errors": faults(error)}
        left = {} if state.fleet is None else lost(self._fleet[0], state.fleet)
        return {
            "errors": [],
            "warnings": [
                *lost_words(left),
                *world.warnings(parameter_count(world)),
                # Schemes with the same updates say the same.
                *dict.fromkeys(text for own in schemes.values() for text in own["notes"]),
            ],
            "commands": commands(state.schemes),
            "values": {
                key: plain(value)
                for key, value in config.flat().items()
                if key not in ("fleet.positions", "fleet.file")
            },
            "world": {**_world(world), "lost": left, "station_names": station_names(config)},
            "schemes": schemes,
        }


def commands(schemes: list[str]) -> str:
    """The command lines that do the same with the configuration that a page hands out."""
    lines = ["camu plan -c config.toml", "camu run -c config.toml --out runs/mine"]
    if len(schemes) > 1:
        names = shlex.quote(",".join(schemes))
        lines.append(f"camu compare -c config.toml --schemes {names} --seeds 5")
    return "\n".join(lines)


@lru_cache(maxsize=8)
def _label_counts(data: DataConfig, devices: int, seed: int) -> Int64:
    """Samples per device and label; a data set that would have to be fetched is refused."""
    known = CATALOG.get(data.dataset)
    if known is not None and data.directory is None and not is_cached(known):
        raise InputError(
            f"data.dataset = {data.dataset}: is not on this machine; fetch it with "
            f"camu data fetch {data.dataset}"
        )
    return federate(data, devices, seed).label_counts


def _world(world: World) -> dict[str, Any]:
    devices, links, battery = world.devices, world.links, world.devices.battery_joules
    shown = np.arange(min(devices.count, rows.LARGEST_MATRIX))
    matrix = links.device_snr_db(shown, shown)
    uplink = decibels(links.uplink_snr())
    np.fill_diagonal(matrix, uplink[: len(shown)])
    return {
        "stations": world.base_stations.tolist(),
        "station_moves": world.config.fleet.base_station_file is None,
        "noise_dbm": rows.short(float(decibels(np.float64(links.noise_watts))) + 30.0),
        "file": world.config.fleet.file is not None,
        "devices": [
            {
                "id": name,
                "at": None if np.isnan(devices.positions[k, 0]) else devices.positions[k].tolist(),
                "region": devices.regions[k],
                "samples": int(devices.samples[k]),
                "main": rows.main_labels(devices.label_counts[k].tolist()),
                "cpu_hz": float(devices.cpu_hz[k]),
                "cycles_per_sample": float(devices.cycles_per_sample[k]),
                "board": devices.board[k] or None,
                "snr_db": round(float(uplink[k]), 1),
                "battery_joules": None if np.isnan(battery[k]) else float(battery[k]),
                "link": devices.link[k],
                "station": int(links.serving[k]),
            }
            for k, name in enumerate(devices.ids)
        ],
        "snr_db": np.round(matrix, 1).tolist(),
    }


def _scheme(world: World, config: Config) -> dict[str, Any]:
    """The plan of a scheme: its units by device number, its totals, and the rows of its charts."""
    scheme = make_scheme(config)
    plan = plans.plan(scheme, world)  # all schemes share the clusters that this world keeps
    cost = round_cost(replace(world, config=config), scheme, plan)
    answer = plan.allocation  # None for schemes that solve no P1
    document = plan.to_dict(world)
    sent = world.cached("sending all data", lambda: send_data(world).bill)
    batteries = battery_rows(world, scheme, plan)
    return {
        "notes": [*unsendable(plan, world), *unused_errors(plan, world), *not_hidden(plan, world)],
        "units": [
            {
                "members": list(unit.members),
                "leader": unit.leader,
                "weight": unit.weight,
                "updates": unit.local_updates,
                "power_watts": unit.power_watts,
                "link": unit.link,
                "contribution": unit.contribution,
                "wasserstein": unit.wasserstein,
                "gate": rows.gate(unit.multi_update),
                "samples": unit.samples,
                "seconds": unit.compute_seconds + unit.dvfs_seconds + unit.transmit_seconds,
                "joules": plan.unit_joules(index),
                "colour": PALETTE[index % len(PALETTE)],
            }
            for index, unit in enumerate(plan.units)
        ],
        "bars": rows.shown_bars(len(plan.units)),
        "days": batteries,
        "totals": {
            "clusters": len(plan.units),
            "repeating": rows.repeating(document),
            "updates": sum(unit.local_updates for unit in plan.units),
            "seconds": cost.seconds,
            "joules": cost.joules,
            "compute_joules": cost.compute_joules,
            "transmit_joules": cost.transmit_joules,
            "receive_joules": cost.receive_joules or None,
            "idle_joules": cost.idle_joules or None,
            "megabytes": cost.megabytes,
            **{
                f"{when}_days_{name}": batteries and batteries[f"{when}_{name}"]
                for when in ("first", "median")
                for name in ("with", "without")
            },
            "objective": None if answer is None else answer.objective,
            "gap": None if answer is None else answer.gap,
            "shadow_price": None if answer is None else answer.shadow_price,
            "spent_joules": None if answer is None else plan.round_joules + plan.saved_joules,
            **{f"data_{name}": value for name, value in sent._asdict().items()},
        },
        "tables": {
            "timeline": rows.timeline_rows(plan),
            "threshold": rows.threshold_rows(config, document),
            "labels": rows.label_rows(document),
        },
    }
