"""Configuration 5: powers and update counts optimised together under an energy budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from camu.allocation.problem import Problem
from camu.allocation.solve import solve
from camu.planning.groups import Groups, clusters, extra_updates, gate, make_plan
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.schemes.problem import energy_budget, problem_of
from camu.world import World


@dataclass(frozen=True)
class CamuJoint(Scheme):
    """Configuration 5: CAMU with powers and updates that minimise the bound within a budget.

    allocation.solver chooses the exact solver, the paper's PPO, or your own.
    """

    threshold: float | None = None
    threshold_quantile: float = 0.5
    max_extra_updates: int = 4
    name: ClassVar[str] = "camu-joint"
    family: ClassVar[str] = "paper"
    citation: ClassVar[str] = "Sun et al., CAMU, section IV"
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = (
        "the budget is what `compute-rounds` spends, unless allocation.energy_joules says "
        "otherwise",
        "the bound is the corrected one, unless allocation.bound says otherwise",
    )

    def plan(self, world: World) -> Plan:
        """Solve P1 for the clusters that may update repeatedly; the plan keeps the answer."""
        groups = clusters(world)
        problem = self.problem(groups)
        allocation = world.config.allocation
        answer = solve(
            problem,
            allocation.solver,
            seed=world.seed,
            steps=allocation.ppo_steps,
            reward=allocation.ppo_reward,
        )
        plan = make_plan(
            self,
            groups,
            groups.contribution_weights,
            1 + answer.extra_updates,
            answer.power_watts,
            problem.multi_update,
        )
        return replace(plan, allocation=answer)

    def problem(self, groups: Groups) -> Problem:
        """P1 of clusters that are formed already; only those that pass the gate may update more."""
        multi = gate(groups.log_contribution, self.threshold, self.threshold_quantile)
        extra = extra_updates(groups.step_seconds, self.max_extra_updates)
        return problem_of(groups, multi, extra, energy_budget(groups, self.max_extra_updates))
