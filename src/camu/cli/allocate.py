"""`camu allocate`: solve problem P1 or P2 for any instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, overload

import typer
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from camu.cli.console import plain_console
from camu.cli.guard import print_json
from camu.cli.options import Json, output_path
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.allocation.answer import Allocation
    from camu.allocation.horizon import HorizonProblem
    from camu.allocation.horizon_answer import HorizonAnswer
    from camu.allocation.problem import Problem
    from camu.allocation.sweep import SweepRow

_MOST_ROWS = 40


ProblemFile = Annotated[
    Path | None,
    typer.Argument(metavar="PROBLEM.json", help="The instance (docs/allocation.md)."),
]
Solver = Annotated[
    str,
    typer.Option(
        "--solver",
        metavar="NAME",
        help="exact: certified optimum; ppo: the paper's learning; latency: Benchmark 3; "
        "or your own function as module:name.",
    ),
]
Sweep = Annotated[
    str | None,
    typer.Option(
        "--sweep",
        metavar="energy=A,B,...",
        help="Solve for several energy budgets in joules; energy=FROM:TO:COUNT for a range.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of PPO.")]
Picture = Annotated[
    Path | None,
    typer.Option(
        "--figure",
        parser=output_path,
        metavar="FILE",
        help="Save the trade-off: .svg, .png, .pdf, .html.",
    ),
]
FromPlan = Annotated[
    Path | None,
    typer.Option(
        "--from-plan",
        metavar="PLAN",
        help="Take the instance from a plan: the output of camu plan --json, or a run.",
    ),
]
Measure = Annotated[
    int | None,
    typer.Option(
        "--measure",
        metavar="MODELS",
        min=2,
        max=100,
        help="With --from-plan: state problem P2 of the plan, with constants that a pilot "
        "measures at so many models. Its joules and seconds are taken from the budgets.",
    ),
]
ProblemOut = Annotated[
    Path | None,
    typer.Option("--problem", metavar="FILE", help="Save the instance as PROBLEM.json."),
]


def allocate(
    problem_file: ProblemFile = None,
    solver: Solver = "exact",
    sweep: Sweep = None,
    seed: Seed = 0,
    figure: Picture = None,
    from_plan: FromPlan = None,
    measure: Measure = None,
    problem_out: ProblemOut = None,
    as_json: Json = False,
) -> None:
    """Split an energy budget: how much power and how many updates each cluster gets.

    Minimises the convergence error of the paper's bound. The answer carries a certified lower
    bound; an infeasible budget is refused with the smallest one that would do. A problem of kind P2
    has a budget of joules and one of seconds for the whole run, and also decides about its rounds
    and CPU frequencies.
    """
    from camu.allocation.horizon import HorizonProblem

    problem = _problem(problem_file, from_plan, measure)
    if problem_out is not None:
        from camu.files import write_json

        write_json(problem_out, problem.to_dict())
    if isinstance(problem, HorizonProblem):
        if sweep is not None:
            raise InputError("--sweep: a problem over several rounds cannot be swept; leave it out")
        from camu.cli.allocate_horizon import allocate_horizon

        allocate_horizon(problem, lambda p: _solve(p, solver, seed), figure, as_json)
        return
    if sweep is not None:
        _sweep(problem, sweep, solver, seed, figure, as_json)
        return
    answer = _solve(problem, solver, seed)
    if figure is not None:
        from camu.report.figures import allocation_figure
        from camu.report.style import save

        save(allocation_figure(problem, answer), figure)
    if as_json:
        print_json(answer.to_dict())
        return
    show_allocation(problem, answer, plain_console())
    if figure is not None:
        print(f"picture: {figure}")


def _problem(
    problem_file: Path | None, from_plan: Path | None, measure: int | None
) -> Problem | HorizonProblem:
    """The instance of a file, or of a plan."""
    if (problem_file is None) == (from_plan is None):
        raise InputError("give PROBLEM.json or --from-plan PLAN, one of the two")
    if measure is not None:
        if from_plan is None:
            raise InputError("--measure: needs --from-plan PLAN, whose fleet trains the pilot")
        from camu.experiments.pilot import measured_problem

        return measured_problem(from_plan, measure)
    if from_plan is not None:
        from camu.schemes.plan_problem import problem_of_plan

        return problem_of_plan(from_plan)
    from camu.allocation.solve import read_problem

    assert problem_file is not None
    return read_problem(problem_file)


def _sweep(
    problem: Problem, text: str, solver: str, seed: int, figure: Path | None, as_json: bool
) -> None:
    """Solve for several budgets; show a table, and a figure if it is asked for."""
    from dataclasses import asdict

    from camu.allocation.sweep import parse_sweep, sweep_energy

    budgets = parse_sweep(text)
    with _bar() as show:
        rows = sweep_energy(problem, budgets, solver, seed, show)
    if figure is not None:
        from camu.report.figures import sweep_figure
        from camu.report.style import save

        save(sweep_figure(rows, problem), figure)
    if as_json:
        smallest = problem.smallest_budget_joules
        found = [asdict(row) for row in rows]
        print_json({"solver": solver, "smallest_budget_joules": smallest, "rows": found})
        return
    show_sweep(rows, problem, plain_console())
    if figure is not None:
        print(f"picture: {figure}")


def show_sweep(rows: Sequence[SweepRow], problem: Problem, console: Console) -> None:
    """A line per budget."""
    table = Table(box=None, header_style="bold")
    for name in ("budget J", "objective", "compute J", "transmit J", "power W", "updates"):
        table.add_column(name, justify="right")
    for row in rows:
        if row.objective is None:
            table.add_row(f"{row.budget_joules:.4g}", "too small")
            continue
        numbers = (row.objective, row.compute_joules, row.transmit_joules, row.power_watts)
        cells = [f"{number:.4g}" for number in numbers]
        table.add_row(f"{row.budget_joules:.4g}", *cells, str(row.updates))
    console.print(table)
    gaps = [row.gap for row in rows if row.gap is not None]
    console.print(
        f"\nThe smallest budget that has an answer is {problem.smallest_budget_joules:.4g} J."
        + (f" Every objective is at most {max(gaps):.2g} above the optimum." if gaps else ""),
        highlight=False,
        soft_wrap=True,
    )


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar, which appears with the first report of progress."""
    stderr = plain_console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        tasks: list[TaskID] = []

        def show(what: str, done: int, total: int) -> None:
            if not tasks:
                tasks.append(bar.add_task(what, total=total))
            bar.update(tasks[0], completed=done, description=what)

        yield show


@overload
def _solve(problem: Problem, solver: str, seed: int) -> Allocation: ...


@overload
def _solve(problem: HorizonProblem, solver: str, seed: int) -> HorizonAnswer: ...


def _solve(problem: Problem | HorizonProblem, solver: str, seed: int) -> Allocation | HorizonAnswer:
    from camu.allocation.solve import solve

    with _bar() as show:
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
