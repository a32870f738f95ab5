"""`camu compare`: several schemes on the same worlds, with confidence intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from camu.cli.options import ConfigFile, Json, Preset, Settings, resolve
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.experiments.comparison import Comparison
    from camu.experiments.statistics import Estimate


def compare(
    schemes: Annotated[
        str, typer.Option("--schemes", metavar="A,B,…", help="Schemes; the first is the baseline.")
    ] = "fedavg,clustered,camu",
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Number of seeds, from run.seed on.")
    ] = 3,
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="ACCURACY",
            min=0.0,
            max=1.0,
            help="Accuracy whose cost is compared [default: what every run reached].",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Directory of all runs [default: runs/compare]."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare schemes on the same worlds: devices, data, initial weights, batches and fading.

    Intervals are 95 % (Student's t over seeds); differences to the first scheme are paired by seed.
    A second call goes on where the first was cut off.
    """
    from camu.experiments import comparison
    from camu.report.writing import PAGE, write_report

    names = [name.strip() for name in schemes.split(",") if name.strip()]
    config = resolve(file, preset, settings)
    numbers = range(config.run.seed, config.run.seed + seeds)
    folder = out or Path("runs/compare")
    try:
        histories = comparison.run_all(config, names, numbers, folder)
    except InputError as error:
        if "another configuration" in str(error):
            raise InputError(f"{error} (--out)") from None
        raise
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; the same command goes on from here")
        raise typer.Exit(130) from None
    table = comparison.compare(histories, numbers, target)
    page = write_report([folder / name.replace(":", ".") for name in names], folder / PAGE)
    if as_json:
        print(json.dumps(table.to_dict()))
        return
    show_comparison(table, Console())
    print(f"all runs are in {folder}; look at {page}")


def show_comparison(table: Comparison, console: Console) -> None:
    """Two tables: how good each scheme is, and what reaching the target costs."""
    n = len(table.seeds)
    good = Table(
        title=f"Accuracy in % (mean ± 95 % interval, {n} seed{'s' if n > 1 else ''})",
        title_justify="left",
        box=None,
        header_style="bold",
    )
    good.add_column("scheme")
    base = table.rows[0].scheme
    for name in (
        "final",
        f"vs {base}",
        f"at {table.equal_joules:.3g} J",
        f"at {table.equal_seconds:.3g} s",
    ):
        good.add_column(name, justify="right", no_wrap=True)
    cost = Table(
        title=f"Cost of reaching {table.target_accuracy:.0%}",
        title_justify="left",
        box=None,
        header_style="bold",
    )
    cost.add_column("scheme")
    for name in ("runs that did", "rounds", "joules", "virtual seconds"):
        cost.add_column(name, justify="right", no_wrap=True)
    for row in table.rows:
        good.add_row(
            row.scheme,
            _show(row.final_accuracy, 100),
            _show(row.difference, 100),
            _show(row.at_equal_joules, 100),
            _show(row.at_equal_seconds, 100),
        )
        cost.add_row(
            row.scheme,
            f"{row.reached_target} of {n}",
            _show(row.rounds_to_target, 1, 1),
            _show(row.joules_to_target),
            _show(row.seconds_to_target),
        )
    console.print(good)
    console.print()
    console.print(cost)


def _show(value: Estimate | None, scale: float = 1.0, digits: int = 2) -> str:
    return "-" if value is None else value.show(scale, digits)
