"""`camu compare`: several schemes on the same worlds, with confidence intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from camu.cli.console import counted, number_table, plain_console, print_table
from camu.cli.guard import print_json
from camu.cli.options import (
    Address,
    ConfigFile,
    FigureFont,
    FigureTitle,
    FigureWidth,
    Fleet,
    Json,
    Preset,
    Settings,
    Snr,
    check_outputs,
    check_target,
    fleet_files,
    resolve,
    target,
    to_file,
    to_folder,
)

if TYPE_CHECKING:
    from camu.config import Config
    from camu.experiments.comparison import Column, Comparison
    from camu.experiments.scheduler import FinishedRun, PlannedRun
    from camu.report.runs import SavedRun

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
        parser=target,
        metavar="SCORE",
        help="Score whose cost is compared, as 0.9 [default: what every run reached].",
    ),
]
AllRuns = Annotated[
    Path | None, to_folder("--out", "Directory of all runs [default: runs/compare].")
]
CsvFile = Annotated[Path | None, to_file("--csv", "Also save the values of every run as CSV.")]
ParquetFile = Annotated[
    Path | None, to_file("--parquet", "Also save the values of every run as Parquet (pyarrow).")
]
LatexFile = Annotated[Path | None, to_file("--latex", "Also save the table as LaTeX (booktabs).")]
MarkdownFile = Annotated[
    Path | None,
    to_file("--markdown", "Also save scores and differences at equal cost on every axis."),
]
FigureFile = Annotated[
    Path | None,
    to_file("--figure", "Also draw the scores with their intervals: .pdf, .svg, .png or .html."),
]
FigureAxis = Annotated[
    Literal["rounds", "joules", "seconds", "megabytes"],
    typer.Option("--figure-axis", help="What the scores are drawn over."),
]


def compare(
    schemes: Schemes = "fedsgd,clustered,camu",
    seeds: Seeds = 3,
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    fleet: Fleet = None,
    snr: Snr = None,
    target: Target = None,
    out: AllRuns = None,
    csv_file: CsvFile = None,
    parquet_file: ParquetFile = None,
    latex_file: LatexFile = None,
    markdown_file: MarkdownFile = None,
    figure: FigureFile = None,
    figure_axis: FigureAxis = "joules",
    figure_width: FigureWidth = None,
    figure_font: FigureFont = None,
    figure_title: FigureTitle = True,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Compare schemes on the same worlds: devices, data, initial weights, batches and fading.

    Intervals are 95 % (Student's t over seeds); differences to the first scheme are paired by seed.
    Scores (the first of training.metrics) are compared at the rounds, joules, seconds and megabytes
    that every run has spent; with run.min_joules, run.min_virtual_seconds and
    run.min_megabytes every run goes on until it has spent these.
    Finished runs are used again, and a second call continues where the first was cut off. A run is
    done again if a key, your own code or the version of camu changed. --out also gets
    comparison.json and comparison.csv.
    """
    from camu.experiments.compare import tabulate_runs
    from camu.experiments.parquet import check_parquet, write_parquet
    from camu.files import write_json, write_text
    from camu.report.charts import check_ending
    from camu.report.printed import Print, save_comparison
    from camu.report.writing import PAGE, write_report
    from camu.schemes.variants import split_schemes

    config = resolve(file, preset, settings, overrides=fleet_files(fleet, snr))
    check_target(config, target)
    if figure is not None:
        check_ending(figure)  # before hours of runs
    check_parquet(parquet_file)
    folder = out or Path("runs/compare")
    results = [folder / name for name in ("comparison.json", "comparison.csv", PAGE)]
    code = [word.partition("@")[0].strip() for word in split_schemes(schemes)]
    files = (csv_file, parquet_file, latex_file, markdown_file, figure)
    check_outputs((*results, *files), config, file, code=code)
    done = run_schemes("compare", config, schemes, seeds, folder, address)
    table = tabulate_runs(done, target)
    write_json(folder / "comparison.json", table.to_dict())
    for path, text in (
        (folder / "comparison.csv", table.to_csv),
        (csv_file, table.to_csv),
        (latex_file, table.to_latex),
        (markdown_file, table.to_markdown),
    ):
        if path is not None:
            write_text(path, text())
    if parquet_file is not None:
        write_parquet(parquet_file, "comparison", table.run_rows())
    page = write_report(saved(done), folder / PAGE, title="camu compare", comparison=table)
    if figure is not None:
        look = Print(figure_width, figure_font, figure_title)
        save_comparison(saved(done), figure, figure_axis, look)
    if as_json:
        print_json(table.to_dict())
        return
    show_comparison(table, plain_console())
    print(f"all runs are in {folder}; look at {page}")


