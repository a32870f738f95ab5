"""Problems P1 (the paper's), P2 and those per device as data, with exact, certified solvers.

`solve` solves all of them; PPO is for P1.

`camu.allocation.ppo` is imported only when it solves: it needs torch, the other solvers do not.
"""

from camu.allocation.answer import Allocation, P2Answer
from camu.allocation.latency_gap import minimise_latency_gap, solve_latency_gap
from camu.allocation.p1 import Problem
from camu.allocation.p1_exact import solve_exact
from camu.allocation.p2 import P2Problem
from camu.allocation.p2_exact import solve_p2
from camu.allocation.solve import SOLVERS, read_problem, solve

__all__ = [
    "SOLVERS",
    "Allocation",
    "P2Answer",
    "P2Problem",
    "Problem",
    "minimise_latency_gap",
    "read_problem",
    "solve",
    "solve_exact",
    "solve_latency_gap",
    "solve_p2",
]
