"""Parallel restarted SGD: fast devices take more local steps instead of waiting."""

from dataclasses import dataclass

from camu.planning.contribution import extra_updates
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import CountFromZero, Plan, Scheme, World


@dataclass(frozen=True)
class ParallelRestartedSgd(Scheme):
    """Devices update as often as fits while the slowest updates once, then all are averaged."""

    max_extra_updates: CountFromZero = 4
    name = "pr-sgd"
    tunable = {"max_extra_updates": (0, 20)}
    family = "local updates"
    citation = (
        "Yu, Yang, Zhu, Parallel restarted SGD with faster convergence and less communication, "
        "AAAI 2019, the variant for heterogeneous networks"
    )
    choices = [
        "weights by data size; the analysis assumes equal ones",
        "at most max_extra_updates more updates than the slowest device",
    ]

    def plan(self, world: World) -> Plan:
        """One device per unit, N_k from its speed alone."""
        groups = single_devices(world)
        updates = 1 + extra_updates(groups.step_seconds, self.max_extra_updates)
        return make_plan(self, groups, groups.sample_weights, updates)
