"""Benchmark 2: clusters as units, as many local updates as computing power allows."""

from collections.abc import Callable
from dataclasses import dataclass

from camu.planning.contribution import extra_updates
from camu.planning.groups import Groups, clusters, make_plan
from camu.schemes.contract import CountFromZero, Plan, Scheme, World


@dataclass(frozen=True)
class ComputeRounds(Scheme):
    """Benchmark 2: clusters update as often as fits while the slowest updates once."""

    max_extra_updates: CountFromZero = 4
    name = "compute-rounds"
    tunable = {"max_extra_updates": (0, 20)}
    family = "clusters"
    citation = "Sun et al., CAMU, section V-B, after Zhou et al., Petrel, IEEE TPDS 2020"
    simplified = [
        "clusters by links and labels replace Petrel's communities of workers alike in speed",
        "a fixed rule that fills the waiting time replaces its learned search",
        "rounds are synchronous; Petrel's communities are not in step with each other",
    ]
    choices = [
        "the CAMU paper prints no weights for it; those of `camu` are used",
        "an update counts with the time in which members send to their leader",
    ]

    def plan(self, world: World) -> Plan:
        """N_c from the clusters' speed alone."""
        return self.plan_of(clusters(world))

    def plan_of(self, groups: Groups) -> Plan:
        """The plan of clusters that are formed already."""
        extra = extra_updates(groups.step_seconds, self.max_extra_updates)
        return make_plan(self, groups, groups.contribution_weights, 1 + extra, multi_update=True)


def energy_budget(groups: Groups, max_extra_updates: int) -> float:
    """Joules of a round: as configured, or what `compute-rounds` spends with these clusters."""
    fixed = groups.world.config.allocation.energy_joules
    return ComputeRounds(max_extra_updates).plan_of(groups).round_joules if fixed is None else fixed


def within_budget(budget: float, solve: Callable[[float], Plan], least: float = 0.0) -> Plan:
    """The plan of a solver that does not know what interference and longer rounds add.

    It is given the budget, and less of it until its plan is paid for with interference between
    gathers and with idle power. The least that it needs is tried before it is given less than that.
    """
    given, plan = budget, solve(budget)
    while (over := plan.round_joules - budget) > 1e-9 * budget and given > 0:
        less = given - max(over, 1e-3 * budget)
        given = least if less < least < given else less
        plan = solve(given)
    return plan
