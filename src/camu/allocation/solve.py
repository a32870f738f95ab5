"""Solve a problem by the name of a solver, or P1 with a function of your own.

Your function takes a `Problem` and returns an `Allocation`, for example::

    from camu.allocation import Allocation, Problem

    def half_power(problem: Problem) -> Allocation:
        return Allocation.of(problem, "half power", problem.max_power_watts / 2, [0] * problem.size)

Name it as ``module:half_power``. Its answer is checked against every constraint, and measured
against the certified lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from camu.allocation.answer import Allocation, P2Answer
from camu.allocation.device_answer import DeviceAnswer
from camu.allocation.device_problem import DeviceProblem
from camu.allocation.document import read_problem_document
from camu.allocation.fedl import FedlProblem, solve_fedl
from camu.allocation.latency_gap import solve_latency_gap
from camu.allocation.ofdma import OfdmaEnergy, OfdmaTime
from camu.allocation.ofdma_exact import solve_ofdma_energy, solve_ofdma_time
from camu.allocation.p1 import Problem
from camu.allocation.p1_exact import solve_exact
from camu.allocation.p2 import P2Problem
from camu.allocation.p2_exact import solve_p2
from camu.allocation.resource_blocks import BlocksProblem, solve_blocks
from camu.errors import InputError, suggest
from camu.plugins import import_object, is_plugin, user_code
from camu.work import Progress, silent

SOLVERS = ("exact", "ppo", "latency")  # of P1
Reward = Literal["current", "literal"]


# The problems per device, by their kind, and their solvers.
DEVICE_PROBLEMS: dict[str, tuple[type[DeviceProblem], Callable[[Any], DeviceAnswer]]] = {
    OfdmaEnergy.kind: (OfdmaEnergy, solve_ofdma_energy),
    OfdmaTime.kind: (OfdmaTime, solve_ofdma_time),
    FedlProblem.kind: (FedlProblem, solve_fedl),
    BlocksProblem.kind: (BlocksProblem, solve_blocks),
}


def read_problem(path: str | Path) -> Problem | P2Problem | DeviceProblem:
    """Read PROBLEM.json: the problem of its `kind`, P1 where it has none."""
    document = read_problem_document(path)
    kind = document.get("kind", "P1") if isinstance(document, dict) else "P1"
    kinds: dict[str, type[Problem | P2Problem | DeviceProblem]] = {"P1": Problem, "P2": P2Problem}
    kinds |= {name: own for name, (own, _) in DEVICE_PROBLEMS.items()}
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{path}: kind is {kind!r}; it must be one of {', '.join(kinds)}")
    return kinds[kind].from_dict(document, str(path))


@overload
def solve(
    problem: Problem,
    solver: str = "exact",
    *,
    seed: int = 0,
    steps: int = 100_000,
    reward: Reward = "current",
    progress: Progress = silent,
) -> Allocation: ...


@overload
def solve(problem: P2Problem, solver: str = "exact") -> P2Answer: ...


@overload
def solve(problem: DeviceProblem, solver: str = "exact") -> DeviceAnswer: ...


def solve(
    problem: Problem | P2Problem | DeviceProblem,
    solver: str = "exact",
    *,
    seed: int = 0,
    steps: int = 100_000,
    reward: Reward = "current",
    progress: Progress = silent,
) -> Allocation | P2Answer | DeviceAnswer:
    """Solve P1 (an energy budget among clusters), P2 (a whole run) or a problem per device.

    Parameters:
        problem: the instance, for example from `Problem.from_json`.
        solver: exact (the certified optimum); for P1 also ppo (the paper's learning), latency
            (Benchmark 3), or your own function as ``module:name``.
        seed: seed of ppo.
        steps: training steps of ppo.
        reward: reward of ppo.
        progress: called with the progress of ppo.

    Returns:
        Powers and updates, or bandwidths and frequencies, with a lower bound that no answer beats.
    """
    if not isinstance(problem, Problem):
        if solver != "exact":
            raise InputError(f"solver = {solver}: {problem.kind} has only the solver exact")
        if isinstance(problem, P2Problem):
            return solve_p2(problem)
        return DEVICE_PROBLEMS[problem.kind][1](problem)
    if solver == "ppo":
        from camu.allocation.ppo import PpoSettings, solve_ppo  # deferred: it imports torch

        return solve_ppo(problem, seed, PpoSettings(steps=steps, reward=reward), progress)
    if is_plugin(solver):
        return _solve_own(problem, solver)
    if solver not in SOLVERS:
        raise InputError(
            f"solver = {solver}: no such solver{suggest(solver, SOLVERS)}; there are "
            f"{', '.join(SOLVERS)}, or your own function as module:name"
        )
    return solve_exact(problem) if solver == "exact" else solve_latency_gap(problem)


def _solve_own(problem: Problem, solver: str) -> Allocation:
    """The checked answer of the user's function; its certificate is the exact solver's."""
    function = import_object(solver, "solver")
    if not callable(function):
        raise InputError(f"solver = {solver}: it is not a function; it must take a Problem")
    began = time.perf_counter()
    with user_code(f"solver {solver}", function, "(problem)"):
        answer = function(problem)
    seconds = time.perf_counter() - began
    if not isinstance(answer, Allocation):
        kind = type(answer).__name__
        raise InputError(f"solver {solver}: it returned {kind}; it must return an Allocation")
    power, extra = np.asarray(answer.power_watts), np.asarray(answer.extra_updates)
    if power.shape != (problem.size,) or extra.shape != (problem.size,):
        raise InputError(
            f"solver {solver}: power_watts has shape {power.shape} and extra_updates "
            f"{extra.shape}; both must have one entry for each of the {problem.size} clusters"
        )
    if wrong := problem.violations(power, extra):
        raise InputError(f"solver {solver}: its answer is not feasible: {'; '.join(wrong)}")
    return Allocation.of(
        problem,
        answer.solver,
        power,
        extra,
        lower_bound=solve_exact(problem).lower_bound,
        seconds=seconds,
        shadow_price=answer.shadow_price,
        details=answer.details,
    )
