"""`camu plan`: clusters, leaders, contributions, updates, powers and costs, without training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from camu.cli.console import plain_console, stage, warn
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
    check_outputs,
    fleet_files,
    resolve,
    to_file,
)
from camu.cli.plan_tables import (
    leaders_that_end,
    show_bias,
    show_levers,
    show_lifetime,
    show_plan,
    show_unsendable,
)

if TYPE_CHECKING:
    from camu.planning.batteries import Lifetime
    from camu.schemes import Plan
    from camu.schemes import Scheme as CamuScheme
    from camu.schemes.camu_auto import LeverWorth
    from camu.simulation.dry_run import RoundCost
    from camu.world import World


Picture = Annotated[Path | None, to_file("--figure", "Save a picture: .svg, .png, .pdf or .html.")]
ProblemFile = Annotated[
    Path | None, to_file("--problem", "Save problem P1 of the clusters for camu allocate.")
]
CsvFile = Annotated[Path | None, to_file("--csv", "Save a row per unit as CSV, for other tools.")]


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
    `demo` unless you name another. With batteries it also says when devices are empty.
    """
    from camu.planning.air_words import unused_errors
    from camu.planning.secure_words import not_hidden
    from camu.schemes import make_scheme, plans
    from camu.schemes.registry import earlier_name
    from camu.simulation.dry_run import battery_life, round_cost
    from camu.world import build_world

    config = resolve(file, preset, settings, seed, scheme, fleet_files(fleet, snr))
    check_outputs((figure, problem, csv_file), config, file)
    with stage("building the world"):
        world = build_world(config)
    with stage(f"planning with {config.scheme.name}"):
        planner = make_scheme(config)
        made = plans.plan(planner, world)
    called = earlier_name(config.scheme.name)
    about_plan = *unused_errors(made, world), *not_hidden(made, world)
    for text in (*called, *world.warnings(made.parameters), *about_plan):
        warn(text)
    with stage("taking rounds without training"):
        cost = round_cost(world, planner, made)
    _save(made, world, cost, figure, problem, csv_file)
    powered = all(math.isnan(joules) for joules in world.devices.battery_joules)
    lifetime = None if powered else battery_life(world, planner, made)
    if lifetime is not None and (sentence := leaders_that_end(lifetime, made, world)):
        warn(sentence)
    bias, levers = _bias(planner, made, world), _levers(planner, world)
    if as_json:
        more = {"levers": [one._asdict() for one in levers]} if levers else {}
        print_json({**_document(made, world, cost, lifetime), "bias": bias, **more})
        return
    console = plain_console()
    show_plan(made, world, cost, console)
    show_unsendable(made, world, console)
    show_bias(bias, console)
    if levers:
        show_levers(levers, console)
    if lifetime is not None:
        show_lifetime(lifetime, made, world, console)
    for what, path in (("picture", figure), ("problem", problem), ("table", csv_file)):
        if path is not None:
            print(f"{what}: {path}")


def _levers(scheme: CamuScheme, world: World) -> list[LeverWorth]:
    """What each choice of a scheme that chooses all levers is worth; of others nothing."""
    from camu.schemes import CamuAuto

    if not isinstance(scheme, CamuAuto):
        return []
    with stage("pricing the plan without each lever"):
        return scheme.worth(world)


def _document(
    plan: Plan, world: World, cost: RoundCost, lifetime: Lifetime | None
) -> dict[str, Any]:
    """Everything as plain data."""
    from camu.planning.battery_days import battery_days
    from camu.planning.central import send_data
    from camu.planning.link_words import unsendable

    document = plan.to_dict(world)
    if sentences := unsendable(plan, world):
        document["unsendable"] = sentences
    if lifetime is not None:
        names = [device["id"] for device in document["devices"]]
        document["batteries"] = lifetime.to_dict(plan, names)
        days = battery_days(world, lifetime)
        for device, *numbers in zip(document["devices"], *vars(days).values(), strict=True):
            device |= {key: _finite(n) for key, n in zip(vars(days), numbers, strict=True)}
    pairs = zip(document["devices"], _hardware(world), strict=True)
    return document | {
        "config_toml": world.config.to_toml(),
        "round_seconds": cost.seconds,
        "round_joules": cost.joules,
        "forecast": asdict(cost),
        "sending": send_data(world).bill._asdict(),
        "devices": [{**device, **facts} for device, facts in pairs],
    }


def _save(
    plan: Plan,
    world: World,
    cost: RoundCost,
    figure: Path | None,
    problem: Path | None,
    csv_file: Path | None,
) -> None:
    """Write the files that were asked for; P1 is what `camu-joint` states for this world."""
    from camu.files import write_json, write_text

    if figure is not None:
        from camu.report.charts import save
        from camu.report.figures import plan_figure

        save(plan_figure(plan, world, cost), figure)
    if problem is not None:
        from camu.schemes import clusters
        from camu.schemes.plans import problem_of_groups

        write_json(problem, problem_of_groups(clusters(world)).to_dict())
    if csv_file is not None:
        write_text(csv_file, plan.to_csv(world))


def _hardware(world: World) -> Iterator[dict[str, Any]]:
    """What devices can do and how well they are heard; None where there is no number."""
    import numpy as np

    from camu.arrays import decibels

    devices = world.devices
    with np.errstate(divide="ignore"):
        snr = np.asarray(decibels(world.links.uplink_snr()))
    columns = {
        "cpu_hz": devices.cpu_hz,
        "cycles_per_sample": devices.cycles_per_sample,
        "idle_watts": devices.idle_watts,
        "static_watts": devices.static_watts,
        "sleep_watts": devices.sleep_watts,
        "power_watts": devices.power_watts,
        "max_power_watts": devices.max_power_watts,
        "snr_db": snr,
        "battery_joules": devices.battery_joules,
    }
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    for link, board, row in zip(devices.link, devices.board, rows, strict=True):
        cells = map(_finite, row)
        yield {**dict(zip(columns, cells, strict=True)), "link": link, "board": board or None}


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _bias(scheme: CamuScheme, plan: Plan, world: World) -> dict[str, Any]:
    """The labels that the plan trains on; where a gate is closed for a unit, also without it."""
    from camu.planning.contribution import label_bias
    from camu.schemes import Camu, plans

    found = asdict(label_bias(plan, world))
    gated: Any = scheme
    if hasattr(scheme, "threshold_quantile"):
        closed = not all(unit.multi_update for unit in plan.units)
        # What gathers wait for each other changes no label of `camu`, and takes long to compute.
        calm = world.without_waits() if type(scheme) is Camu else world
        free = plans.plan(replace(gated, threshold=0.0), calm) if closed else plan
        found["distance_without_gate"] = label_bias(free, world).distance
    return found
