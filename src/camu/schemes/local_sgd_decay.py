"""Local SGD with the falling learning rate of its analysis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from camu.planning.plan import Plan
from camu.schemes.contract import State, View
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class LocalSgdDecay(LocalSgd):
    """Local SGD at the rate eta a / (a + t), where t counts the local steps so far."""

    shift: float = 100.0  # a
    name: ClassVar[str] = "local-sgd-decay"
    family: ClassVar[str] = "local updates"
    citation: ClassVar[str] = "Stich, Local SGD converges fast and communicates little, ICLR 2019"
    simplified: ClassVar[tuple[str, ...]] = (
        "the last model is the result; the analysis takes a weighted mean of all",
        "the rate falls once per round, not at each step",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "it starts at training.learning_rate; the analysis has 4 / (mu (a + t)), and mu is unknown",
    )

    def revise(self, view: View, state: State) -> Plan | None:
        """The rate of the next round, the same for all."""
        rate = self.shift / (self.shift + self.local_updates * view.round)
        units = [replace(u, rule=replace(u.rule, rate=rate)) for u in view.plan.units]
        return replace(view.plan, units=tuple(units))
