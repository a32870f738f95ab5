"""`camu compare`: several schemes on the same worlds, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    output_folder,
    output_path,
    resolve,
)

if TYPE_CHECKING:
    from camu.experiments.compare import ComparedRun
    from camu.experiments.comparison import Comparison, Row
    from camu.simulation.history import History


Schemes = Annotated[
    str,
    typer.Option(
        "--schemes",
        metavar="A,B,…",
        help="Schemes, families or `all`; NAME@PARAMETER=VALUE is a variant. The first scheme "
        "is the baseline.",
    ),
]
Seeds = Annotated[
    int, typer.Option("--seeds", metavar="N", min=1, help="Number of seeds, from run.seed on.")
]
Target = Annotated[
    float | None,
    typer.Option(
        "--target",
        metavar="ACCURACY",
        min=0.0,
        max=1.0,
        help="Accuracy whose cost is compared [default: what every run reached].",
    ),
]
AllRuns = Annotated[
    Path | None,
    typer.Option(
        "--out",
        parser=output_folder,
        metavar="DIR",
        help="Directory of all runs [default: runs/compare].",
    ),
]
CsvFile = Annotated[
    Path | None,
    typer.Option(
        "--csv",
        parser=output_path,
        metavar="FILE",
        help="Also save the values of every run as CSV.",
    ),
]
LatexFile = Annotated[
    Path | None,
    typer.Option(
        "--latex",
        parser=output_path,
        metavar="FILE",
        help="Also save the table as LaTeX (booktabs).",
    ),
]
MarkdownFile = Annotated[
    Path | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        help="Also save accuracies and differences at equal rounds, joules and seconds.",
    ),
]


def compare(
    schemes: Schemes = "fedavg,clustered,camu",
    seeds: Seeds = 3,
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    fleet: Fleet = None,
    snr: Snr = None,
    target: Target = None,
    out: AllRuns = None,
    csv_file: CsvFile = None,
    latex_file: LatexFile = None,
    markdown_file: MarkdownFile = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Compare schemes on the same worlds: devices, data, initial weights, batches and fading.

    Intervals are 95 % (Student's t over seeds); differences to the first scheme are paired by seed.
    Accuracies are compared at the rounds, joules and seconds that every run has spent; with
    run.min_joules and run.min_virtual_seconds every run goes on until it has spent these.
    Finished runs are used again, and a second call continues where the first was cut off. A run is
    done again if a key, your own code or the version of camu changed. --out also gets
    comparison.json and comparison.csv.
    """
    from camu.experiments.compare import compared_runs, tabulate_runs
    from camu.report.writing import PAGE, write_report
    from camu.schemes.variants import split_schemes
    from camu.simulation.ray_session import engine_session

    config = resolve(file, preset, settings, overrides=fleet_files(fleet, snr))
    numbers = range(config.run.seed, config.run.seed + seeds)
    folder = out or Path("runs/compare")
    runs = compared_runs(config, split_schemes(schemes), numbers, folder)
    with engine_session(config, address):
        table = tabulate_runs(runs, run_with_bars(runs), target)
    save_comparison(table, folder, csv_file, latex_file, markdown_file)
    paths = [run.directory.path for run in runs]
    page = write_report(paths, folder / PAGE, title="camu compare", comparison=table)
    if as_json:
        print_json(table.to_dict())
        return
    show_comparison(table, plain_console())
    print(f"all runs are in {folder}; look at {page}")


def save_comparison(
    table: Comparison,
    folder: Path,
    csv_file: Path | None,
    latex_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Write comparison.json and comparison.csv, and the files that the user asked for."""
    from camu.files import write_json, write_text

    write_json(folder / "comparison.json", table.to_dict())
    for path in dict.fromkeys((folder / "comparison.csv", csv_file)):
        if path is not None:
            write_text(path, table.to_csv())
    if latex_file is not None:
        write_text(latex_file, table.to_latex())
    if markdown_file is not None:
        write_text(markdown_file, table.to_markdown())


def run_with_bars(
    runs: Sequence[ComparedRun], after_stop: str = "the same command continues from here"
) -> dict[str, list[History]]:
    """Run what is missing with a progress bar each; Ctrl-C ends the command with exit code 130."""
    from camu.cli.progress_bar import Notes, ProgressBar
    from camu.experiments.compare import run_all

    stderr, notes = plain_console(stderr=True), Notes()
    try:
        return run_all(
            runs,
            lambda run: [notes, ProgressBar(f"{run.scheme}, seed {run.config.run.seed}")],
            lambda text: stderr.print(text, soft_wrap=True, markup=False, highlight=False),
        )
    except KeyboardInterrupt:
        stderr.print(f"stopped; {after_stop}")
        raise typer.Exit(130) from None


def show_comparison(table: Comparison, console: Console) -> None:
    """Two tables: how good each scheme is, and the cost of reaching the target if there is one."""
    n = len(table.seeds)
    title = f"Accuracy in % (mean ± 95 % interval, {n} seed{'s' if n > 1 else ''})"
    print_table(_table(table, title, table.accuracy_columns(), table.accuracy_cells), console)
    console.print()
    if table.target_accuracy is None:
        console.print(
            "No cost of a target: not every run became better than an untrained model; "
            "set --target, or train for more rounds."
        )
        return
    title = f"Cost of reaching {table.target_accuracy:.0%}"
    print_table(_table(table, title, table.cost_columns(), table.cost_cells), console)


def _table(
    comparison: Comparison, title: str, columns: Sequence[str], cells: Callable[[Row], list[str]]
) -> Table:
    """A row per scheme; many schemes are divided by family."""
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    table.add_column("scheme")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for family, rows in comparison.by_family():
        if family:
            table.add_row(Text(family, style="bold"))
        for row in rows:
            table.add_row(f"  {row.scheme}" if family else row.scheme, *cells(row))
    return table
