"""`camu demo`: the main job on embedded data, start to end."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camu.cli.console import plain_console
from camu.cli.options import Fleet, Snr, fleet_files, output_folder

if TYPE_CHECKING:
    from camu.experiments.compare import ComparedRun

# Enough to show what clusters, contributions, update counts and powers do.
DEMO_SCHEMES = (
    "fedavg",
    "wasserstein",
    "clustered",
    "compute-rounds",
    "camu",
    "dsc",
    "local-sgd",
    "camu-joint",
    "hti",
    "adaptive-tau",
    "camu-nova",
)

_MARK = "demo.json"  # lists the directories that a demo wrote, relative to its own


def demo(
    out: Annotated[
        Path,
        typer.Option("--out", parser=output_folder, metavar="DIR", help="Where the runs are kept."),
    ] = Path("runs/demo"),
    fleet: Fleet = None,
    snr: Snr = None,
) -> None:
    """Plan a small fleet, train it with several schemes on embedded digits, and compare them.

    Takes under a minute and needs no download. A second demo replaces the first. With --fleet the
    devices come from your file; where they hold more samples than the digits have, they share them.
    """
    from camu.cli.compare import run_with_bars, show_comparison
    from camu.cli.plan import show_plan
    from camu.config import load_config
    from camu.experiments.compare import compared_runs, tabulate_runs
    from camu.report.writing import PAGE, write_report
    from camu.schemes import make_scheme
    from camu.schemes.registry import plan_for
    from camu.world import build_world, with_data

    console = plain_console()
    config = load_config(preset="demo")
    if fleet is not None:
        files = fleet_files(fleet, snr)
        config = config.replace({**files, "data.with_replacement": True})
    seeds = [config.run.seed]
    runs = compared_runs(config, DEMO_SCHEMES, seeds, out)
    world = with_data(build_world(config))  # wrong files are refused before anything is written
    _make_room(out, runs)
    console.print("The plan: who clusters with whom, and what a round costs.\n")
    show_plan(plan_for(make_scheme(config), world), world, console)
    console.print("\nTraining with several schemes on the same fleet.\n")
    table = tabulate_runs(runs, run_with_bars(runs, "the same command starts again"))
    show_comparison(table, console)
    paths = [run.directory.path for run in runs]
    page = write_report(paths, out / PAGE, title="camu demo", comparison=table)
    console.print(
        f"\nEverything is in {out}: a directory per scheme with its plan, rounds and summary.\n"
        "One seed proves nothing: `camu compare --preset demo --seeds 5` gives intervals.\n"
        "Next: `camu plan --figure plan.svg`, `camu run --preset study --scheme camu`.",
        highlight=False,
    )
    print(f"\nThe whole story on one page, open it in a browser: {page}")


def _make_room(out: Path, runs: Sequence[ComparedRun]) -> None:
    """Remove the runs of an earlier demo; refuse a directory that holds anything else."""
    from camu.errors import InputError
    from camu.files import read_json, write_json
    from camu.simulation.directory import RunDirectory

    mark = out / _MARK
    if mark.exists():
        document = read_json(mark, "the list of a demo's runs")
        names = document.get("runs") if isinstance(document, dict) else None
        if not isinstance(names, list):
            raise InputError(f"{mark}: no demo wrote this file; give an empty directory with --out")
        home = out.resolve()
        for path in ((home / str(name)).resolve() for name in names):
            if home in path.parents and RunDirectory(path).exists():
                shutil.rmtree(path)
    elif out.exists() and any(out.iterdir()):
        raise InputError(
            f"--out {out}: this directory holds files that no demo wrote; give an empty directory"
        )
    write_json(mark, {"runs": [str(run.directory.path.relative_to(out)) for run in runs]})
