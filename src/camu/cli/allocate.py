"""`camu allocate`: solve problem P1, P2 or one per device for any instance."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from camu.cli.console import WorkBar, number_table, plain_console, print_table
from camu.cli.guard import print_json
from camu.cli.options import Json, check_outputs, to_file
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.allocation.answer import Allocation, P2Answer
    from camu.allocation.device_problem import DeviceProblem
    from camu.allocation.p1 import Problem
    from camu.allocation.p2 import P2Problem
    from camu.allocation.sweep import SweepRow

_MOST_ROWS = 40
_SHOWN_FACTORS = (0.5, 1.0, 2.0)
_LARGEST_TRADE_OFF = 200  # clusters; above, the table would take minutes


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
        "or your own function as module:name. Problems other than P1 have only exact.",
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
    Path | None, to_file("--figure", "Save the trade-off: .svg, .png, .pdf, .html.")
]
ProblemOut = Annotated[Path | None, to_file("--problem", "Save the instance as PROBLEM.json.")]
FromPlan = Annotated[
    Path | None,
    typer.Option(
        "--from-plan",
        metavar="PLAN",
        help="Take the instance from a plan: the output of camu plan --json, or a run.",
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="With --from-plan: state a problem per device, whose limits are those of a round of "
        "the plan: ofdma-energy, ofdma-time, fedl or resource-blocks.",
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


def allocate(
    problem_file: ProblemFile = None,
    solver: Solver = "exact",
    sweep: Sweep = None,
    seed: Seed = 0,
    figure: Picture = None,
    from_plan: FromPlan = None,
    kind: Kind = None,
    measure: Measure = None,
    problem_out: ProblemOut = None,
    as_json: Json = False,
) -> None:
    """Split an energy budget: how much power and how many updates each cluster gets.

    Minimises the convergence error of the paper's bound. The answer carries a certified lower
    bound; an infeasible budget is refused with the smallest one that would do. A problem of kind P2
    has a budget of joules and one of seconds for the whole run, and also decides about its rounds
    and CPU frequencies. Problems per device give each its bandwidth, power and frequency.
    """
    check_outputs((figure, problem_out), None, problem_file, from_plan, code=[solver])
    problem: Any = _problem(problem_file, from_plan, kind, measure)
    per_device = problem.kind not in ("P1", "P2")
    if per_device and figure is not None:
        raise InputError(f"--figure: there is none of {problem.kind}; leave it out")
    if from_plan is not None and (figure or problem_out):
        from camu.schemes.plans import config_of_plan

        check_outputs((figure, problem_out), config_of_plan(from_plan))
    if problem_out is not None:
        from camu.files import write_json

        write_json(problem_out, problem.to_dict())
    with WorkBar() as bar:
        from camu.allocation.solve import solve

        found: Any = (
            solve(problem, solver, seed=seed, progress=bar)
            if sweep is None
            else _sweep(problem, sweep, solver, seed, bar)
        )
    if figure is not None:
        _draw(problem, found, figure)
    if as_json:
        print_json(_document(problem, found, solver))
        return
    if per_device:
        from camu.cli.allocate_devices import show_devices

        show_devices(problem, found, plain_console())
        return
    show = _show_sweep if sweep is not None else _show_p1 if problem.kind == "P1" else _show_p2
    show(problem, found, plain_console())
    if figure is not None:
        print(f"picture: {figure}")


def _problem(
    problem_file: Path | None, from_plan: Path | None, kind: str | None, measure: int | None
) -> Problem | P2Problem | DeviceProblem:
    """The instance of a file, or of a plan."""
    if (problem_file is None) == (from_plan is None):
        raise InputError("give PROBLEM.json or --from-plan PLAN, one of the two")
    if kind is not None:
        if from_plan is None or measure is not None:
            raise InputError("--kind: goes with --from-plan PLAN, and without --measure")
        from camu.schemes.device_problems import device_problem
        from camu.schemes.plans import groups_of_plan

        plan, groups = groups_of_plan(from_plan)
        return device_problem(kind, plan, groups.world)
    if measure is not None:
        if from_plan is None:
            raise InputError("--measure: needs --from-plan PLAN, whose fleet trains the pilot")
        from camu.experiments.pilot import measured_problem

        return measured_problem(from_plan, measure)
    if from_plan is not None:
        from camu.schemes.plans import groups_of_plan, problem_of_groups

        return problem_of_groups(groups_of_plan(from_plan)[1])
    from camu.allocation.solve import read_problem

    assert problem_file is not None
    return read_problem(problem_file)


def _sweep(
    problem: Problem | P2Problem | DeviceProblem, text: str, solver: str, seed: int, bar: WorkBar
) -> list[SweepRow]:
    """The answers at several budgets."""
    from camu.allocation.p1 import Problem
    from camu.allocation.sweep import parse_sweep, sweep_energy

    if not isinstance(problem, Problem):
        raise InputError(f"--sweep: {problem.kind} cannot be swept; leave it out")
    return sweep_energy(problem, parse_sweep(text), solver, seed, bar)


def _draw(problem: Any, found: Any, path: Path) -> None:
    """Save the figure of a sweep or of an answer."""
    from camu.report import figures
    from camu.report.charts import save

    if isinstance(found, list):
        save(figures.sweep_figure(found, problem), path)
    else:
        draw = figures.p2_figure if problem.kind == "P2" else figures.allocation_figure
        save(draw(problem, found), path)


def _document(problem: Any, found: Any, solver: str) -> dict[str, Any]:
    """A sweep or an answer as JSON."""
    if isinstance(found, list):
        smallest, rows = problem.smallest_budget_joules, [asdict(row) for row in found]
        return {"solver": solver, "smallest_budget_joules": smallest, "rows": rows}
    origin = dict(getattr(problem, "origin", {}))
    return {**found.to_dict(), **({"origin": origin} if origin else {})}


def _show_sweep(problem: Problem, rows: list[SweepRow], console: Console) -> None:
    """Print a line per budget."""
    lines = []
    for row in rows:
        numbers = (row.objective, row.compute_joules, row.transmit_joules, row.power_watts)
        cells = [f"{number:.4g}" for number in numbers if number is not None]
        cells = [*cells, str(row.updates)] if cells else ["too small"]
        lines.append([f"{row.budget_joules:.4g}", *cells])
    names = ("budget J", "objective", "compute J", "transmit J", "power W", "updates")
    print_table(number_table(names, lines), console)
    gaps = [row.gap for row in rows if row.gap is not None]
    console.print(
        f"\nThe smallest budget that has an answer is {problem.smallest_budget_joules:.4g} J."
        + (f" Every objective is at most {max(gaps):.2g} above the optimum." if gaps else ""),
        soft_wrap=True,
    )


def _show_p1(problem: Problem, answer: Allocation, console: Console) -> None:
    """Print powers and updates, what binds, and what a joule more would bring."""
    transmit = problem.transmit_joules(answer.power_watts)
    update = problem.update_joules(answer.extra_updates)
    columns = (answer.power_watts, problem.max_power_watts, update, transmit, update + transmit)
    rows = []
    for c in range(min(problem.size, _MOST_ROWS)):
        power, cap, *joules = (f"{column[c]:.4g}" for column in columns)
        rows.append((str(c), power, cap, str(1 + int(answer.extra_updates[c])), *joules))
    names = ("cluster", "power W", "cap W", "updates", "compute J", "transmit J", "J")
    _show_answer(
        *(problem, answer, number_table(names, rows), console),
        f"objective {answer.objective:.6g} (less is better)",
        f" ({update.sum():.3g} computing, {transmit.sum():.3g} sending)",
        f"One joule more would lower the objective by about {answer.shadow_price:.3g}."
        if answer.shadow_price
        else "More joules would change nothing: other limits bind.",
    )


def _show_answer(problem: Any, answer: Any, table: Table, console: Console, *said: str) -> None:
    """Print the table of clusters; `said` is about the value, the spending and the prices."""
    value, more, prices = said
    print_table(table, console)
    if problem.size > _MOST_ROWS:
        console.print(f"... and {problem.size - _MOST_ROWS} more; --json lists all.")
    console.print(
        f"\n{answer.solver}: {value}, certified to be at most {answer.gap:.2g} (relative) above "
        f"the optimum; {answer.seconds:.3g} s.\n"
        f"Spends {answer.energy_joules:.4g} of {problem.energy_joules:.4g} J{more}.\n"
        f"Binding: {', '.join(answer.binding) or 'nothing'}."
        + (f"\n{prices}" if answer.solver == "exact" else ""),  # only it computes prices
        soft_wrap=True,
    )


def _show_p2(problem: P2Problem, answer: P2Answer, console: Console) -> None:
    """Print where the numbers come from, the answer, and what other budgets would change."""
    from camu.allocation.sweep import trade_off

    if problem.origin:
        _show_origin(problem, console)
    _show_p2_answer(problem, answer, console)
    if problem.size > _LARGEST_TRADE_OFF:
        return
    names = ("J", "s", "gap", "rounds", "mean updates", "mean W", "mean GHz", "per J", "per s")
    forms = ("{:.4g}", "{:.4g}", "{:.5g}", "{}", "{:.2f}", "{:.3g}", "{:.3g}", "{:.2g}", "{:.2g}")
    rows = []
    for cell in trade_off(problem, _SHOWN_FACTORS):
        values = cell._replace(cpu_hz=cell.cpu_hz / 1e9)
        rows.append([form.format(value) for form, value in zip(forms, values, strict=True)])
    console.print()
    print_table(number_table(names, rows, "Joules against seconds"), console)


def _show_origin(problem: P2Problem, console: Console) -> None:
    """Print the numbers of the problem and where they come from; of clusters, the range."""
    import numpy as np

    rows = []
    for key, text in problem.origin.items():
        values = np.atleast_1d(np.asarray(getattr(problem, key, np.nan), dtype=np.float64))
        ends = [f"{value:.4g}" for value in (values.min(), values.max())]
        shown = ends[0] if ends[0] == ends[1] else " to ".join(ends)
        rows.append((key, "" if shown == "nan" else shown, text))
    names = ("key", "value", "from")
    console.print(number_table(names, rows, "The problem and its sources", text=names))
    console.print()


def _show_p2_answer(problem: P2Problem, answer: P2Answer, console: Console) -> None:
    """Print powers, updates and frequencies, what binds, and what joules and seconds are worth."""
    rows = []
    for c in range(min(problem.size, _MOST_ROWS)):
        hertz = answer.cpu_hz[problem.cluster == c]
        powers = [f"{watts[c]:.4g}" for watts in (answer.power_watts, problem.max_power_watts)]
        ends = [f"{end / 1e9:.3g}" for end in (hertz.min(), hertz.max())]
        rows.append((str(c), str(int(answer.updates[c])), *powers, str(hertz.size), *ends))
    names = ("cluster", "updates", "power W", "cap W", "devices", "slowest GHz", "fastest GHz")
    slowed = float((answer.cpu_hz < problem.max_hz * (1 - 1e-9)).mean())
    _show_answer(
        *(problem, answer, number_table(names, rows), console),
        f"{answer.rounds} rounds, gap {answer.objective:.6g} of {problem.initial_gap:.6g} at the "
        "start",
        f" and {answer.run_seconds:.4g} of {problem.seconds:.4g} s; clusters are ready after "
        f"{answer.ready_seconds:.4g} s of a round, and {slowed:.0%} of the devices run below their "
        "largest frequency",
        f"With as many rounds, one joule more would lower the gap by about "
        f"{answer.joule_price:.3g}, one second more by about {answer.second_price:.3g}.",
    )
