"""`camu answer`: what learning costs on a fleet, and whether to send the data once instead."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camu.cli.console import WorkBar, plain_console, stage, warn
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
    check_target,
    fleet_files,
    resolve,
    target,
    to_folder,
)
from camu.errors import CamuError, InputError

if TYPE_CHECKING:
    from camu.answers.answer import Rounds
    from camu.answers.budget import Budget
    from camu.answers.dry import DryPlan
    from camu.config import Config
    from camu.world import World

DEFAULT_SEEDS = 2


def limit(text: str) -> float:
    """What may be spent."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"--hours, --kwh and --megabytes are numbers above 0, not {text}")
    return value


Target = Annotated[
    float | None,
    typer.Option(
        "--target",
        parser=target,
        metavar="SCORE",
        help="Measure the rounds to this score in short runs, as `camu forecast` does: 0.9 for 90 "
        "% accuracy.",
    ),
]
NumberOfRounds = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        metavar="N",
        min=1,
        help="Rounds of learning; with --target, the length of the short runs "
        "[default: run.rounds].",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds", metavar="N", min=1, help="Short runs for --target, one per seed [default: 2]."
    ),
]
Out = Annotated[
    Path | None, to_folder("--out", "Where short runs are kept [default: runs/answer].")
]
Server = Annotated[
    str,
    typer.Option(
        "--server",
        metavar="BOARD",
        help="What trains at the server once it has the data: a board of `camu fleet boards`.",
    ),
]
Like = Annotated[
    str | None,
    typer.Option(
        "--like",
        metavar="ID",
        help="Device that an upgrade makes of another [default: the slowest of the fastest "
        "quarter].",
    ),
]
Buy = Annotated[
    int, typer.Option("--buy", metavar="N", min=0, help="Also say which N devices to replace.")
]
_limit = {"metavar": "LIMIT", "parser": limit}
Hours = Annotated[
    float | None,
    typer.Option(
        "--hours", help="Hours that learning may take [default: run.max_virtual_seconds].", **_limit
    ),
]
Kwh = Annotated[
    float | None,
    typer.Option(
        "--kwh", help="Energy that the devices may spend [default: run.max_joules].", **_limit
    ),
]
Megabytes = Annotated[
    float | None, typer.Option("--megabytes", help="Megabytes that may be sent.", **_limit)
]


def answer(
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    fleet: Fleet = None,
    snr: Snr = None,
    target: Target = None,
    rounds: NumberOfRounds = None,
    seeds: Seeds = None,
    hours: Hours = None,
    kwh: Kwh = None,
    megabytes: Megabytes = None,
    server: Server = "laptop-core",
    like: Like = None,
    buy: Buy = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Should I do this at all? A page for the owner of a fleet.

    It says what learning costs in hours, kWh, megabytes and battery, what sending all data to a
    server once would cost in its place, and from which size of a sample or how many rounds the
    other way is cheaper; who leads; which devices hold a round up and what replacing each would
    win; what would fit a budget that is too small (--hours, --kwh, --megabytes); and how far all of
    this moves if what is assumed is wrong.

    Costs are for --rounds, or for the rounds to a --target that short runs measure; without
    either, for run.rounds. Only --target trains. `--set data.sample_bytes=N` is the size of one of
    your samples, `--set training.model=...` and `--set data.dataset=...` are your model and data.
    """
    from camu.answers.answer import answer as find_answer
    from camu.cli.answer_page import show_answer
    from camu.world.boards import find_board

    config = resolve(file, preset, settings, seed, scheme, fleet_files(fleet, snr))
    check_target(config, target)
    find_board(server, "--server")
    budget = _budget(config, hours, kwh, megabytes)
    told, chance = _rounds(config, target, rounds, seeds, out)
    dry = _dry_plan(config, budget)
    with WorkBar() as bar:
        found = find_answer(dry, told, budget, server=server, like=like, buy=buy, progress=bar)
    if as_json:
        print_json({**found.to_dict(), "chance": chance, "config_toml": config.to_toml()})
        return
    show_answer(found, chance, plain_console())


def _budget(
    config: Config, hours: float | None, kwh: float | None, megabytes: float | None
) -> Budget:
    """The limits of the command line, over those of the configuration."""
    from camu.answers.budget import Budget

    run = config.run
    return Budget(
        seconds=run.max_virtual_seconds if hours is None else 3600 * hours,
        joules=run.max_joules if kwh is None else 3.6e6 * kwh,
        megabytes=megabytes,
        round_joules=config.allocation.energy_joules,
    )


def _dry_plan(config: Config, budget: Budget) -> DryPlan:
    """The plan of the fleet; a budget per round that no plan meets is left for the answer."""
    from camu.answers.dry import DryPlan
    from camu.world import build_world

    with stage("building the world"):
        world = build_world(config)
    with stage(f"planning with {config.scheme.name}"):
        try:
            dry = DryPlan.of(world)
        except CamuError as error:
            if budget.round_joules is None or "allocation.energy_joules" not in str(error):
                raise
            warn(f"{error}; so here are the costs of the scheme camu, and what would fit")
            dry = DryPlan.of(_without_budget(world))
    for text in world.warnings(dry.plan.parameters):
        warn(text)
    return dry


def _without_budget(world: World) -> World:
    config = world.config.replace({"scheme.name": "camu", "scheme.parameters": {}})
    return replace(world, config=config)


def _rounds(
    config: Config, target: float | None, rounds: int | None, seeds: int | None, out: Path | None
) -> tuple[Rounds, str | None]:
    """The rounds of learning and where they come from, and a sentence if accuracy is at chance."""
    from camu.answers.answer import Rounds

    if target is None:
        if seeds is not None or out is not None:
            raise InputError("--seeds and --out are about short runs; give --target SCORE too")
        if rounds is not None:
            return Rounds(rounds, "as --rounds says"), None
        number = config.run.rounds
        how = "as run.rounds says; --rounds N or --target SCORE (measured) say otherwise"
        return Rounds(number, how), None
    from camu.answers.measured import measured_rounds
    from camu.cli.forecast import short_runs

    folder = out or Path("runs/answer")
    done = short_runs("answer", config, config.scheme.name, rounds, seeds or DEFAULT_SEEDS, folder)
    return measured_rounds([one.history for one in done], target)
