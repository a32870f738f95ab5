"""Training before the first round, for schemes that try something out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from camu.errors import CamuError
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.schemes.contract import PilotRun, Scheme
from camu.schemes.fedsgd import FedSgd
from camu.simulation.run import Run


class LoopPilot:
    """Trains before the first round, and charges it to the run."""

    def __init__(self, run: Run, name: str, loop: Callable[[Run, Scheme], Any]) -> None:
        self._run, self._name, self._loop = run, name, loop  # the scheme's name, and its rounds
        self.world, self.plan, self.weights = run.world, run.plan, run.weights

    def train(
        self, plan: Plan, rounds: int, weights: Weights | None = None, scheme: Scheme | None = None
    ) -> PilotRun:
        """Train with a plan from the initial model or another one."""
        whole = self._run
        plan = replace(plan, dvfs=self.plan.dvfs)
        run = Run.new(self.world, plan, weights or self.weights)
        run.batteries = whole.batteries
        began = whole.clock.now_seconds
        run.clock.wait_until(began)
        trial = self._loop(run, scheme or FedSgd())
        losses = []
        for _ in range(rounds):
            arrived, _ = trial.advance()
            if not arrived:
                raise CamuError(f"scheme {self._name}: no update of its pilot arrived")
            counted = [(plan.units[one.unit].weight, one.loss) for one in arrived]
            share = sum(weight for weight, _ in counted)
            losses.append(sum(weight * loss for weight, loss in counted) / share)
        whole.clock.wait_until(run.clock.now_seconds)
        whole.ledger.add(run.ledger)
        seconds = run.clock.now_seconds - began
        return PilotRun(run.weights, tuple(losses), seconds, run.ledger.joules)

    def go_on_from(self, weights: Weights) -> None:
        """The run begins with this model."""
        self._run.weights = weights
