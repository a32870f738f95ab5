"""`camu reproduce`: the paper's experiments, with a verdict for every claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from camu.cli.console import WorkBar, counted, number_table, plain_console, print_table, stage
from camu.cli.options import to_folder
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.experiments.reproduce import Study
    from camu.experiments.scheduler import Executor
    from camu.experiments.statistics import Verdict


PRINTED = ("aggregation", "updates", "resources", "theory")  # and `all`
# These are not about printed claims, and most take as long as all of those.
FURTHER = ("sensitivity", "harm", "air", "anchors", "trust")
_NAMES = (*PRINTED, *FURTHER, "all")


def _named(text: str) -> str:
    """The name of an experiment."""
    if text in ("contest", "unseen", "leaderboard"):
        raise InputError(f"{text}: it is gone; `camu board run` replaces it")
    if text not in _NAMES:
        raise InputError(f"experiment {text}: choose one of {', '.join(_NAMES)}")
    return text


Experiment = Annotated[
    str, typer.Argument(parser=_named, metavar="|".join(_NAMES), help="Which experiment.")
]
Engine = Annotated[
    Literal["local", "ray"], typer.Option("--engine", help="Local processes or Ray.")
]


def reproduce(
    experiment: Experiment = "all",
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="D", help="Only mnist or fashion-mnist.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            min=2,
            help="Seeds [default: 10; --quick: 8, air 5, trust 2; theory 20, trust 5].",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="200 samples per device, 60 rounds, 8 seeds: about an hour."),
    ] = False,
    engine: Engine = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="Address of a running Ray cluster.")
    ] = None,
    out: Annotated[
        Path | None,
        to_folder("--out", "Where results are kept [default: results, air or trust]."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="A1,A2", help="With anchors: only these sources."),
    ] = None,
) -> None:
    """Run the paper's experiments and judge every claim with seeds and intervals.

    Finished runs are skipped, so a second call trains nothing and a killed one is simply called
    again. Writes verdicts.json, verdicts.md and report.html. `camu board` ranks all schemes. air
    asks where over-the-air aggregation is ahead of digital uplinks at equal joules, seconds and
    hertz, and writes air.json, air.md and air.svg. anchors trains published tables of other
    projects again, cell by cell and the cheap ones first, judges each by a rule fixed beforehand,
    and writes anchors.json, anchors.md, and cells and values in files of their own. Stop it at any
    time; the same command goes on, and values of several machines can be copied into one folder.
    trust asks what hostile devices cost under the limits and rules of a server, and writes
    trust.json and trust.md.
    """
    from camu.experiments.reproduce import Study

    if only is not None and experiment != "anchors":
        raise InputError(f"--only {only}: it goes with `camu reproduce anchors` only")
    if experiment == "anchors":
        _anchors(out or Path("anchors"), only, seeds)
    elif experiment == "trust":
        _trust(out or Path("trust"), seeds or (2 if quick else 5))
    elif experiment == "air":
        where = _executor(out or Path("air"), engine, address)
        _air(dataset, seeds or (5 if quick else 10), where)
    else:
        chosen = PRINTED if experiment == "all" else (experiment,)
        study = Study.make(chosen, dataset, seeds, quick)
        _study(study, _executor(out or Path("results"), engine, address))


def _executor(out: Path, engine: str, address: str | None) -> Executor:
    from camu.experiments.scheduler import Executor
    from camu.outputs import claim

    claim(out, "reproduce")
    return Executor(out, engine=engine, address=address)


class _Bar(WorkBar):
    """A bar; Ctrl-C ends the command with exit code 130, and says that nothing is lost."""

    def __exit__(self, kind: object = None, *_: object) -> None:
        super().__exit__()
        if kind is KeyboardInterrupt:
            plain_console(stderr=True).print("stopped; the same command continues from here")
            raise typer.Exit(130) from None


def _anchors(out: Path, only: str | None, seeds: int | None) -> None:
    """Run what is missing of the published cells, and print their verdicts."""
    from camu.experiments.anchors.study import Study as Anchors
    from camu.outputs import claim

    wanted = tuple(name.strip().upper() for name in (only or "").split(",") if name.strip())
    study = Anchors(out, wanted, seeds)
    study.tasks()  # a wrong name is refused before anything is written
    claim(out, "reproduce")
    with _Bar() as study.progress:
        study.train()
    cells = study.write()
    table = number_table(("cell", "published", "ours", "n", "verdict"), text=("cell", "verdict"))
    for own in cells:
        theirs = own["published"]["order"] or f"{own['published']['mean']:g}"
        mean = own["ours"]["mean"]
        ours = "" if mean is None else f"{mean:.4g}"
        table.add_row(own["claim"], theirs, ours, str(own["ours"]["n"]), own["verdict"])
    print_table(table, plain_console())
    found = Counter(own["verdict"] for own in cells)
    print(", ".join(f"{number} {word}" for word, number in found.most_common()))
    print(f"page: {out / 'anchors.md'}")


def _trust(out: Path, seeds: int) -> None:
    """Compute what is missing of the table of hostile devices, and print it."""
    from camu.experiments.trust import DEVICES, RULES, WORLDS, compute, write
    from camu.outputs import claim

    claim(out, "reproduce")
    with _Bar("run") as bar:
        cells = compute(seeds, out, bar)
    write(cells, out)
    for world in WORLDS:
        rows = dict[tuple[str, int], list[str]]()
        for cell in cells:
            if cell.world == world:
                missed = " !" if cell.met is False else ""
                row = rows.setdefault((cell.attack, cell.bad), [])
                row.append(cell.loss.show(digits=1) + missed)
        table = number_table(("attack", "bad", *RULES), text=("attack",))
        for (attack, bad), own in rows.items():
            table.add_row(attack or "none", f"{bad}/{DEVICES}", *own)
        print(f"{world}:")
        print_table(table, plain_console())
    print("points of accuracy that are lost against honest devices without limits, with 95 %")
    print("intervals; !: the mean is above the aim of 2 points (1/20) or 10 points (4/20)")
    print(f"page: {out / 'trust.md'}")


def _air(dataset: str | None, seeds: int, executor: Executor) -> None:
    """Run what is missing of the map of the air, print it, and draw it."""
    from camu.experiments.air_map import run_map
    from camu.report.charts import save
    from camu.report.figures import air_figure

    with _Bar() as executor.progress:
        answers = [asdict(answer) for answer in run_map(dataset, seeds, executor)]
    about = f"points of accuracy, {seeds} seeds; *: the interval excludes 0, =: level"
    save(air_figure(answers, about), executor.out / "air.svg")
    counts = Counter(row["answer"] for row in answers)
    print(", ".join(f"{number} {word}" for word, number in counts.most_common()))
    print(f"page: {executor.out / 'air.md'}")
    print(f"figure: {executor.out / 'air.svg'}")


def _study(study: Study, executor: Executor) -> None:
    """Run what is missing of the study, print the verdicts, and write the page."""
    from camu.cli.compare import saved
    from camu.experiments.reproduce import run_study
    from camu.report.writing import PAGE, write_report

    with _Bar() as executor.progress:
        verdicts = run_study(study, executor)
    parts = []
    if executor.done:
        parts.append(f"trained {executor.trained} runs, reused {executor.reused} finished ones")
    if study.federations:
        parts.append(f"computed {study.federations} convex federations (these are not kept)")
    plain_console(stderr=True).print("; ".join(parts), soft_wrap=True)
    show_verdicts(verdicts, plain_console())
    out = executor.out
    print(f"verdicts: {out / 'verdicts.json'}")
    with stage("writing the page"):
        judged = (one for one in executor.done if one.planned.directory.path.parent == out / "runs")
        title = f"camu report: {out.resolve().name}"
        page = write_report([*saved(judged), out], out / PAGE, title=title)
    print(f"page: {page}")


_LEGEND = (
    "measured: mean ± half of the 95 % interval; n: seeds; within 1 point: two one-sided tests at "
    "5 % exclude a larger effect; detects: the smallest effect that so many seeds show in 80 % of "
    "studies.\nreproduced: the mean has the claimed sign and the interval excludes 0; "
    "contradicted: it excludes 0 on the other side; no effect above 1 point: it includes 0, and "
    "the effect is within 1 point; undecided: none of these; after Holm: corrected for the number "
    "of claims."
)


def show_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """The verdicts with their number and what the words mean."""
    print_table(verdict_table(verdicts), console)
    found = Counter(row.verdict for row in verdicts)
    counts = ", ".join(f"{number} {word}" for word, number in found.most_common())
    console.print(f"\n{counted(len(verdicts), 'verdict')}: {counts}.")
    console.print(_LEGEND, style="dim")


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """The verdicts for the terminal, without those by the servers' averages."""
    table = Table(box=None, header_style="bold")
    widths = {"verdict": 12, "after Holm": 12, "paper": 8, "statement": 24}
    rows = [row.cells() for row in verdicts]
    names = [name for name in rows[0] if name != "by server average"]
    for name in names:
        least = widths.get(name)
        table.add_column(name, overflow="fold", min_width=least, no_wrap=least is None)
    for row in rows:
        table.add_row(*(row[name] for name in names))
    return table
