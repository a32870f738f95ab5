"""`camu allocate`: solve problem P1 for any instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from camu.cli.options import Json
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.allocation.answer import Allocation
    from camu.allocation.problem import Problem

_MOST_ROWS = 40


def allocate(
    problem_file: Annotated[
        Path | None,
        typer.Argument(metavar="PROBLEM.json", help="The instance (docs/allocation.md)."),
    ] = None,
    solver: Annotated[
        str,
        typer.Option(
            "--solver",
            metavar="NAME",
            help="exact: certified optimum; ppo: the paper's learning; latency: Benchmark 3; "
            "or your own function as module:name.",
        ),
    ] = "exact",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of PPO.")] = 0,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure", metavar="FILE", help="Save the trade-off: .svg, .png, .pdf, .html."
        ),
    ] = None,
    from_plan: Annotated[
        Path | None,
        typer.Option(
            "--from-plan",
            metavar="PLAN",
            help="Take the instance from a plan: the output of camu plan --json, or a run.",
        ),
    ] = None,
    problem_out: Annotated[
        Path | None,
        typer.Option("--problem", metavar="FILE", help="Save the instance as PROBLEM.json."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Split an energy budget: how much power and how many updates each cluster gets.

    Minimises the convergence error of the paper's bound. The answer carries a certified lower
    bound; an infeasible budget is refused with the smallest one that would do.
    """
    problem = _problem(problem_file, from_plan)
    if problem_out is not None:
        from camu.files import write_json

        write_json(problem_out, problem.to_dict())
    answer = _solve(problem, solver, seed)
    if figure is not None:
        from camu.report.figures import allocation_figure
        from camu.report.style import save

        save(allocation_figure(problem, answer), figure)
    if as_json:
        print(json.dumps(answer.to_dict()))
        return
    show_allocation(problem, answer, Console(emoji=False))
    if figure is not None:
        print(f"picture: {figure}")


def _problem(problem_file: Path | None, from_plan: Path | None) -> Problem:
    """The instance of a file, or of a plan."""
    if (problem_file is None) == (from_plan is None):
        raise InputError("give PROBLEM.json or --from-plan PLAN, one of the two")
    if from_plan is not None:
        from camu.schemes.plan_problem import problem_of_plan

        return problem_of_plan(from_plan)
    from camu.allocation.problem import Problem

    assert problem_file is not None
    return Problem.from_json(problem_file)


def _solve(problem: Problem, solver: str, seed: int) -> Allocation:
    """Solve with a progress bar, which appears when the solver first reports progress."""
    from camu.allocation.solve import solve

    with Progress(console=Console(stderr=True, emoji=False), transient=True) as bar:
        tasks: list[TaskID] = []

        def show(what: str, done: int, total: int) -> None:
            if not tasks:
                tasks.append(bar.add_task(what, total=total))
            bar.update(tasks[0], completed=done, description=what)

        return solve(problem, solver, seed=seed, progress=show)


def show_allocation(problem: Problem, answer: Allocation, console: Console) -> None:
    """The allocation as a table, with what binds and what a joule is worth."""
    transmit = problem.transmit_joules(answer.power_watts)
    update = problem.update_joules(answer.extra_updates)
    table = Table(box=None, header_style="bold")
    for name in ("cluster", "power W", "cap W", "updates", "compute J", "transmit J", "J"):
        table.add_column(name, justify="right")
    for c in range(min(problem.size, _MOST_ROWS)):
        table.add_row(
            str(c),
            f"{answer.power_watts[c]:.4g}",
            f"{problem.max_power_watts[c]:.4g}",
            str(1 + int(answer.extra_updates[c])),
            f"{update[c]:.4g}",
            f"{transmit[c]:.4g}",
            f"{update[c] + transmit[c]:.4g}",
        )
    console.print(table)
    if problem.size > _MOST_ROWS:
        console.print(f"... and {problem.size - _MOST_ROWS} more; --json lists all.")
    console.print(
        f"\n{answer.solver}: objective {answer.objective:.6g}, certified to be at most "
        f"{answer.gap:.2g} (relative) above the optimum; {answer.seconds:.3g} s.\n"
        f"Spends {answer.energy_joules:.4g} of {problem.energy_joules:.4g} J "
        f"({update.sum():.3g} computing, {transmit.sum():.3g} sending).\n"
        f"Binding: {', '.join(answer.binding) or 'nothing'}.",
        highlight=False,
        soft_wrap=True,
    )
    if answer.solver == "exact":  # only it computes a price
        console.print(
            f"One joule more would lower the objective by about {answer.shadow_price:.3g}.",
            highlight=False,
        )
