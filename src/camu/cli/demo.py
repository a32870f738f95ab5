"""`camu demo`: the main job on embedded data, start to end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camu.cli.console import plain_console
from camu.cli.options import Fleet, Snr, fleet_files, to_folder

if TYPE_CHECKING:
    from camu.config import Config
    from camu.experiments.scheduler import PlannedRun

# The plainest baseline, Benchmark 2 and CAMU of the paper, compressed updates, and our planner.
DEMO_SCHEMES = ("fedsgd", "compute-rounds", "camu-joint", "fedpaq", "camu-balanced")
DEMO_SEEDS = 3
_BUDGET = "compute-rounds"  # what half of the rounds cost with it is the budget


def demo(
    out: Annotated[
        Path,
        to_folder("--out", "Where the runs are kept."),
    ] = Path("runs/demo"),
    fleet: Fleet = None,
    snr: Snr = None,
) -> None:
    """Plan a small fleet, train it with five schemes on embedded digits, and say who is best.

    Every scheme trains until it has spent the same energy and the same time, with three seeds.
    Takes under a minute and needs no download. A second demo replaces the first. With --fleet the
    devices come from your file; where they hold more samples than the digits have, they share them.
    """
    from camu.cli.compare import run_with_bars, saved, show_comparison
    from camu.cli.plan_tables import show_plan
    from camu.config import load_config
    from camu.experiments.compare import compared_runs, tabulate_runs
    from camu.files import write_json
    from camu.report.writing import PAGE, write_report
    from camu.schemes import make_scheme, plans
    from camu.simulation.dry_run import round_cost
    from camu.world import build_world, with_data

    console = plain_console()
    config = load_config(preset="demo")
    if fleet is not None:
        files = fleet_files(fleet, snr)
        config = config.replace({**files, "data.with_replacement": True})
    world = with_data(build_world(config))  # wrong files are refused before anything is written
    scheme = make_scheme(config)
    plan = plans.plan(scheme, world)
    config = _with_budget(config)
    seeds = range(config.run.seed, config.run.seed + DEMO_SEEDS)
    runs = compared_runs(config, DEMO_SCHEMES, seeds, out)
    _make_room(out, runs)
    console.print(f"The plan of {scheme.name}: who clusters with whom, and what a round costs.\n")
    show_plan(plan, world, round_cost(world, scheme, plan), console)
    console.print("\nTraining with several schemes on the same fleet, at equal energy and time.\n")
    done = run_with_bars(runs, "the same command starts again")
    table = tabulate_runs(done).best_first("joules")
    write_json(out / "comparison.json", table.to_dict())
    page = write_report(saved(done), out / PAGE, title="camu demo", comparison=table)
    show_comparison(table, console)
    console.print(
        f"\nAll runs are in {out}. Next: `camu plan --figure plan.svg`, "
        "`camu compare --preset demo --seeds 5`, `camu live`.",
    )
    print(f"The whole story on one page, open it in a browser: {page}")


def _with_budget(config: Config) -> Config:
    """Every run goes on until it has spent what half of the rounds of one scheme cost."""
    from camu.experiments.budgets import spent_in

    rounds = max(1, config.run.rounds // 2)
    spent = spent_in(config, _BUDGET, rounds)
    return config.replace(
        {
            "run.rounds": rounds,
            "run.eval_every": 1,
            "run.min_joules": spent["joules"],
            "run.min_virtual_seconds": spent["seconds"],
        }
    )


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
