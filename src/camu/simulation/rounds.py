"""Rounds from the first to the last: the pilot, the loop, and the callbacks that watch it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from camu.errors import CamuError
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.schemes.contract import PilotRun, Scheme
from camu.schemes.fedavg import FedAvg
from camu.simulation.hooks import check_trainer
from camu.simulation.live import LiveLoop, on_real_arrivals
from camu.simulation.loop import Loop
from camu.simulation.run import Callback, Run, Trainer


def run_rounds(
    run: Run, scheme: Scheme, trainer: Trainer, callbacks: Sequence[Callback] = ()
) -> None:
    """Run rounds until the configured end, from the first or from where a checkpoint left off."""
    check_trainer(scheme, trainer)
    kind = LiveLoop if on_real_arrivals(scheme, trainer) else Loop
    loop = kind(run, scheme, trainer)
    try:
        if not run.records:
            loop.hooks.pilot(_Pilot(loop), run)
            loop.record(0, loop.no_faults(), ())
        run.check_budgets(run.records[-1])  # a resumed run may have reached its end already
        loop.hooks.finished(loop.view(), run)
        for callback in callbacks:
            callback.on_start(run)
        while run.stopped is None:
            record = loop.round()
            run.check_budgets(record)
            for callback in callbacks:
                callback.on_round(run, record)
    except BaseException:
        run.stopped = "failed"
        for callback in callbacks:
            callback.on_end(run, run.history())
        raise
    for callback in callbacks:
        callback.on_end(run, run.history())


class _Pilot:
    """Trains before the first round, and charges it to the run."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.world, self.plan, self.weights = loop.run.world, loop.run.plan, loop.run.weights

    def train(
        self, plan: Plan, rounds: int, weights: Weights | None = None, scheme: Scheme | None = None
    ) -> PilotRun:
        """Train with a plan from the initial model or another one."""
        loop, whole = self._loop, self._loop.run
        plan = replace(plan, slow_down=self.plan.slow_down)
        run = Run.new(self.world, plan, weights or self.weights)
        run.batteries = whole.batteries
        trial = Loop(run, scheme or FedAvg(), loop.trainer)
        losses = []
        for _ in range(rounds):
            landed, _ = trial.advance(trial.no_faults())
            if not landed:
                raise CamuError(f"scheme {loop.scheme.name}: no update of its pilot arrived")
            counted = [(plan.units[one.unit].weight, one.loss) for one in landed]
            share = sum(weight for weight, _ in counted)
            losses.append(sum(weight * loss for weight, loss in counted) / share)
        whole.clock.wait_until(whole.clock.now_seconds + run.clock.now_seconds)
        whole.ledger.add(run.ledger)
        return PilotRun(run.weights, tuple(losses), run.clock.now_seconds, run.ledger.joules)
