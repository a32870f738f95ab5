"""`camu bench`: how fast training is on this machine."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from camu.cli.options import Json


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small workloads: a first look in seconds.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure the engine against a plain PyTorch loop, in one process, in turn and repeatedly.

    W1: 30 devices, one step of 400 samples each. W2: the same with an epoch of 5 steps. W3: 1 000
    devices, one step of 12 samples each, in 30 units.
    """
    from camu.bench import run_bench

    stderr = Console(stderr=True, emoji=False)
    with stderr.status("measuring") as status:
        result = run_bench(quick=quick, progress=status.update)
    if as_json:
        print(json.dumps(result))
        return
    table = Table(box=None, header_style="bold")
    table.add_column("workload")
    columns = {
        "ratio_to_plain": ("x plain loop", "{:.2f}"),
        "rounds_per_second": ("rounds/s", "{:.2f}"),
        "samples_per_second": ("samples/s", "{:,.0f}"),
        "roofline_fraction": ("of sgemm roofline", "{:.0%}"),
        "overhead_fraction": ("outside kernels", "{:.1%}"),
        "peak_mb": ("peak MB", "{:.0f}"),
    }
    for title, _ in columns.values():
        table.add_column(title, justify="right")
    for name, row in result["workloads"].items():
        table.add_row(name, *(form.format(row[key]) for key, (_, form) in columns.items()))
    Console(emoji=False).print(table)
