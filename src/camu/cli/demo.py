"""`camu demo`: the main job on embedded data, start to end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the runs are kept.")
    ] = Path("runs/demo"),
) -> None:
    """Plan a small fleet, train it with every scheme on embedded digits, and compare them.

    Takes under a minute and needs no download.
    """
    from camu.cli.compare import show_comparison
    from camu.cli.plan import show_plan
    from camu.config import load_config
    from camu.experiments import comparison
    from camu.report.writing import PAGE, write_report
    from camu.schemes import SCHEMES, make_scheme
    from camu.world import build_world

    console = Console()
    config = load_config(preset="demo")
    world = build_world(config)
    console.print("The plan: who clusters with whom, and what a round costs.\n")
    show_plan(make_scheme(config).plan(world), world, console)
    console.print("\nTraining with every scheme on the same fleet.\n")
    if (out / "fedavg").exists():  # an earlier demo: this one starts afresh
        for name in SCHEMES:
            shutil.rmtree(out / name, ignore_errors=True)
    histories = comparison.run_all(config, list(SCHEMES), [config.run.seed], out)
    show_comparison(comparison.compare(histories, [config.run.seed]), console)
    page = write_report([out / name for name in SCHEMES], out / PAGE, title="camu demo")
    console.print(
        f"\nEverything is in {out}: a directory per scheme with its plan, rounds and summary.\n"
        "One seed proves nothing: `camu compare --preset demo --seeds 5` gives intervals.\n"
        "Next: `camu plan --figure plan.svg`, `camu run --preset study --scheme camu`.",
        highlight=False,
    )
    print(f"\nThe whole story on one page, open it in a browser: {page}")
