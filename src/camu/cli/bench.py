"""`camu bench`: how fast training is on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table

from camu.cli.console import plain_console
from camu.cli.guard import print_json
from camu.cli.options import Json

Column = tuple[str, Callable[[Any], str]]  # its head, and how its values are written


def _percent(value: float) -> str:
    return f"{100 * value:.0f}"


SPEED_COLUMNS: dict[str, Column] = {
    "samples_per_second": ("samples\nper second", "{:,.0f}".format),
    "ratio_to_plain": ("times\nplain", "{:.2f}".format),
    "ratio_to_tuned": ("times\ntuned", "{:.2f}".format),
    "roofline_fraction": ("of sgemm,\n%", _percent),
    "overhead_fraction": ("outside\ntraining, %", _percent),
    "peak_mb": ("memory,\nMB", "{:,.0f}".format),
}
GROWTH_COLUMNS: dict[str, Column] = {
    "devices": ("devices", "{:,}".format),
    "units_per_round": ("trained\nper round", "{:,}".format),
    "world_seconds": ("world,\ns", "{:.2f}".format),
    "plan_seconds": ("plan,\ns", "{:.2f}".format),
    "round_seconds": ("round,\ns", "{:.3f}".format),
    "outside_training_fraction": ("outside\ntraining, %", _percent),
    "peak_mb": ("memory,\nMB", "{:,.0f}".format),
}
LEGEND = (
    "times plain: how much faster than one device after another with torch's layers,\n"
    "  optimiser and default threads.\n"
    "times tuned: how much faster than one process per core with one torch thread,\n"
    "  channels-last images and in-place steps on flat tensors.\n"
    "of sgemm: arithmetic per second against a large matrix product on all cores,\n"
    "  measured in turn with the rest.\n"
    "outside training: the part of the workers' time that they do not compute inside kernels.\n"
    "memory: the most that the process held."
)


def bench(
    workloads: Annotated[
        str | None,
        typer.Option("--workloads", metavar="NAME,NAME", help="Measure only these [default: all]."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small workloads: a first look in seconds.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure the engine against a plain and a tuned loop of torch, in turn and repeatedly.

    W1: 30 devices, one step of 400 samples each. W2: the same with an epoch of 5 steps. W3: 1 000
    devices, one step of 12 samples each, in 30 units. W3d: the same in 1 000 units. own, mlp, gru,
    resnet8: W1 with a convolutional network of the user's own, a perceptron, a GRU and a ResNet;
    own-many and so on: W3d with these. evaluation: 10 000 test images. run: `camu run --preset
    study` from its start to its report. growth: rounds of 1 000 single devices out of 1 000, 10 000
    and 100 000.
    """
    from camu.bench.suite import MEASUREMENTS, run_bench

    stderr = plain_console(stderr=True)
    names = MEASUREMENTS if workloads is None else [n.strip() for n in workloads.split(",")]
    with stderr.status("measuring") as status:
        result = run_bench(names, quick=quick, progress=status.update)
    if as_json:
        print_json(result)
        return
    console = plain_console()
    for part in describe(result):
        console.print(part, highlight=False)


def describe(result: dict[str, Any]) -> list[Table | str]:
    """The figures as tables and sentences."""
    shown: list[Table | str] = []
    if result["workloads"]:
        shown.append(_table("workload", SPEED_COLUMNS, result["workloads"]))
    if "run" in result:
        shown.append(_run_sentence(result["run"]))
    if "growth" in result:
        rows = {str(number): row for number, row in enumerate(result["growth"])}
        shown.append(_table(None, GROWTH_COLUMNS, rows))
    machine = result["machine"]
    kernels = {name: row["kernel"] for name, row in result["workloads"].items()}
    others = [f"{name}: {k}" for name, k in kernels.items() if k != machine["kernel"]]
    shown.append(f"{LEGEND}\nkernel: {', '.join([machine['kernel'], *others])}.")
    if machine["quick"]:
        shown.append("These are small workloads for a first look; leave --quick out for figures.")
    if machine["load_before"] > 0.25 * machine["cores"]:
        shown.append(
            f"Other programs were running (load {machine['load_before']:g} on {machine['cores']} "
            "cores); the loops suffer from that in different ways, so repeat it on an idle machine."
        )
    return shown


def _table(title: str | None, columns: dict[str, Column], rows: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold")
    if title:
        table.add_column(title)
    for head, _ in columns.values():
        table.add_column(head, justify="right")
    for name, row in rows.items():
        cells = [form(row[key]) if key in row else "-" for key, (_, form) in columns.items()]
        table.add_row(*([name] if title else []), *cells)
    return table


def _run_sentence(run: dict[str, Any]) -> str:
    fixed = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in run["fixed_seconds"].items())
    return (
        f"camu run --preset study: {run['round_seconds']:.3f} s per round, "
        f"{run['outside_training_fraction']:.0%} of it outside training; 150 rounds take "
        f"{run['seconds_150_rounds']:.0f} s, {run['outside_training_fraction_150_rounds']:.0%} "
        f"outside training. Before and after the rounds: {fixed}. Peak memory "
        f"{run['peak_mb']:.0f} MB."
    )
