"""Benchmark 3: update counts that make clusters' updates arrive together, at fixed power."""

from dataclasses import dataclass

import numpy as np

from camu.allocation.latency_gap import minimise_arrival_spread, minimise_latency_gap
from camu.allocation.p1 import round_up
from camu.arrays import Float64, Int64
from camu.errors import CamuError, InputError
from camu.planning.costs import Costs
from camu.planning.dvfs import full_speed_costs
from camu.planning.groups import Groups, clusters, make_plan
from camu.planning.queues import arrivals
from camu.schemes.compute_rounds import energy_budget, within_budget
from camu.schemes.contract import CountFromZero, Plan, Scheme, State, View, World

_MOST_MOVES = 50  # of updates between clusters, for the waits on the medium


@dataclass(frozen=True)
class HeterogeneousIntensity(Scheme):
    """Benchmark 3: local updates that minimise the largest gap between arrivals, power left alone.

    The original has an exact algorithm for static conditions and a learned policy for changing
    ones. This is the static case, solved exactly: the plan is made once, for mean channels.
    """

    max_extra_updates: CountFromZero = 4
    name = "hti"
    tunable = {"max_extra_updates": (0, 20)}
    family = "clusters"
    citation = (
        "Zeng et al., Heterogeneous training intensity for federated learning, IEEE TNSE 2022"
    )
    simplified = ["the static case; see `hti-dynamic` for changing channels"]
    choices = [
        "clusters as units and the budget of `camu-joint`, as the CAMU paper compares it; the "
        "original's constraint is not known",
        "under `tdma` arrivals include the queue for the uplink; for the waits on the medium of "
        "gathers, counts are changed one at a time while that brings arrivals closer",
    ]

    def plan(self, world: World) -> Plan:
        """N_c from the clusters' speed and the budget, whatever their data."""
        groups = clusters(world)
        _check_total_power(groups)
        plan = make_plan(self, groups, groups.contribution_weights, multi_update=True)
        costs, budget = groups.costs_of_one_update, energy_budget(groups, self.max_extra_updates)
        least = plan.with_updates([1] * len(plan.units))
        once, needed = least.round_joules, least.repriced(world).round_joules
        if budget < needed * (1 - 1e-9):
            raise CamuError(
                f"scheme {self.name}: a budget of {budget:.10g} J is too small: one update of each "
                f"cluster at its leader's own power takes {round_up(needed)} J "
                "(allocation.energy_joules)"
            )

        def solve(joules: float) -> Plan:
            return self.aligned(plan, costs, joules - once, budget).repriced(world)

        return within_budget(budget, solve, min(once, budget))

    def aligned(self, plan: Plan, costs: Costs, extra_joules: float, budget: float) -> Plan:
        """The plan with the updates whose arrivals are closest, for this energy on top of one each.

        What is missing counts as nothing, and so does what is left over by rounding.
        """
        in_turn = plan.access == "tdma" and plan.queues is None
        minimise = minimise_arrival_spread if in_turn else minimise_latency_gap
        most, given = self.max_extra_updates, max(extra_joules, 0.0) + 1e-12 * budget
        extra, _ = minimise(
            costs.update_seconds,
            costs.uplink_seconds,
            np.full(len(plan.units), most),
            costs.update_joules,
            given,
        )
        return plan.with_updates((1 + _closer(costs, plan.access, extra, most, given)).tolist())


def _closer(costs: Costs, access: str, extra: Int64, most: int, joules: float) -> Int64:
    """The extra updates after moves that bring arrivals closer on the medium that gathers share.

    A move is one more update of the first to arrive, or one less of the last. Both are tried, and
    the better one is made, until neither helps.
    """
    if costs.gathers(1.0) is None:
        return extra

    def ends(extra: Int64) -> Float64:
        ready = costs.ready_seconds((1 + extra).astype(np.float64))
        return arrivals(ready, costs.uplink_seconds, access, costs.queues)

    arrive = ends(extra)
    for _ in range(_MOST_MOVES):
        first, last = int(arrive.argmin()), int(arrive.argmax())
        steps = np.zeros((2, len(extra)), dtype=np.int64)
        steps[0, first], steps[1, last] = 1, -1
        moves = [
            (ends(moved), moved)
            for moved in extra + steps
            if moved[first] <= most and moved[last] >= 0 and (costs.update_joules @ moved) <= joules
        ]
        closest = min(moves, key=lambda move: np.ptp(move[0]), default=(arrive, extra))
        if np.ptp(closest[0]) >= np.ptp(arrive) * (1.0 - 1e-9):
            break
        arrive, extra = closest
    return extra


def _check_total_power(groups: Groups) -> None:
    """Refuse leaders whose own powers are together more than P1 allows: they stay as they are."""
    config = groups.world.config
    watts = groups.world.devices.power_watts[np.array(groups.leaders)]
    total = float((watts ** (1 if config.readings.power_law == "power" else 2)).sum())
    most = config.allocation.max_total_power_watts
    if most is not None and total > most * (1 + 1e-9):
        raise InputError(
            f"allocation.max_total_power_watts = {most:g}: the leaders' own powers add up to "
            f"{total:g}, and hti leaves them as they are; lower fleet.power_watts or raise it"
        )


@dataclass(frozen=True)
class HtiDynamic(HeterogeneousIntensity):
    """The counts of `hti`, solved again before every round for the channels of that round."""

    name = "hti-dynamic"
    family = "clusters"
    citation = (
        "after Zeng et al., Heterogeneous training intensity for federated learning, "
        "IEEE TNSE 2022, with an exact solver in place of the reinforcement learning"
    )
    simplified = [
        "the channels of a round are known when it starts; the original learns to expect them",
    ]
    choices = [
        "clusters and the energy of extra updates are those of `hti`",
        "links between devices count with their mean gains",
        "under `tdma` arrivals include the queue for the uplink; for the waits on the medium of "
        "gathers, counts are changed one at a time while that brings arrivals closer",
    ]

    def plan(self, world: World) -> Plan:
        """The clusters of `hti` with the counts of the first round."""
        return self.decided(super().plan(world), world, 0)

    def revise(self, view: View, state: State) -> Plan | None:
        return self.decided(view.plan, view.world, view.round)

    def decided(self, plan: Plan, world: World, round_: int) -> Plan:
        """The plan with the smallest gap between the arrivals of a round."""
        budget = world.cached(
            ("energy budget", self.max_extra_updates),
            lambda: energy_budget(clusters(world), self.max_extra_updates),
        )
        gain = world.links.uplink_gain * world.links.rated_fading(round_)
        costs = full_speed_costs(world, plan.units, plan.parameters, uplink_gain=gain)
        once = plan.with_updates([1] * len(plan.units)).round_joules

        def solve(joules: float) -> Plan:
            return self.aligned(plan, costs, joules - once, budget).repriced(world)

        return within_budget(budget, solve, min(once, budget))
