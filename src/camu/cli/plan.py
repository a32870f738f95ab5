"""`camu plan`: clusters, leaders, contributions, updates, powers and costs, without training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from camu.cli.batteries import leaders_that_end, lifetime_of, show_lifetime
from camu.cli.console import counted, fits, plain_console, print_table, stage
from camu.cli.guard import print_json
from camu.cli.options import (
    ConfigFile,
    Fleet,
    Json,
    Preset,
    Scheme,
    Seed,
    Settings,
    Snr,
    fleet_files,
    output_path,
    resolve,
)

if TYPE_CHECKING:
    from camu.config import Config
    from camu.schemes import Plan
    from camu.world import World

_MOST_ROWS = 40
_BAR_CHARACTERS = 20
_LONG = 1e5  # numbers from here on have an exponent
_LEGEND = (
    "W: distance of its labels to everyone's; theta: contribution; multi: may update more than "
    "once; N: local updates in a round."
)


Picture = Annotated[
    Path | None,
    typer.Option(
        "--figure",
        parser=output_path,
        metavar="FILE",
        help="Save a picture: .svg, .png, .pdf or .html.",
    ),
]
ProblemFile = Annotated[
    Path | None,
    typer.Option(
        "--problem",
        parser=output_path,
        metavar="FILE",
        help="Save problem P1 of the clusters for camu allocate.",
    ),
]
CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Save a row per unit as CSV, for other tools."),
]


def plan(
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    fleet: Fleet = None,
    snr: Snr = None,
    figure: Picture = None,
    problem: ProblemFile = None,
    csv_file: CsvFile = None,
    as_json: Json = False,
) -> None:
    """Plan a fleet: who clusters with whom, who leads, how often each updates, what a round costs.

    Nothing is trained. With --fleet the devices come from your file, and the rest from the preset
    `paper` unless you name another. With batteries it also says when devices are empty.
    """
    if fleet is not None and file is None and preset is None:
        preset = "paper"
    config = resolve(file, preset, settings, seed, scheme, fleet_files(fleet, snr))
    world, made = _make(config)
    if figure is not None:
        _save_figure(made, world, figure)
    if problem is not None:
        _save_problem(world, problem)
    if csv_file is not None:
        _save_csv(made, world, csv_file)
    lifetime = lifetime_of(made, world)
    if lifetime is not None:
        _warn(leaders_that_end(lifetime, made, world))
    if as_json:
        document = {**made.to_dict(world), "config_toml": config.to_toml()}
        if lifetime is not None:
            names = [device["id"] for device in document["devices"]]
            document["batteries"] = lifetime.to_dict(made, names)
        pairs = zip(document["devices"], _hardware(world), strict=True)
        document["devices"] = [{**device, **facts} for device, facts in pairs]
        print_json({**document, "bias": _bias(made, world)})
        return
    console = plain_console()
    show_plan(made, world, console)
    show_bias(made, world, console)
    if lifetime is not None:
        show_lifetime(lifetime, made, world, console)
    if figure is not None:
        print(f"picture: {figure}")
    if problem is not None:
        print(f"problem: {problem}")
    if csv_file is not None:
        print(f"table: {csv_file}")


def _hardware(world: World) -> Iterator[dict[str, float | None]]:
    """What devices can do and how well they are heard; None where there is no number."""
    import numpy as np

    from camu.arrays import decibels

    devices = world.devices
    with np.errstate(divide="ignore"):
        snr = np.asarray(decibels(world.links.uplink_snr()))
    columns = {
        "cpu_hz": devices.cpu_hz,
        "power_watts": devices.power_watts,
        "max_power_watts": devices.max_power_watts,
        "snr_db": snr,
        "battery_joules": devices.battery_joules,
    }
    for index in range(devices.count):
        row = {name: float(values[index]) for name, values in columns.items()}
        yield {name: value if math.isfinite(value) else None for name, value in row.items()}


def _make(config: Config) -> tuple[World, Plan]:
    """The world and its plan, with warnings on stderr."""
    from camu.schemes import make_scheme
    from camu.schemes.registry import plan_for
    from camu.world import build_world

    with stage("building the world"):
        world = build_world(config)
    with stage(f"planning with {config.scheme.name}"):
        made = plan_for(make_scheme(config), world)
    _warn(world.warnings(made.parameters))
    return world, made


def _warn(warnings: list[str]) -> None:
    stderr = plain_console(stderr=True)
    for warning in warnings:
        stderr.print(f"warning: {warning}", style="yellow", soft_wrap=True)


def _save_figure(plan: Plan, world: World, path: Path) -> None:
    from camu.report.figures import plan_figure
    from camu.report.style import save

    save(plan_figure(plan, world), path)


def _save_problem(world: World, path: Path) -> None:
    """Write P1 as `camu-joint` states it for this world."""
    from camu.files import write_json
    from camu.schemes import clusters
    from camu.schemes.plan_problem import problem_of_groups

    write_json(path, problem_of_groups(clusters(world)).to_dict())


def _save_csv(plan: Plan, world: World, path: Path) -> None:
    from camu.files import write_text
    from camu.planning.plan_table import plan_csv

    write_text(path, plan_csv(plan, world))


def show_plan(plan: Plan, world: World, console: Console) -> None:
    """The plan as two tables: who the units are, and what a round costs each of them.

    Of many units it shows how their numbers are spread.
    """
    if len(plan.units) > _MOST_ROWS:
        print_table(_spread(plan), console)
        console.print("--json and --csv list every unit.")
    else:
        shown = range(len(plan.units))
        print_table(_who(plan, world, shown), console)
        console.print()
        costs = _costs(plan, shown)
        if not fits(costs, console):
            costs = _costs(plan, shown, bars=False)
        print_table(costs, console)
        console.print(_LEGEND, style="dim")
    compute = sum(unit.compute_joules for unit in plan.units)
    receive = sum(unit.receive_joules for unit in plan.units)
    received = f", {receive:.3g} receiving" if receive else ""
    down = plan.units[0].downlink_seconds * world.config.radio.bs_power_watts
    station = f" The base station spends {down:.3g} J." if down else ""
    console.print(
        f"\n{plan.scheme}: {counted(len(plan.units), 'unit')} of "
        f"{counted(world.devices.count, 'device')}. A round takes "
        f"{plan.round_seconds:.4g} s and {plan.round_joules:.4g} J "
        f"({compute:.3g} computing, {plan.round_joules - compute - receive:.3g} sending"
        f"{received}).{station}"
    )
    if plan.slow_down != "none":
        full = plan.round_joules + plan.saved_joules
        console.print(
            f"Slow-down saves {plan.saved_joules:.3g} J ({plan.saved_joules / full:.0%}) of the "
            f"{full:.4g} J that a round costs at full speed; it takes no longer."
        )


def _bias(plan: Plan, world: World) -> dict[str, Any]:
    """The labels that the plan trains on; for schemes with a gate, also without it."""
    from camu.planning.bias import label_bias
    from camu.schemes import make_scheme
    from camu.schemes.registry import plan_for

    found = label_bias(plan, world).to_dict()
    scheme: Any = make_scheme(world.config)
    if hasattr(scheme, "threshold_quantile"):
        free = plan_for(replace(scheme, threshold=0.0), world)
        found["distance_without_gate"] = label_bias(free, world).distance
    return found


def show_bias(plan: Plan, world: World, console: Console) -> None:
    """What the model is trained on: label shares by weights and updates, and everyone's."""
    bias = _bias(plan, world)
    shown = [" ".join(f"{100 * share:.1f}" for share in bias[n]) for n in ("everyone", "trained")]
    console.print("\nLabels in %, by unit weight and number of steps", style="bold")
    console.print(f"  everyone's  {shown[0]}\n  trained on  {shown[1]}")
    console.print(
        f"Distance to everyone's {bias['distance']:.3f} (total variation); by weights alone "
        f"{bias['distance_of_weights']:.3f}."
    )
    if "distance_without_gate" in bias:
        without, here = bias["distance_without_gate"], bias["distance"]
        words = "more" if here > without else "less" if here < without else "neither more nor less"
        console.print(
            f"Without the gate it would be {without:.3f}: the gate makes the training {words} "
            "lopsided."
        )
    if bias["size_rank"] is not None:
        console.print(
            f"Rank correlation of contribution and samples: {bias['size_rank']:.2f} (Spearman)."
        )


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
        "compute s": [unit.compute_seconds + unit.slow_seconds for unit in units],
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
    table.add_column("unit", no_wrap=True)
    for name in ("where", "members", "leader"):
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


