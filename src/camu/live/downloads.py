"""The files that a page can download: configuration, plan, tables and charts."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.files import read_bytes, to_csv, write_text
from camu.live.fleet_facts import station_names
from camu.live.planner import Planner, commands
from camu.live.settings import PageState, configured
from camu.planning.plan import Plan
from camu.report import rows
from camu.report.charts import PLAN_PANELS, chart, quiet, svg
from camu.schemes import make_scheme, plans
from camu.schemes.registry import configs_for
from camu.simulation.manifest import INPUT_FILES
from camu.world import World
from camu.world.boards import built_in
from camu.world.devices import Devices
from camu.world.places import stations_csv
from camu.world.tables import Table

TYPES = {
    "config.toml": "application/toml",
    "plan.json": "application/json",
    "units.csv": "text/csv",
    "devices.csv": "text/csv",
    "fleet.csv": "text/csv",
    "stations.csv": "text/csv",
    "all.zip": "application/zip",
}
CHARTS = {panel.key: panel for panel in PLAN_PANELS if panel.key not in ("ppo", "spending")}
_CHART_WIDTH = 520


def download(planner: Planner, state: PageState, what: str, scheme: str) -> dict[str, Any]:
    """A file with its name, type and content in base64; `what` is in TYPES or a chart's SVG."""
    if scheme not in state.schemes:
        raise InputError(f"scheme.name = {scheme[:80]!r}: this page does not show it")
    if what not in TYPES and what.removesuffix(".svg") not in CHARTS:
        raise InputError(f"{what[:80]!r}: there is no such file to download")
    config = configs_for(configured(planner.base, state), state.schemes)[scheme]
    world = planner.world(config, state)
    files = _Files(planner, state, world, plans.plan(make_scheme(config), world))
    return {
        "name": what if what in TYPES else f"camu-{what}",
        "type": TYPES.get(what, "image/svg+xml"),
        "content": base64.b64encode(files.content(what)).decode(),
    }


def training_config(planner: Planner, state: PageState) -> Config:
    """The configuration of a training; an edited fleet becomes a file in the run directory."""
    config = configured(planner.base, state)
    if config.fleet.file is None or state.fleet is None:
        return config
    texts = {"fleet.file": table_csv(planner.table(state))}
    if config.fleet.base_station_file is not None:
        stations = planner.world(config, state).base_stations
        texts["fleet.base_station_file"] = stations_csv(stations, station_names(config))
    files = {}
    for key, text in texts.items():
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        path = planner.folder / "fleets" / f"{digest}.csv"
        if not path.exists():
            write_text(path, text)
        files[key] = str(path)
    return _with_latitude(config, planner.world(config, state)).replace(files)


def _with_latitude(config: Config, world: World) -> Config:
    """The configuration with the sun of a fleet whose places are no longer in degrees."""
    if world.latitude is None or not world.devices.solar_watts_peak.any():
        return config
    return config.replace({"fleet.latitude": world.latitude})


