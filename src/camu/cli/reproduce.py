"""`camu reproduce`: the paper's experiments, with a verdict for every claim."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from camu.cli.console import counted, plain_console, print_table, stage
from camu.cli.options import output_folder
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.experiments.leaderboard_table import Board
    from camu.experiments.reproduce import Outcome
    from camu.experiments.verdicts import Verdict


class Experiment(StrEnum):
    """What can be reproduced."""

    aggregation = "aggregation"
    updates = "updates"
    resources = "resources"
    theory = "theory"
    sensitivity = "sensitivity"
    harm = "harm"
    contest = "contest"
    unseen = "unseen"
    leaderboard = "leaderboard"
    all = "all"


class Executor(StrEnum):
    """Where runs are executed."""

    local = "local"
    ray = "ray"


def reproduce(
    experiment: Annotated[Experiment, typer.Argument(help="Which experiment.")] = Experiment.all,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="D", help="Only mnist or fashion-mnist.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            min=2,
            help="Seeds [default: 10, 8 with --quick, 20 for theory, 5 for leaderboard --quick].",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="200 samples per device, 60 rounds, 8 seeds: about an hour."),
    ] = False,
    engine: Annotated[Executor, typer.Option("--engine", help="Local processes or Ray.")] = (
        Executor.local
    ),
    address: Annotated[
        str | None, typer.Option("--address", help="Address of a running Ray cluster.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=output_folder,
            metavar="DIR",
            help="Where results are kept [default: results; of the leaderboard, leaderboard].",
        ),
    ] = None,
    schemes: Annotated[
        list[str] | None,
        typer.Option(
            "--scheme",
            metavar="NAME",
            help="With leaderboard: also this scheme, your own as module:Class or a variant as "
            "NAME@PARAMETER=VALUE; repeatable.",
        ),
    ] = None,
) -> None:
    """Run the paper's experiments and judge every claim with seeds and intervals.

    Finished runs are skipped, so a second call trains nothing and a killed one is simply called
    again. Writes verdicts.json, verdicts.md and report.html; contest and unseen also a table with
    their name. leaderboard ranks all schemes at equal joules and seconds, and writes
    leaderboard.json, leaderboard.csv and leaderboard.md.
    """
    where = (engine.value, address)
    if experiment is Experiment.leaderboard:
        _leaderboard(dataset, seeds, quick, schemes or [], out or Path("leaderboard"), where)
        return
    if schemes:
        raise InputError(f"--scheme {schemes[0]}: it goes with `camu reproduce leaderboard` only")
    _study(experiment, dataset, seeds, quick, out or Path("results"), where)


def _leaderboard(
    dataset: str | None,
    seeds: int | None,
    quick: bool,
    schemes: list[str],
    out: Path,
    where: tuple[str, str | None],
) -> None:
    """Run what is missing of the leaderboard, print the table over all worlds, and say where."""
    from camu.cli.progress_bar import WorkBar
    from camu.experiments.leaderboard import Leaderboard, run_leaderboard

    asked = Leaderboard.make(dataset, seeds, quick, schemes)
    with _continued(), WorkBar() as bar:
        board = run_leaderboard(asked, out, bar, *where)
    print_table(board_table(board), plain_console())
    print(f"page: {out / 'leaderboard.md'}")


def _study(
    experiment: Experiment,
    dataset: str | None,
    seeds: int | None,
    quick: bool,
    out: Path,
    where: tuple[str, str | None],
) -> None:
    """Run what is missing of the study, print the verdicts, and write the page."""
    from camu.cli.progress_bar import WorkBar
    from camu.experiments.reproduce import Study, run_study
    from camu.report.writing import PAGE, write_report

    stderr = plain_console(stderr=True)
    # These are not about printed claims, and most take as long as all others.
    apart = (Experiment.sensitivity, Experiment.harm, Experiment.contest, Experiment.unseen)
    chosen: tuple[str, ...] = (experiment.value,)
    if experiment is Experiment.all:
        others = (*apart, Experiment.leaderboard, Experiment.all)
        chosen = tuple(each.value for each in Experiment if each not in others)
    study = Study.make(chosen, dataset, seeds, quick)
    with _continued(), WorkBar() as bar:
        outcome = run_study(study, out, bar, *where)
    stderr.print(_work_done(outcome), soft_wrap=True)
    show_verdicts(outcome.verdicts, plain_console())
    print(f"verdicts: {outcome.verdicts_path}")
    with stage("writing the page"):
        page = write_report([out], out / PAGE)
    print(f"page: {page}")


@contextlib.contextmanager
def _continued() -> Iterator[None]:
    """End with exit code 130 on Ctrl-C, and say that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        plain_console(stderr=True).print("stopped; the same command continues from here")
        raise typer.Exit(130) from None


def _work_done(outcome: Outcome) -> str:
    """What this call did: runs trained and reused, federations computed for theory."""
    parts = []
    if outcome.trained or outcome.reused:
        parts.append(f"trained {outcome.trained} runs, reused {outcome.reused} finished ones")
    if outcome.federations:
        parts.append(f"computed {outcome.federations} convex federations (these are not kept)")
    return "; ".join(parts)


_LEGEND = (
    "measured: mean ± half of the 95 % interval; n: seeds; needed: seeds that would probably "
    "decide.\nreproduced: the mean has the claimed sign and the interval excludes 0; contradicted: "
    "it excludes 0 on the other side; no effect above 1 point: two one-sided tests at 5 % exclude "
    "a larger one; undecided: none of these; after Holm: corrected for the number of claims."
)


def show_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """The verdicts with their number and what the words mean."""
    print_table(verdict_table(verdicts), console)
    found = Counter(row.verdict for row in verdicts)
    counts = ", ".join(f"{number} {word}" for word, number in found.most_common())
    console.print(f"\n{counted(len(verdicts), 'verdict')}: {counts}.")
    console.print(_LEGEND, style="dim")


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """The verdicts for the terminal."""
    table = Table(box=None, header_style="bold")
    widths = {"verdict": 12, "after Holm": 12, "paper": 8, "statement": 24}
    names = ("claim", "data set", "verdict", "after Holm", "measured", "sd", "n", "needed", "paper")
    for name in (*names, "statement"):
        least = widths.get(name)
        table.add_column(name, overflow="fold", min_width=least, no_wrap=least is None)
    for row in verdicts:
        paper = "" if row.paper is None else str(row.paper)
        needed = "" if row.seeds_needed is None else str(row.seeds_needed)
        measured = f"{row.measured} {row.unit}".strip()
        cells = (row.claim, row.dataset, row.verdict, row.holm or "", measured, row.spread)
        table.add_row(*cells, str(row.n), needed, paper, row.statement)
    return table


def board_table(board: Board) -> Table:
    """The leaderboard over all worlds for the terminal."""
    title = f"All worlds: accuracy in % (mean ± 95 % interval, {board.seeds} seeds) and rank"
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for name in ("scheme", "family"):
        table.add_column(name)
    for name in ("at equal joules", "rank", "at equal seconds", "rank"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in board.overall:
        scheme = Text(f"{row.scheme} (yours)", style="bold") if row.is_own else row.scheme
        table.add_row(scheme, row.family, *row.joules.show(), *row.seconds.show())
    return table
