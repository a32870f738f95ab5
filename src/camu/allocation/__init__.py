"""Problem P1 of the paper as data, and its solvers: exact with certificate, PPO, latency gap.

`camu.allocation.ppo` is imported only when it solves: it needs torch, the other solvers do not.
"""

from camu.allocation.answer import Allocation
from camu.allocation.exact import solve_exact
from camu.allocation.latency_gap import minimise_latency_gap, solve_latency_gap
from camu.allocation.problem import Problem
from camu.allocation.solve import SOLVERS, solve

__all__ = [
    "SOLVERS",
    "Allocation",
    "Problem",
    "minimise_latency_gap",
    "solve",
    "solve_exact",
    "solve_latency_gap",
]