class _Files:
    """The files of one scheme in one world."""

    def __init__(self, planner: Planner, state: PageState, world: World, plan: Plan) -> None:
        self.planner, self.state, self.world, self.plan = planner, state, world, plan

    def content(self, what: str) -> bytes:
        """The bytes of a file."""
        world, plan = self.world, self.plan
        if what == "all.zip":
            return self._zip()
        if what == "config.toml":
            text = self._config().to_toml()
        elif what == "plan.json":
            text = json.dumps(plan.to_dict(world), indent=2) + "\n"
        elif what == "units.csv":
            text = plan.to_csv(world)
        elif what == "devices.csv":
            text = _devices_csv(plan, world)
        elif what == "stations.csv":
            text = stations_csv(world.base_stations, station_names(world.config))
        elif what != "fleet.csv":
            text = self._chart(what.removesuffix(".svg"))
        elif world.config.fleet.file is None:
            text = fleet_csv(world.devices)
        else:
            text = table_csv(self.planner.table(self.state))
        return text.encode()

    def _config(self) -> Config:
        """The configuration; files of the fleet are named as they are downloaded, next to it."""
        names = {"fleet.file": "fleet.csv", "fleet.base_station_file": "stations.csv"}
        given = self.world.config.flat()
        named = {k: v for k, v in names.items() if given[k] is not None}
        return _with_latitude(self.world.config, self.world).replace(named)

    def _zip(self) -> bytes:
        """All that the commands need, with the other files that the configuration names."""
        data = io.BytesIO()
        config = self._config()
        names = ["plan.json", "units.csv", "devices.csv"]
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            for key, value in config.flat().items():
                if key not in INPUT_FILES or value is None:
                    continue
                if value in ("fleet.csv", "stations.csv"):
                    names.append(value)
                else:
                    name = f"{key}{Path(value).suffix}"
                    archive.writestr(name, read_bytes(value, f"the file of {key}"))
                    config = config.replace({key: name})
            for name in names:
                archive.writestr(name, self.content(name))
            archive.writestr("config.toml", config.to_toml())
            archive.writestr("commands.txt", commands(self.state.schemes) + "\n")
        return data.getvalue()

    def _chart(self, key: str) -> str:
        """A chart of the plan, drawn as the report draws it."""
        plan, links = self.plan.to_dict(self.world), self.world.links
        stations = self.world.base_stations.tolist()
        tables: dict[str, Any] = {
            **rows.plan_rows(plan, stations, links, rows.full_batteries(self.world)),
            "threshold": rows.threshold_rows(self.world.config, plan),
            "snr": rows.snr_rows(plan, links),
        }
        panel = CHARTS[key]
        height = panel.height(len(tables["units"]))
        drawn = chart(key, width=_CHART_WIDTH, height=height, title=panel.title)
        return svg(quiet(drawn, tables))


def _devices_csv(plan: Plan, world: World) -> str:
    """A line per device: where it is, its unit, its role and its link."""
    head = ["id", "x", "y", "region", "samples", "cpu_hz", "snr_db", "unit", "role"]
    lines: list[list[object]] = [[*head, "local_updates"]]
    drawn = rows.device_rows(plan.to_dict(world), world.links)
    speed = dict(zip(world.devices.ids, world.devices.cpu_hz.tolist(), strict=True))
    for row in drawn:
        own = [row[name] for name in ("device", "x", "y", "region", "samples")]
        rest = [row[name] for name in ("snr", "cluster", "role", "updates")]
        lines.append([*own, speed[row["device"]], *rest])
    return to_csv(lines)


def table_csv(table: Table) -> str:
    """A table as CSV that reads back as the same, to the last bit."""
    rows = ([row.get(name) for name in table.columns] for row in table.rows)
    return to_csv([table.columns, *rows])


def fleet_csv(devices: Devices) -> str:
    """Devices as a fleet file that reads back as the same devices, to the last bit."""
    numbers = {
        "x": devices.positions[:, 0],
        "y": devices.positions[:, 1],
        "z": devices.positions[:, 2],
        "cpu_hz": devices.cpu_hz,
        "cycles_per_sample": devices.cycles_per_sample,
        "capacitance": devices.capacitance,
        "power_watts": devices.power_watts,
        "max_power_watts": devices.max_power_watts,
        "battery_joules": devices.battery_joules,
        "harvest_watts": devices.harvest_watts,
        "solar_watts_peak": devices.solar_watts_peak,
        "idle_watts": devices.idle_watts,
        "static_watts": devices.static_watts,
        "sleep_watts": devices.sleep_watts,
        "rate_bps": devices.rate_bps,
    }
    labels = [f"label_{label}" for label in range(devices.label_counts.shape[1])]
    rows = (
        [
            name,
            devices.regions[k],
            devices.link[k],
            devices.board[k] if devices.board[k] in built_in() else "",  # a profile stays here
            *(float(column[k]) for column in numbers.values()),
            *devices.label_counts[k].tolist(),
        ]
        for k, name in enumerate(devices.ids)
    )
    return to_csv([["id", "region", "link", "board", *numbers, *labels], *rows])
