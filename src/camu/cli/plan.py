"""`camu plan`: clusters, leaders, contributions, updates, powers and costs, without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from camu.cli.batteries import leaders_that_end, lifetime_of, show_lifetime
from camu.cli.options import ConfigFile, Json, Preset, Scheme, Seed, Settings, resolve
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.config import Config
    from camu.schemes import Plan
    from camu.world import World

_MOST_ROWS = 40
_BAR_CHARACTERS = 20


def plan(
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    fleet: Annotated[
        str | None,
        typer.Option("--fleet", metavar="FILE", help="Your fleet as CSV or JSON (docs/fleet.md)."),
    ] = None,
    snr: Annotated[
        str | None,
        typer.Option(
            "--snr", metavar="FILE", help="Measured device-to-device SNR in dB, for --fleet."
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE", help="Save a picture: .svg, .png, .pdf or .html."),
    ] = None,
    problem: Annotated[
        Path | None,
        typer.Option(
            "--problem", metavar="FILE", help="Save problem P1 of the clusters for camu allocate."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan a fleet: who clusters with whom, who leads, how often each updates, what a round costs.

    Nothing is trained. With --fleet the devices come from your file, and the rest from the preset
    `paper` unless you name another. With batteries it also says when devices are empty.
    """
    if fleet is not None and file is None and preset is None:
        preset = "paper"
    files = {"fleet.file": fleet, "fleet.snr_file": snr}
    world, made = _make(resolve(file, preset, settings, seed, scheme, files))
    if figure is not None:
        _save_figure(made, world, figure)
    if problem is not None:
        _save_problem(world, problem)
    lifetime = lifetime_of(made, world)
    if lifetime is not None:
        _warn(leaders_that_end(lifetime, made, world))
    if as_json:
        document = made.to_dict(world)
        if lifetime is not None:
            names = [device["id"] for device in document["devices"]]
            document["batteries"] = lifetime.to_dict(made, names)
        print(json.dumps(document))
        return
    console = Console(emoji=False)
    show_plan(made, world, console)
    if lifetime is not None:
        show_lifetime(lifetime, made, world, console)
    if figure is not None:
        print(f"picture: {figure}")
    if problem is not None:
        print(f"problem: {problem}")


def _make(config: Config) -> tuple[World, Plan]:
    """The world and its plan, with warnings on stderr."""
    from camu.schemes import make_scheme
    from camu.schemes.registry import plan_for
    from camu.world import build_world

    if config.fleet.snr_file is not None and config.fleet.file is None:
        raise InputError("--snr: it belongs to a fleet; give --fleet FILE too")
    stderr = Console(stderr=True, emoji=False)
    with stderr.status("building the world"):
        world = build_world(config)
    with stderr.status(f"planning with {config.scheme.name}"):
        made = plan_for(make_scheme(config), world)
    _warn(world.warnings(made.parameters))
    return world, made


def _warn(warnings: list[str]) -> None:
    stderr = Console(stderr=True, emoji=False)
    for warning in warnings:
        stderr.print(f"warning: {warning}", style="yellow", soft_wrap=True, highlight=False)


def _save_figure(plan: Plan, world: World, path: Path) -> None:
    from camu.report.figures import plan_figure
    from camu.report.style import save

    save(plan_figure(plan, world), path)


def _save_problem(world: World, path: Path) -> None:
    """Write P1 as `camu-joint` states it for this world."""
    from camu.files import write_json
    from camu.schemes import clusters
    from camu.schemes.joint import CamuJoint

    scheme = world.config.scheme
    joint = CamuJoint(scheme.threshold, scheme.threshold_quantile, scheme.max_extra_updates)
    write_json(path, joint.problem(clusters(world)).to_dict())


