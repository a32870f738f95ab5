"""Plans for a page: the world, every scheme's plan, and all numbers and rows that it shows."""

from __future__ import annotations

import hashlib
import os
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
from camu.files import write_text
from camu.live.controls import plain
from camu.live.fleet_edits import edited_csv
from camu.live.state import LARGEST_FLEET, PageState, configured, faults
from camu.planning.plan import Plan
from camu.report import rows
from camu.report.style import PALETTE
from camu.schemes import make_scheme
from camu.schemes.registry import configs_for, plan_for
from camu.world import World, build_world
from camu.world.table import Table, read_table


class Planner:
    """Answers pages from the configuration that the server was started with.

    `folder` is the server's run directory; edited fleet files are written there.
    """

    def __init__(self, base: Config, folder: Path) -> None:
        self.base, self.folder = base, folder

    @cached_property
    def table(self) -> Table:
        """The rows of the fleet file that the server was started with."""
        assert self.base.fleet.file is not None
        return read_table(Path(self.base.fleet.file))

    def config(self, state: PageState, keep: bool = False) -> Config:
        """The configuration of a page; an edited fleet is a file in the run directory.

        With `keep` the file stays, for a training; otherwise the next edit overwrites it.
        """
        config = configured(self.base, state)
        if self.base.fleet.file is None or state.fleet is None:
            return config
        edits = state.fleet
        if self.base.fleet.snr_file is not None and (edits.added or edits.removed):
            raise InputError(
                "fleet.snr_file: the measured SNR is for the devices of the fleet file, so none "
                "can be added or removed here"
            )
        text = edited_csv(self.table, edits)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        path = self.folder / "fleets" / f"{digest if keep else f'now-{os.getpid()}'}.csv"
        if not (keep and path.exists()):
            write_text(path, text)
        return config.model_copy(
            update={"fleet": config.fleet.model_copy(update={"file": str(path)})}
        )

    def world(self, config: Config) -> World:
        """The world of a configuration; the partition of unchanged data is kept."""
        if config.fleet.file is not None:
            world = build_world(config)
            if world.devices.count > LARGEST_FLEET:
                raise InputError(
                    f"fleet.file: {world.devices.count} devices; a live page shows at most "
                    f"{LARGEST_FLEET}"
                )
            return world
        counts = _label_counts(config.data, config.fleet.devices, config.run.seed)
        return build_world(config, label_counts=counts)

    def plan(self, state: PageState) -> dict[str, Any]:
        """Everything that a page shows; `errors` in place of plans where something is wrong."""
        try:
            config = self.config(state)
            world = self.world(config)
            configs = configs_for(config, state.schemes)
            plans = {name: plan_for(make_scheme(own), world) for name, own in configs.items()}
        except (CamuError, ArithmeticError) as error:
            return {"errors": faults(error)}
        first = next(iter(plans.values()))
        return {
            "errors": [],
            "warnings": world.warnings(first.parameters),
            "commands": commands(state.schemes),
            "values": {
                key: plain(value)
                for key, value in config.flat().items()
                if key not in ("fleet.positions", "fleet.file")
            },
            "world": _world(world),
            "schemes": {
                name: _scheme(plan, replace(world, config=configs[name]))
                for name, plan in plans.items()
            },
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
    devices, links = world.devices, world.links
    shown = np.arange(min(devices.count, rows.LARGEST_MATRIX))
    matrix = links.device_snr_db(shown, shown)
    uplink = decibels(links.uplink_snr())
    np.fill_diagonal(matrix, uplink[: len(shown)])
    return {
        "station": list(world.config.fleet.base_station),
        "noise_dbm": rows.short(float(decibels(np.float64(links.noise_watts))) + 30.0),
        "file": world.config.fleet.file is not None,
        "devices": [
            {
                "id": name,
                "at": _place(devices.positions[k].tolist()),
                "region": devices.regions[k],
                "samples": int(devices.samples[k]),
                "main": _main_labels(tuple(devices.label_counts[k].tolist())),
                "cpu_hz": float(devices.cpu_hz[k]),
                "snr_db": rows.short(float(uplink[k])),
                "battery_joules": _or_none(float(devices.battery_joules[k])),
            }
            for k, name in enumerate(devices.ids)
        ],
        "snr_db": np.round(matrix, 1).tolist(),
    }


@lru_cache(maxsize=4 * LARGEST_FLEET)
def _main_labels(counts: tuple[int, ...]) -> str:
    """They are the same while a device is dragged."""
    return rows.main_labels(list(counts))


def _place(position: list[float]) -> list[float] | None:
    return None if np.isnan(position[0]) else position


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _scheme(plan: Plan, world: World) -> dict[str, Any]:
    """One scheme: its units by device number, its totals, and the rows of its charts."""
    document = plan.to_dict(world)
    compute = sum(unit.compute_joules for unit in plan.units)
    return {
        "units": [
            {
                "members": list(unit.members),
                "leader": unit.leader,
                "weight": unit.weight,
                "updates": unit.local_updates,
                "power_watts": unit.power_watts,
                "contribution": unit.contribution,
                "wasserstein": unit.wasserstein,
                "multi": unit.multi_update,
                "samples": unit.samples,
                "seconds": unit.compute_seconds + unit.slow_seconds + unit.transmit_seconds,
                "joules": unit.joules,
                "colour": PALETTE[index % len(PALETTE)],
            }
            for index, unit in enumerate(plan.units)
        ],
        "totals": {
            "clusters": len(plan.units),
            "multi": sum(unit.multi_update for unit in plan.units),
            "updates": sum(unit.local_updates for unit in plan.units),
            "seconds": plan.round_seconds,
            "joules": plan.round_joules,
            "compute_joules": compute,
            "transmit_joules": plan.round_joules - compute,
            **_certificate(plan),
        },
        "binding": [] if plan.allocation is None else list(plan.allocation.binding),
        "tables": {
            "timeline": rows.timeline_rows(plan),
            "units": rows.unit_rows(document),
            "threshold": rows.threshold_rows(world.config, document),
            "labels": rows.label_rows(document),
        },
    }


def _certificate(plan: Plan) -> dict[str, float | None]:
    """What P1 was solved to; None for schemes that solve no such problem."""
    answer = plan.allocation
    if answer is None:
        return dict.fromkeys(("objective", "gap", "shadow_price", "spent_joules"))
    return {
        "objective": answer.objective,
        "gap": answer.gap,
        "shadow_price": answer.shadow_price,
        "spent_joules": answer.energy_joules,
    }
