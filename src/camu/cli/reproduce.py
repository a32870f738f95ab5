"""`camu reproduce`: the paper's experiments, with a verdict for every claim."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Experiment(StrEnum):
    """What can be reproduced."""

    aggregation = "aggregation"
    updates = "updates"
    resources = "resources"
    theory = "theory"
    sensitivity = "sensitivity"
    all = "all"


class Engine(StrEnum):
    """Where runs are executed."""

    local = "local"
    ray = "ray"


def reproduce(
    experiment: Annotated[Experiment, typer.Argument(help="Which experiment.")] = Experiment.all,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="D", help="Only mnist or fashion-mnist.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", min=2, help="Seeds [default: 3 or 10].")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="600 samples per device, 30 rounds, 3 seeds: about an hour."),
    ] = False,
    engine: Annotated[Engine, typer.Option("--engine", help="Local processes or Ray.")] = (
        Engine.local
    ),
    address: Annotated[
        str | None, typer.Option("--address", help="Address of a running Ray cluster.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where results are kept.")
    ] = Path("results"),
) -> None:
    """Run the paper's experiments and judge every claim with seeds and intervals.

    Finished runs are skipped, so a second call does no work and a killed one is simply called
    again. Writes verdicts.json, verdicts.md and report.html.
    """
    from camu.experiments.reproduce import Study, run_study

    stderr = Console(stderr=True)
    apart = (Experiment.all, Experiment.sensitivity)  # sensitivity explains, it is no claim
    names = tuple(e.value for e in Experiment if e not in apart)
    chosen = names if experiment is Experiment.all else (experiment.value,)
    study = Study.make(chosen, dataset, seeds, quick)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=stderr) as bar:
        task = bar.add_task("runs", total=None)
        try:
            outcome = run_study(
                study,
                out,
                lambda what, done, total: bar.update(
                    task, description=what, completed=done, total=total
                ),
                engine.value,
                address,
            )
        except KeyboardInterrupt:
            stderr.print("stopped; the same command goes on from here")
            raise typer.Exit(130) from None
    if outcome.runs_done == 0:
        stderr.print("every run was already done; nothing was run again")
    Console().print(outcome.table())
    print(f"verdicts: {outcome.verdicts_path}")
    if study.trains:
        from camu.report.writing import write_report

        with stderr.status("writing the page"):
            page = write_report([out], out / "report.html")
        print(f"page: {page}")
