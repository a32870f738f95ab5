"""Near-IID clusters with equal work, a few steps between gathers, and momentum at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from camu.learning.job import LocalRule
from camu.planning.balanced import Limits, best_design, best_near_iid_design
from camu.planning.groups import clusters, extra_updates, make_plan
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme, State, View
from camu.schemes.momentum import pushed
from camu.world import World

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class CamuBalanced(Scheme):
    """Near-IID clusters, weights by samples, equal updates of several steps, server momentum.

    Clusters, gathers, steps, power and CPU frequencies are those with the least joules x seconds of
    a step (`camu.planning.balanced`), unless they are set. Each other rule can be switched off
    alone.
    """

    near_iid: bool = True  # False: the dual-segment clusters
    sample_weights: bool = True  # False: the paper's G_c
    equal_updates: bool = True  # False: as many as fit while the slowest updates once
    momentum: float = 0.7  # 0: none
    slow_down: bool = True  # False: every device computes at its own frequency
    clusters_per_area: int | None = None
    gathers: int | None = None
    steps: int | None = None
    power_watts: float | None = None
    drift: float = 0.16  # share of a step that is lost per step before it on the wrong labels
    max_extra_updates: int = 4  # without equal_updates
    name: ClassVar[str] = "camu-balanced"
    family: ClassVar[str] = "clusters"
    citation: ClassVar[str] = "this project; momentum after Hsu et al., 2019"
    simplified: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[tuple[str, ...]] = (
        "areas are regions or primary clusters, whichever costs less",
        "the base station knows label counts, as theta_c needs them too",
    )

    def plan(self, world: World) -> Plan:
        """The design with the least price, as a plan."""
        fixed = Limits(
            self.clusters_per_area, self.gathers, self.steps, self.power_watts, self.slow_down
        )
        if self.near_iid:
            design = best_near_iid_design(world, self.drift, fixed)
        else:
            design = best_design([clusters(world)], self.drift, fixed)
        groups = design.groups
        weights = groups.sample_weights if self.sample_weights else groups.contribution_weights
        extra = extra_updates(groups.step_seconds, self.max_extra_updates)
        updates = design.gathers * (1 + (0 if self.equal_updates else extra))
        rule = LocalRule(steps=design.steps)
        plan = make_plan(self, groups, weights, updates, design.power_watts, rule=rule)
        return plan.slowed(world) if self.slow_down else plan

    def aggregate(self, view: View, state: State) -> Weights:
        """The mean update, with momentum."""
        mean = super().aggregate(view, state)
        return pushed(view, state, mean, self.momentum) if self.momentum else mean
