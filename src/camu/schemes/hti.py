"""Benchmark 3: update counts that make clusters' updates arrive together, at fixed power."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from camu.allocation.latency_gap import solve_latency_gap
from camu.planning.groups import clusters, make_plan
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.schemes.problem import energy_budget, problem_of
from camu.world import World


@dataclass(frozen=True)
class HeterogeneousIntensity(Scheme):
    """Benchmark 3: local updates that minimise the largest gap between arrivals, power left alone.

    The original has an exact algorithm for static conditions and a learned policy for changing
    ones. This is the static case, solved exactly: the plan is made once, for mean channels.
    """

    max_extra_updates: int = 4
    name: ClassVar[str] = "hti"
    family: ClassVar[str] = "clusters"
    citation: ClassVar[str] = (
        "Zeng et al., Heterogeneous training intensity for federated learning, IEEE TNSE 2022"
    )
    simplified: ClassVar[tuple[str, ...]] = (
        "the static case; see `hti-dynamic` for changing channels",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "clusters as units and the budget of `camu-joint`, as the CAMU paper compares it; the "
        "original's constraint is not known",
        "under `tdma` arrivals include the queue for the uplink",
    )

    def plan(self, world: World) -> Plan:
        """N_c from the clusters' speed and the budget, whatever their data."""
        groups = clusters(world)
        count = len(groups.members)
        problem = problem_of(
            groups,
            np.ones(count, dtype=bool),
            np.full(count, self.max_extra_updates),
            energy_budget(groups, self.max_extra_updates),
        )
        # Latency does not depend on the bound, so a learning rate at which the bound says nothing
        # must not make a fleet impossible.
        problem = replace(problem, descent=np.ones(count), penalty=np.zeros(count))
        power = world.devices.power_watts[np.array(groups.leaders)]
        answer = solve_latency_gap(problem, power, world.config.radio.access == "tdma")
        return make_plan(
            self,
            groups,
            groups.contribution_weights,
            1 + answer.extra_updates,
            power,
            multi_update=True,
        )