def show_plan(plan: Plan, world: World, console: Console) -> None:
    """The plan as two tables: who the units are, and what a round costs each of them.

    Of many units it shows how their numbers are spread.
    """
    if len(plan.units) > _MOST_ROWS:
        console.print(_spread(plan))
        console.print("--json lists every unit.")
    else:
        shown = range(len(plan.units))
        console.print(_who(plan, world, shown))
        console.print()
        console.print(_costs(plan, shown))
    compute = sum(unit.compute_joules for unit in plan.units)
    receive = sum(unit.receive_joules for unit in plan.units)
    received = f", {receive:.3g} receiving" if receive else ""
    down = plan.units[0].downlink_seconds * world.config.radio.bs_power_watts
    station = f" The base station spends {down:.3g} J." if down else ""
    console.print(
        f"\n{plan.scheme}: {_count(len(plan.units), 'unit')} of "
        f"{_count(world.devices.count, 'device')}. A round takes "
        f"{plan.round_seconds:.4g} s and {plan.round_joules:.4g} J "
        f"({compute:.3g} computing, {plan.round_joules - compute - receive:.3g} sending"
        f"{received}).{station}",
        highlight=False,
    )


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _spread(plan: Plan) -> Table:
    """The smallest, the largest and three quantiles of each number, over all units."""
    import numpy as np

    units = plan.units
    numbers: dict[str, list[float]] = {
        "members": [len(unit.members) for unit in units],
        "samples": [unit.samples for unit in units],
        "W": [unit.wasserstein for unit in units],
        "theta": [unit.contribution for unit in units],
        "weight": [unit.weight for unit in units],
        "N": [unit.local_updates for unit in units],
        "power W": [unit.power_watts for unit in units],
        "compute s": [unit.compute_seconds for unit in units],
        "send s": [unit.transmit_seconds for unit in units],
        "wait s": [plan.idle_seconds(index) for index in range(len(units))],
        "J": [unit.joules for unit in units],
    }
    title = f"{len(units)} units, from the smallest number to the largest"
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    table.add_column("of a unit")
    for name in ("smallest", "10 %", "median", "90 %", "largest"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, values in numbers.items():
        shown = np.quantile(values, (0.0, 0.1, 0.5, 0.9, 1.0), method="nearest")
        table.add_row(name, *(f"{value:.4g}" for value in shown.tolist()))
    return table


def _who(plan: Plan, world: World, shown: range) -> Table:
    ids, regions = world.devices.ids, world.devices.regions
    table = Table(title="Units", title_justify="left", box=None, header_style="bold")
    for name in ("unit", "where", "members", "leader"):
        table.add_column(name, overflow="fold")
    for name in ("samples", "W", "theta", "multi", "weight"):
        table.add_column(name, justify="right", no_wrap=True)
    for index in shown:
        unit = plan.units[index]
        places = sorted({regions[device] for device in unit.members})
        table.add_row(
            str(index),
            ", ".join(places),
            _some([ids[device] for device in unit.members]),
            ids[unit.leader],
            f"{unit.samples:,}",
            f"{unit.wasserstein:.2f}",
            f"{unit.contribution:.4g}",
            "yes" if unit.multi_update else "no",
            f"{unit.weight:.4f}",
        )
    return table


def _costs(plan: Plan, shown: range) -> Table:
    table = Table(title="A round", title_justify="left", box=None, header_style="bold")
    for name in ("unit", "N", "power W", "compute s", "send s", "wait s", "J"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("[blue]compute[/] [yellow]send[/] [dim]wait[/]", no_wrap=True)
    for index in shown:
        unit = plan.units[index]
        idle = plan.idle_seconds(index)
        table.add_row(
            str(index),
            str(unit.local_updates),
            f"{unit.power_watts:.3g}",
            f"{unit.compute_seconds:.3f}",
            f"{unit.transmit_seconds:.3f}",
            f"{idle:.3f}",
            f"{unit.joules:.3f}",
            _bar(unit.compute_seconds, unit.transmit_seconds, plan.round_seconds),
        )
    return table


def _bar(compute: float, transmit: float, total: float) -> str:
    first = round(_BAR_CHARACTERS * compute / total)
    second = max(1, round(_BAR_CHARACTERS * transmit / total))
    second = min(second, _BAR_CHARACTERS - first)
    rest = _BAR_CHARACTERS - first - second
    return f"[blue]{'█' * first}[/][yellow]{'▓' * second}[/][dim]{'░' * rest}[/]"


def _some(names: list[str], most: int = 8) -> str:
    more = f" +{len(names) - most}" if len(names) > most else ""
    return " ".join(names[:most]) + more
