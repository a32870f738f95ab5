"""`camu demo`: the main job on embedded data, start to end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camu.cli.console import plain_console
from camu.cli.options import Fleet, Snr, fleet_files, to_folder

if TYPE_CHECKING:
    from camu.experiments.scheduler import PlannedRun

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


def demo(
    out: Annotated[
        Path,
        to_folder("--out", "Where the runs are kept."),
    ] = Path("runs/demo"),
    fleet: Fleet = None,
    snr: Snr = None,
) -> None:
    """Plan a small fleet, train it with several schemes on embedded digits, and compare them.

    Takes under a minute and needs no download. A second demo replaces the first. With --fleet the
    devices come from your file; where they hold more samples than the digits have, they share them.
    """
    from camu.cli.compare import run_with_bars, saved, show_comparison
    from camu.cli.plan_tables import show_plan
    from camu.config import load_config
    from camu.experiments.compare import compared_runs, tabulate_runs
    from camu.report.writing import PAGE, write_report
    from camu.schemes import make_scheme, plans
    from camu.simulation.dry_run import round_cost
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
    scheme = make_scheme(config)
    plan = plans.plan(scheme, world)
    show_plan(plan, world, round_cost(world, scheme, plan), console)
    console.print("\nTraining with several schemes on the same fleet.\n")
    done = run_with_bars(runs, "the same command starts again")
    table = tabulate_runs(done)
    show_comparison(table, console)
    page = write_report(saved(done), out / PAGE, title="camu demo", comparison=table)
    console.print(
        f"\nEverything is in {out}: a directory per scheme with its plan, rounds and summary.\n"
        "One seed proves nothing: `camu compare --preset demo --seeds 5` gives intervals.\n"
        "Next: `camu plan --figure plan.svg`, `camu run --preset study --scheme camu`.",
    )
    print(f"\nThe whole story on one page, open it in a browser: {page}")


def _make_room(out: Path, runs: Sequence[PlannedRun]) -> None:
    """Remove the runs of an earlier demo; refuse a directory that holds anything else."""
    from camu.files import write_json
    from camu.outputs import MARK, claim
    from camu.simulation.directory import RunDirectory

    mark, home = claim(out, "demo"), out.resolve()
    names = mark.get("runs")
    for name in names if isinstance(names, list) else []:
        path = (home / str(name)).resolve()
        if home in path.parents and RunDirectory(path).exists():
            RunDirectory(path).remove()
    made = [str(run.directory.path.relative_to(out)) for run in runs]
    write_json(out / MARK, {**mark, "runs": made})
