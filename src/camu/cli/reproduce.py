"""`camu reproduce`: the paper's experiments, with a verdict for every claim."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from camu.cli.options import output_folder

if TYPE_CHECKING:
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
            help="Seeds [default: 10, 8 with --quick, 20 for theory].",
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
        Path,
        typer.Option("--out", parser=output_folder, metavar="DIR", help="Where results are kept."),
    ] = Path("results"),
) -> None:
    """Run the paper's experiments and judge every claim with seeds and intervals.

    Finished runs are skipped, so a second call trains nothing and a killed one is simply called
    again. Writes verdicts.json, verdicts.md and report.html.
    """
    from camu.cli.progress_bar import WorkBar
    from camu.experiments.reproduce import Study, run_study
    from camu.report.writing import PAGE, write_report

    stderr = Console(stderr=True, emoji=False)
    # These three are not about printed claims, and each takes as long as all others.
    apart = (Experiment.sensitivity, Experiment.harm, Experiment.contest)
    names = tuple(e.value for e in Experiment if e not in (*apart, Experiment.all))
    chosen = names if experiment is Experiment.all else (experiment.value,)
    study = Study.make(chosen, dataset, seeds, quick)
    with WorkBar() as bar:
        try:
            outcome = run_study(study, out, bar, engine.value, address)
        except KeyboardInterrupt:
            stderr.print("stopped; the same command continues from here")
            raise typer.Exit(130) from None
    stderr.print(_work_done(outcome), soft_wrap=True)
    Console(emoji=False).print(verdict_table(outcome.verdicts))
    print(f"verdicts: {outcome.verdicts_path}")
    with stderr.status("writing the page"):
        page = write_report([out], out / PAGE)
    print(f"page: {page}")


def _work_done(outcome: Outcome) -> str:
    """What this call did: runs trained and reused, federations computed for theory."""
    parts = []
    if outcome.trained or outcome.reused:
        parts.append(f"trained {outcome.trained} runs, reused {outcome.reused} finished ones")
    if outcome.federations:
        parts.append(f"computed {outcome.federations} convex federations (these are not kept)")
    return "; ".join(parts)


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """The verdicts for the terminal."""
    table = Table(box=None, header_style="bold")
    names = ("claim", "data set", "verdict", "after Holm", "measured", "sd", "n", "needed", "paper")
    for name in (*names, "statement"):
        table.add_column(name, overflow="fold")
    for row in verdicts:
        paper = "" if row.paper is None else str(row.paper)
        needed = "" if row.seeds_needed is None else str(row.seeds_needed)
        cells = (row.claim, row.dataset, row.verdict, row.holm or "", row.measured, row.spread)
        table.add_row(*cells, str(row.n), needed, paper, row.statement)
    return table
