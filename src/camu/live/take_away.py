"""What a page can take away: configuration, plan, tables and charts."""

from __future__ import annotations

import base64
import csv
import io
import json
import zipfile
from typing import Any

import vl_convert

from camu.config import Config
from camu.errors import InputError
from camu.live.fleet_edits import fleet_csv
from camu.live.planner import Planner, commands
from camu.live.state import PageState
from camu.planning.plan import Plan
from camu.report import rows
from camu.report.panels import PLAN_PANELS, Panel
from camu.report.style import VEGA_LITE_VERSION, theme
from camu.schemes import make_scheme
from camu.schemes.registry import configs_for, plan_for
from camu.world import World

KINDS = ("config.toml", "plan.json", "units.csv", "devices.csv", "fleet.csv", "all.zip")
CHARTS = {panel.key: panel for panel in PLAN_PANELS if panel.key != "ppo"}
_TYPES = {
    "toml": "application/toml",
    "json": "application/json",
    "csv": "text/csv",
    "svg": "image/svg+xml",
    "zip": "application/zip",
}
_CHART_WIDTH = 520


def take(planner: Planner, state: PageState, what: str, scheme: str) -> dict[str, Any]:
    """A file with its name, type and content in base64; `what` is one of KINDS or a chart's SVG."""
    if scheme not in state.schemes:
        raise InputError(f"scheme.name = {scheme[:80]!r}: this page does not show it")
    config = configs_for(planner.config(state), state.schemes)[scheme]
    world = planner.world(config)
    files = _Files(config, world, plan_for(make_scheme(config), world), state.schemes)
    content = files.content(what)
    return {
        "name": what if what in KINDS else f"camu-{what}",
        "type": _TYPES[what.rpartition(".")[2]],
        "content": base64.b64encode(content).decode(),
    }


class _Files:
    """The files of one scheme in one world."""

    def __init__(self, config: Config, world: World, plan: Plan, schemes: list[str]) -> None:
        self.config, self.world, self.plan, self.schemes = config, world, plan, schemes

    def content(self, what: str) -> bytes:
        """The bytes of a file."""
        if what == "all.zip":
            return self._zip()
        if what == "config.toml":
            return self._toml().encode()
        if what == "plan.json":
            return (json.dumps(self.plan.to_dict(self.world), indent=2) + "\n").encode()
        if what == "units.csv":
            return _units_csv(self.plan, self.world).encode()
        if what == "devices.csv":
            return _devices_csv(self.plan, self.world).encode()
        if what == "fleet.csv":
            return fleet_csv(self.world.devices).encode()
        panel = CHARTS.get(what.removesuffix(".svg"))
        if panel is None or not what.endswith(".svg"):
            raise InputError(f"{what[:80]!r}: there is no such file to take away")
        return self._chart(panel).encode()

    def _toml(self) -> str:
        """The configuration; a fleet file is named as it is taken away, next to it."""
        if self.config.fleet.file is None:
            return self.config.to_toml()
        fleet = self.config.fleet.model_copy(update={"file": "fleet.csv"})
        return self.config.model_copy(update={"fleet": fleet}).to_toml()

    def _zip(self) -> bytes:
        data = io.BytesIO()
        names = ["config.toml", "plan.json", "units.csv", "devices.csv"]
        if self.config.fleet.file is not None:
            names.append("fleet.csv")
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, self.content(name))
            archive.writestr("commands.txt", commands(self.schemes) + "\n")
        return data.getvalue()

    def _chart(self, panel: Panel) -> str:
        """A chart of the plan, drawn as the report draws it."""
        plan, links = self.plan.to_dict(self.world), self.world.links
        tables: dict[str, Any] = {
            **rows.plan_rows(plan, self.world.base_stations.tolist(), links),
            "threshold": rows.threshold_rows(self.config, plan),
            "snr": rows.snr_rows(plan, links),
        }
        spec = panel.spec(_CHART_WIDTH, title=True)
        spec |= {"height": panel.height(len(tables["units"])), "config": theme(), "padding": 8}
        spec["datasets"] = {**spec.get("datasets", {}), **tables}
        text: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
        return text


def _units_csv(plan: Plan, world: World) -> str:
    """A line per unit: who, how much it counts, what it does and what that costs."""
    ids, text = world.devices.ids, io.StringIO()
    names = [
        "weight",
        "local_updates",
        "power_watts",
        "samples",
        "wasserstein",
        "contribution",
        "multi_update",
        "compute_seconds",
        "gather_seconds",
        "uplink_seconds",
        "compute_joules",
        "gather_joules",
        "uplink_joules",
    ]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["unit", "leader", "members", *names])
    for index, unit in enumerate(plan.units):
        members = " ".join(ids[k] for k in unit.members)
        values = [getattr(unit, name) for name in names]
        writer.writerow([index, ids[unit.leader], members, *values])
    return text.getvalue()


def _devices_csv(plan: Plan, world: World) -> str:
    """A line per device: where it is, its unit, its role and its link."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["id", "x", "y", "region", "samples", "cpu_hz", "snr_db", "unit", "role", "local_updates"]
    )
    drawn = rows.device_rows(plan.to_dict(world), world.links)
    speed = dict(zip(world.devices.ids, world.devices.cpu_hz.tolist(), strict=True))
    for row in drawn:
        own = [row[name] for name in ("device", "x", "y", "region", "samples")]
        rest = [row[name] for name in ("snr", "cluster", "role", "updates")]
        writer.writerow([*own, speed[row["device"]], *rest])
    return text.getvalue()