def _costs(plan: Plan, shown: range, bars: bool = True) -> Table:
    table = Table(title="A round", title_justify="left", box=None, header_style="bold")
    for name in ("unit", "N", "power W", "compute s", "send s", "wait s", "J"):
        table.add_column(name, justify="right", no_wrap=True)
    if bars:
        table.add_column(_parts("compute ", "send ", "wait"), no_wrap=True)
    for index in shown:
        unit = plan.units[index]
        idle, compute = plan.idle_seconds(index), unit.compute_seconds + unit.slow_seconds
        numbers = (compute, unit.transmit_seconds, idle, unit.joules)
        bar = _bar(compute, unit.transmit_seconds, plan.round_seconds)
        table.add_row(
            str(index),
            str(unit.local_updates),
            f"{unit.power_watts:.3g}",
            *(f"{n:.3f}" if n < _LONG else f"{n:.4g}" for n in numbers),
            *([bar] if bars else []),
        )
    return table


def _bar(compute: float, transmit: float, total: float) -> Text:
    first = round(_BAR_CHARACTERS * compute / total)
    second = max(1, round(_BAR_CHARACTERS * transmit / total))
    second = min(second, _BAR_CHARACTERS - first)
    rest = _BAR_CHARACTERS - first - second
    return _parts("█" * first, "▓" * second, "░" * rest)


def _parts(compute: str, send: str, wait: str) -> Text:
    return Text.assemble((compute, "blue"), (send, "yellow"), (wait, "dim"))


def _some(names: list[str], most: int = 8) -> str:
    more = f" +{len(names) - most}" if len(names) > most else ""
    return " ".join(names[:most]) + more
