"""`camu tune`: the best settings of schemes at a budget, and what they cost."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camu.cli.console import WorkBar, counted, number_table, plain_console, print_table
from camu.cli.guard import print_json
from camu.cli.options import (
    Address,
    ConfigFile,
    Fleet,
    Json,
    Preset,
    Settings,
    Snr,
    check_outputs,
    fleet_files,
    resolve,
    to_folder,
)

if TYPE_CHECKING:
    from camu.config import Config
    from camu.experiments.scheduler import Runner
    from camu.experiments.tuning.search import Plan
    from camu.experiments.tuning.tuned import Tuned

Schemes = Annotated[
    str | None,
    typer.Option(
        "--schemes",
        metavar="A,B,…",
        help="Schemes, families or `all`; NAME@PARAMETER=VALUE keeps a parameter as it is "
        "[default: scheme.name].",
    ),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="AXIS=N",
        help="Judge models when so many joules, seconds or megabytes are spent; several give a "
        "front [default: run.min_joules and the like].",
    ),
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="KEY=LOW:HIGH",
        help="Search this key or parameter, also as LOW:HIGH:log or A,B,C; with SCHEME@ before it "
        "of one scheme; KEY=none does not; repeatable [default: what each scheme says].",
    ),
]
Trials = Annotated[
    int, typer.Option("--trials", metavar="N", min=1, help="Settings to try per scheme.")
]
Seeds = Annotated[
    int, typer.Option("--seeds", metavar="N", min=1, help="Tuning seeds, from 1000 on.")
]
Out = Annotated[Path | None, to_folder("--out", "Directory of all results [default: runs/tune].")]


def tune(
    schemes: Schemes = None,
    budgets: Budgets = None,
    ranges: Ranges = None,
    trials: Trials = 32,
    seeds: Seeds = 3,
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    fleet: Fleet = None,
    snr: Snr = None,
    out: Out = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Search the best settings of schemes at a budget: which scheme, which numbers, at what cost.

    Each trial runs on tuning seeds, with models judged by samples that the devices hold back
    (data.validation_share, 20 % unless set): the test samples are not used. After every seed, a
    trial that is below the median of those before is given up. The first trial is the scheme as
    configured.

    --out gets a TOML per scheme that run, compare, live and deploy take, tune.json, and
    report.html with all trials. The same command continues where it was cut off, with the same
    trials; with more --trials it goes on from there. It needs the extra `tune`.
    """
    from camu.experiments.tuning.answer import result_names, write_results
    from camu.experiments.tuning.ranges import read_asked
    from camu.experiments.tuning.tune import plans_of
    from camu.outputs import claim
    from camu.report.tuning import write_tuning
    from camu.report.writing import PAGE
    from camu.schemes.variants import split_schemes

    config = resolve(file, preset, settings, overrides=fleet_files(fleet, snr))
    words = [config.scheme.name] if schemes is None else split_schemes(schemes)
    plans = plans_of(config, words, read_asked(ranges or []), budgets, trials, seeds)
    folder = out or Path("runs/tune")
    names = [folder / name for name in (*result_names(plans), PAGE)]
    check_outputs(names, config, file, code=[word.partition("@")[0] for word in words])
    claim(folder, "tune")
    found = _search(plans, config, folder, address)
    write_results(found, plans, config, folder)
    page = write_tuning(found, folder)
    if as_json:
        from camu.files import read_json

        print_json(read_json(folder / "tune.json", "the results of camu tune"))
        return
    _show(found, plans, folder)
    print(f"everything is in {folder}; look at {page}")


def _search(plans: list[Plan], config: Config, folder: Path, address: str | None) -> list[Tuned]:
    """Search with a bar; Ctrl-C ends the command with exit code 130, and nothing is lost."""
    from camu.experiments.tuning.tune import search

    stderr = plain_console(stderr=True)
    bar = _Bar(sum(len(plan.seeds) * plan.trials for plan in plans))
    try:
        with _runner(config, address) as runner, bar.work:
            return search(plans, folder, runner, bar, lambda text: stderr.print(text))
    except KeyboardInterrupt:
        stderr.print(f"stopped after {bar.done}; the same command continues from here")
        raise typer.Exit(130) from None


@contextlib.contextmanager
def _runner(config: Config, address: str | None) -> Iterator[Runner]:
    """Processes of this machine, or tasks on Ray."""
    from camu.experiments.scheduler import on_ray, processes
    from camu.simulation.ray_session import engine_session

    with engine_session(config, address):
        if config.machine.engine == "ray":
            yield on_ray(address)
            return
        with processes(logging.ERROR) as runner:
            yield runner


_FEW = 3  # runs that say nothing about the time yet: processes start


class _Bar:
    """The progress of all runs, with an estimate of the time that is left."""

    def __init__(self, total: int) -> None:
        self.work, self.total = WorkBar("run"), total
        self.begin: tuple[float, int] | None = None
        self.steps = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far the search is; runs of earlier calls say nothing about the time."""
        now, self.steps = time.monotonic(), done
        if self.begin is None:
            self.begin = (now, done)
        started, first = self.begin
        left = ""
        if first + _FEW < done < total:
            seconds = (now - started) * (total - done) / (done - first)
            left = f"about {_minutes(seconds)} left"
        self.work(what, done, total, left)

    @property
    def done(self) -> str:
        """How many runs are done, in words."""
        return f"{self.steps} of {counted(self.total, 'run')}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _show(found: Sequence[Tuned], plans: Sequence[Plan], folder: Path) -> None:
    """The answer as a table, the files, and what to do next."""
    from camu.experiments.tuning.answer import (
        COLUMNS,
        COMPARE,
        answer_rows,
        heading,
        ranked,
    )

    console, order = plain_console(), ranked(found)
    table = number_table(COLUMNS, answer_rows(found), title=heading(found), text=("scheme",))
    print_table(table, console)
    console.print("\nThe best settings, as camu compare takes them:")
    for one in order:
        console.print(f"  {one.word}", soft_wrap=True)
    name = plans[list(found).index(order[0])].name
    console.print(f"For camu run, live and deploy: -c {folder / name}.toml", soft_wrap=True)
    console.print(f"On other seeds and the test samples: sh {folder / COMPARE}", soft_wrap=True)
