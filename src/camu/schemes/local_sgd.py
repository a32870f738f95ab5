"""Local SGD: every device for itself, the same number of local updates for all."""

from dataclasses import dataclass

from camu.learning.job import PLAIN_RULE, LocalRule
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, Plan, Positive, Scheme, State, View, World


@dataclass(frozen=True)
class LocalSgd(Scheme):
    """Devices run the same fixed number H of local updates per round, weighted by data size."""

    local_updates: Count = 2
    name = "local-sgd"
    family = "reference"
    tunable = {"local_updates": (1, 20, "log")}
    citation = "Stich, Local SGD converges fast and communicates little, ICLR 2019"
    simplified = ["a constant learning rate and the last model; see `local-sgd-decay`"]
    choices = ["weights by data size; the analysis assumes equal ones"]

    def plan(self, world: World) -> Plan:
        groups, rule = single_devices(world), self.rule()
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rule)

    def rule(self) -> LocalRule:
        """How every device trains."""
        return PLAIN_RULE


@dataclass(frozen=True)
class LocalSgdDecay(LocalSgd):
    """Local SGD at the rate eta a / (a + t), where t counts the local steps so far."""

    shift: Positive = 100.0  # a
    name = "local-sgd-decay"
    family = "local updates"
    citation = "Stich, Local SGD converges fast and communicates little, ICLR 2019"
    simplified = [
        "the last model is the result; the analysis takes a weighted mean of all",
        "the rate falls once per round, not at each step",
    ]
    choices = [
        "it starts at training.learning_rate; the analysis has 4 / (mu (a + t)), and mu is unknown",
    ]

    def revise(self, view: View, state: State) -> Plan | None:
        rate = self.shift / (self.shift + self.local_updates * view.round)
        return view.plan.with_rates([rate] * len(view.plan.units))
