"""`camu compare`: several schemes on the same worlds, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

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
    output_folder,
    output_path,
    resolve,
)

if TYPE_CHECKING:
    from camu.experiments.compare import ComparedRun
    from camu.experiments.comparison import Comparison
    from camu.simulation.history import History


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
    fleet: Fleet = None,
    snr: Snr = None,
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
        typer.Option(
            "--out",
            parser=output_folder,
            metavar="DIR",
            help="Directory of all runs [default: runs/compare].",
        ),
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            parser=output_path,
            metavar="FILE",
            help="Also save the values of every run as CSV.",
        ),
    ] = None,
    latex_file: Annotated[
        Path | None,
        typer.Option(
            "--latex",
            parser=output_path,
            metavar="FILE",
            help="Also save the table as LaTeX (booktabs).",
        ),
    ] = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Compare schemes on the same worlds: devices, data, initial weights, batches and fading.

    Intervals are 95 % (Student's t over seeds); differences to the first scheme are paired by seed.
    Finished runs are used again, and a second call continues where the first was cut off. A run is
    done again if a key, your own code or the version of camu changed. --out also gets
    comparison.json and comparison.csv.
    """
    from camu.experiments.compare import compared_runs
    from camu.experiments.comparison import tabulate
    from camu.report.writing import PAGE, write_report
    from camu.simulation.ray_session import engine_session

    names = [name.strip() for name in schemes.split(",") if name.strip()]
    config = resolve(file, preset, settings, overrides=fleet_files(fleet, snr))
    numbers = range(config.run.seed, config.run.seed + seeds)
    folder = out or Path("runs/compare")
    runs = compared_runs(config, names, numbers, folder)
    with engine_session(config, address):
        table = tabulate(run_with_bars(runs), numbers, target)
    save_comparison(table, folder, csv_file, latex_file)
    page = write_report([run.directory.path for run in runs], folder / PAGE, title="camu compare")
    if as_json:
        print_json(table.to_dict())
        return
    show_comparison(table, Console(emoji=False))
    print(f"all runs are in {folder}; look at {page}")


def save_comparison(
    table: Comparison, folder: Path, csv_file: Path | None, latex_file: Path | None
) -> None:
    """Write comparison.json and comparison.csv, and the files that the user asked for."""
    from camu.files import write_json, write_text

    write_json(folder / "comparison.json", table.to_dict())
    for path in dict.fromkeys((folder / "comparison.csv", csv_file)):
        if path is not None:
            write_text(path, table.to_csv())
    if latex_file is not None:
        write_text(latex_file, table.to_latex())


def run_with_bars(runs: Sequence[ComparedRun]) -> dict[str, list[History]]:
    """Run what is missing with a progress bar each; Ctrl-C ends the command with exit code 130."""
    from camu.cli.progress_bar import Notes, ProgressBar
    from camu.experiments.compare import run_all

    stderr, notes = Console(stderr=True, emoji=False), Notes()
    try:
        return run_all(
            runs,
            lambda run: [notes, ProgressBar(f"{run.scheme}, seed {run.config.run.seed}")],
            lambda text: stderr.print(text, soft_wrap=True, markup=False, highlight=False),
        )
    except KeyboardInterrupt:
        stderr.print("stopped; the same command continues from here")
        raise typer.Exit(130) from None


def show_comparison(table: Comparison, console: Console) -> None:
    """Two tables: how good each scheme is, and the cost of reaching the target if there is one."""
    n = len(table.seeds)
    accuracy = _table(
        f"Accuracy in % (mean ± 95 % interval, {n} seed{'s' if n > 1 else ''})",
        table.accuracy_columns(),
    )
    for row in table.rows:
        accuracy.add_row(row.scheme, *table.accuracy_cells(row))
    console.print(accuracy)
    console.print()
    if table.target_accuracy is None:
        console.print(
            "No cost of a target: not every run became better than an untrained model; "
            "set --target, or train for more rounds.",
            highlight=False,
        )
        return
    cost = _table(f"Cost of reaching {table.target_accuracy:.0%}", table.cost_columns())
    for row in table.rows:
        cost.add_row(row.scheme, *table.cost_cells(row))
    console.print(cost)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    table.add_column("scheme")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table