def run_schemes(
    command: str, config: Config, schemes: str, seeds: int, folder: Path, address: str | None
) -> list[FinishedRun]:
    """Run what is missing of these schemes with every seed, in a directory of this command."""
    from camu.experiments.compare import compared_runs
    from camu.outputs import claim
    from camu.schemes.variants import split_schemes
    from camu.simulation.ray_session import engine_session

    numbers = range(config.run.seed, config.run.seed + seeds)
    runs = compared_runs(config, split_schemes(schemes), numbers, folder)
    claim(folder, command)
    with engine_session(config, address):
        return run_with_bars(runs)


def run_with_bars(
    runs: Sequence[PlannedRun], after_stop: str = "the same command continues from here"
) -> list[FinishedRun]:
    """Run what is missing with a progress bar each; Ctrl-C ends the command with exit code 130."""
    from camu.cli.progress_bar import Notes, ProgressBar
    from camu.experiments.scheduler import in_turn, run_all

    notes, stderr = Notes(), plain_console(stderr=True)
    runner = in_turn(
        lambda run: [notes, ProgressBar(f"{run.label}, seed {run.config.run.seed}")],
        lambda text: stderr.print(text, soft_wrap=True),
    )
    try:
        return run_all(runs, runner)
    except KeyboardInterrupt:
        stderr.print(f"stopped; {after_stop}")
        raise typer.Exit(130) from None


def saved(done: Iterable[FinishedRun]) -> list[SavedRun]:
    """Finished runs for a report, so that it need not read and check their files again."""
    from camu.report.runs import SavedRun

    return [
        SavedRun.ended(one.planned.directory.path, one.planned.config, one.history) for one in done
    ]


def show_comparison(table: Comparison, console: Console) -> None:
    """How good each scheme is, what the target costs if there is one, and what the runs show."""
    from camu.experiments.conclusions import conclusions

    title = f"{table.heading} (mean ± 95 % interval, {counted(len(table.seeds), 'seed')})"
    print_table(_table(table, title, table.score_columns()), console)
    console.print()
    if others := table.other_columns():
        print_table(_table(table, "Other metrics at the end", others), console)
        console.print()
    if table.blown_up:
        console.print(table.blown_up, highlight=False)
    if table.target is None:
        console.print(
            "No cost of a target: not every run became better than an untrained model; "
            "set --target, or train for more rounds."
        )
    else:
        title = f"Cost of reaching {table.shown_target}"
        print_table(_table(table, title, table.cost_columns()), console)
    if found := conclusions(table):
        console.print()
    for text in found:
        console.print(text, highlight=False, soft_wrap=True)


def _table(comparison: Comparison, title: str, columns: Sequence[Column]) -> Table:
    """A row per scheme; many schemes are divided by family."""
    table = number_table(["scheme", *(name for name, _ in columns)], title=title, text=["scheme"])
    for family, rows in comparison.by_family():
        if family:
            table.add_row(Text(family, style="bold"))
        for row in rows:
            name = f"  {row.scheme}" if family else row.scheme
            table.add_row(name, *comparison.cells(row, columns))
    return table
