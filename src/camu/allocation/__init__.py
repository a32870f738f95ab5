"""Problem P1 of the paper as data, and its solvers: exact with certificate, PPO, latency gap.

`camu.allocation.ppo` is not imported here: it needs torch, which plans and exact answers do not.
"""

from camu.allocation.answer import Allocation
from camu.allocation.exact import solve_exact
from camu.allocation.latency_gap import minimise_latency_gap, solve_latency_gap
from camu.allocation.problem import Problem

__all__ = ["Allocation", "Problem", "minimise_latency_gap", "solve_exact", "solve_latency_gap"]
