"""`camu forecast`: rounds, joules and seconds to a target accuracy, for each scheme."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from camu.cli.compare import run_with_bars
from camu.cli.console import plain_console, print_table
from camu.cli.guard import print_json
from camu.cli.options import (
    Address,
    ConfigFile,
    Fleet,
    Json,
    Preset,
    Settings,
    Snr,
    fleet_files,
    resolve,
)

if TYPE_CHECKING:
    from camu.experiments.forecast import Forecast

EVALUATIONS = 30  # at least so many of a run, or every round


def forecast(
    target: Annotated[
        float, typer.Option("--target", metavar="ACCURACY", min=0.0, max=1.0, help="As 0.9.")
    ],
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    fleet: Fleet = None,
    snr: Snr = None,
    schemes: Annotated[
        str, typer.Option("--schemes", metavar="A,B,...", help="Schemes, separated by commas.")
    ] = "fedavg,clustered,camu",
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Seeds.")] = 3,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="N", min=1, help="Rounds per run [default: run.rounds]."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where runs are kept [default: runs/forecast]."),
    ] = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Say what a target accuracy costs each scheme, from short runs on your fleet.

    Every scheme is trained with every seed. If all runs reach the target, the cost is measured.
    Otherwise accuracy = a - b (r + 1)^-c is fitted to the mean over seeds after r rounds and
    continued, with a limit a or with a = 1, whichever predicts better: fitted to the first 60 % of
    the evaluations, the model must predict the others. A run is evaluated at least 30 times.
    Intervals are 95 % over seeds; those of the model are widened by the error of that prediction.
    """
    from camu.experiments.compare import compared_runs
    from camu.experiments.forecast import forecast as from_runs
    from camu.simulation.ray_session import engine_session

    names = [name.strip() for name in schemes.split(",") if name.strip()]
    config = resolve(file, preset, settings, overrides=fleet_files(fleet, snr))
    length = rounds or config.run.rounds
    often = min(config.run.eval_every, max(1, length // EVALUATIONS))
    config = config.replace(
        {"run.target_accuracy": None, "run.rounds": length, "run.eval_every": often}
    )
    numbers = range(config.run.seed, config.run.seed + seeds)
    folder = out or Path("runs/forecast")
    with engine_session(config, address):
        found = from_runs(run_with_bars(compared_runs(config, names, numbers, folder)), target)
    if as_json:
        rows = [row.to_dict() for row in found]
        print_json({"target_accuracy": target, "seeds": list(numbers), "schemes": rows})
        return
    show_forecast(found, target, plain_console())
    print(f"all runs are in {folder}")


def show_forecast(rows: list[Forecast], target: float, console: Console) -> None:
    """A row per scheme, and a sentence about each that did not reach the target."""
    title = f"Cost of an accuracy of {target:.4g} (mean and 95 % interval over seeds)"
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    table.add_column("scheme")
    table.add_column("how", no_wrap=True)
    for name in ("rounds", "joules", "virtual s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        costs = [cost.show() for cost in row.costs.values()] or [""] * 3
        table.add_row(row.scheme, row.how, *costs)
    print_table(table, console)
    for row in rows:
        if row.note:
            console.print(f"{row.scheme}: {row.note}.", highlight=False, soft_wrap=True)
