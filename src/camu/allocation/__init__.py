"""Problems P1 (the paper's) and P2 as data, and their solvers: exact with certificate, PPO, others.

`camu.allocation.ppo` is imported only when it solves: it needs torch, the other solvers do not.
"""

from camu.allocation.answer import Allocation
from camu.allocation.exact import solve_exact
from camu.allocation.horizon import HorizonProblem
from camu.allocation.horizon_answer import HorizonAnswer
from camu.allocation.horizon_exact import solve_horizon
from camu.allocation.latency_gap import minimise_latency_gap, solve_latency_gap
from camu.allocation.problem import Problem
from camu.allocation.solve import SOLVERS, read_problem, solve

__all__ = [
    "SOLVERS",
    "Allocation",
    "HorizonAnswer",
    "HorizonProblem",
    "Problem",
    "minimise_latency_gap",
    "read_problem",
    "solve",
    "solve_exact",
    "solve_horizon",
    "solve_latency_gap",
]
