"""`camu allocate` for problem P2: the answer, the prices of both budgets, the trade-off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from camu.cli.console import plain_console
from camu.cli.guard import print_json

if TYPE_CHECKING:
    from camu.allocation.horizon import HorizonProblem
    from camu.allocation.horizon_answer import HorizonAnswer

_MOST_ROWS = 40
_SHOWN_FACTORS = (0.5, 1.0, 2.0)
_LARGEST_SWEEP = 200  # clusters; above, the table would take minutes


def allocate_horizon(
    problem: HorizonProblem,
    solve: Callable[[HorizonProblem], HorizonAnswer],
    figure: Path | None,
    as_json: bool,
) -> None:
    """Solve the problem and show the answer as a table, a picture or JSON."""
    answer = solve(problem)
    if figure is not None:
        from camu.report.horizon_figure import horizon_figure
        from camu.report.style import save

        save(horizon_figure(problem, answer), figure)
    if as_json:
        origin = {"origin": dict(problem.origin)} if problem.origin else {}
        print_json({**answer.to_dict(), **origin})
        return
    console = plain_console()
    if problem.origin:
        _show_origin(problem, console)
    _show_answer(problem, answer, console)
    if problem.size <= _LARGEST_SWEEP:
        _show_trade_off(problem, console)
    if figure is not None:
        print(f"picture: {figure}")


def _show_origin(problem: HorizonProblem, console: Console) -> None:
    """The numbers of the problem and where they come from; of clusters, the range."""
    table = Table(
        box=None, header_style="bold", title="The problem and its sources", title_justify="left"
    )
    for name in ("key", "value", "from"):
        table.add_column(name, overflow="fold")
    for key, text in problem.origin.items():
        values = np.atleast_1d(np.asarray(getattr(problem, key, np.nan), dtype=np.float64))
        ends = [f"{value:.4g}" for value in (values.min(), values.max())]
        shown = ends[0] if ends[0] == ends[1] else " to ".join(ends)
        table.add_row(key, "" if shown == "nan" else shown, text)
    console.print(table)
    console.print()


def _show_answer(problem: HorizonProblem, answer: HorizonAnswer, console: Console) -> None:
    """Powers, updates and frequencies, what binds, and what a joule and a second are worth."""
    table = Table(box=None, header_style="bold")
    for name in ("cluster", "updates", "power W", "cap W", "devices", "slowest GHz", "fastest GHz"):
        table.add_column(name, justify="right")
    for c in range(min(problem.size, _MOST_ROWS)):
        hertz = answer.cpu_hz[problem.cluster == c]
        table.add_row(
            str(c),
            str(int(answer.updates[c])),
            f"{answer.power_watts[c]:.4g}",
            f"{problem.max_power_watts[c]:.4g}",
            str(hertz.size),
            f"{hertz.min() / 1e9:.3g}",
            f"{hertz.max() / 1e9:.3g}",
        )
    console.print(table)
    if problem.size > _MOST_ROWS:
        console.print(f"... and {problem.size - _MOST_ROWS} more; --json lists all.")
    slowed = float(np.mean(answer.cpu_hz < problem.max_hz * (1 - 1e-9)))
    console.print(
        f"\n{answer.solver}: {answer.rounds} rounds, gap {answer.objective:.6g} of "
        f"{problem.initial_gap:.6g} at the start, certified to be at most {answer.gap:.2g} "
        f"(relative) above the optimum; {answer.seconds:.3g} s.\n"
        f"Spends {answer.energy_joules:.4g} of {problem.energy_joules:.4g} J and "
        f"{answer.run_seconds:.4g} of {problem.seconds:.4g} s; clusters are ready after "
        f"{answer.ready_seconds:.4g} s of a round, and {slowed:.0%} of the devices run below their "
        f"largest frequency.\n"
        f"Binding: {', '.join(answer.binding) or 'nothing'}.",
        highlight=False,
        soft_wrap=True,
    )
    if answer.solver == "exact":  # only it computes prices
        console.print(
            f"With as many rounds, one joule more would lower the gap by about "
            f"{answer.joule_price:.3g}, one second more by about {answer.second_price:.3g}.",
            highlight=False,
            soft_wrap=True,
        )


def _show_trade_off(problem: HorizonProblem, console: Console) -> None:
    """What half and twice of both budgets would change."""
    from camu.allocation.horizon_sweep import trade_off

    table = Table(
        box=None, header_style="bold", title="Joules against seconds", title_justify="left"
    )
    names = ("J", "s", "gap", "rounds", "mean updates", "mean W", "mean GHz", "per J", "per s")
    for name in names:
        table.add_column(name, justify="right")
    for cell in trade_off(problem, _SHOWN_FACTORS):
        table.add_row(
            f"{cell.energy_joules:.4g}",
            f"{cell.seconds:.4g}",
            f"{cell.objective:.5g}",
            str(cell.rounds),
            f"{cell.updates:.2f}",
            f"{cell.power_watts:.3g}",
            f"{cell.cpu_hz / 1e9:.3g}",
            f"{cell.joule_price:.2g}",
            f"{cell.second_price:.2g}",
        )
    console.print()
    console.print(table)
