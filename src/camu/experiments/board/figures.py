"""What a reported run says at a budget: its score, and what it did and spent until then."""

from __future__ import annotations

from typing import Any

from camu.experiments.claims import accuracy_around
from camu.experiments.tuning.ranges import Budget
from camu.simulation.history import History, measure

PILOT = "its pilot cost more than the budget"
UNTRAINED = "no round ended within the budget"
ENDED = "it ended by itself before the budget: its last model counts"


def figures(history: History, budget: Budget, target: float) -> dict[str, Any]:
    """The figures of a run within a budget; scores and shares are in %.

    An untrained model has no score. `to_target` is what the run had spent, of the budget's kind,
    when it first reached the target; None: it did not within the budget.
    """
    within = [one for one in history.records if measure(one, budget.axis) <= budget.amount]
    trained = [one for one in within if one.round > 0]
    if not trained:
        return {"score": None, "note": PILOT if not within else UNTRAINED}
    last = trained[-1]
    judged = [one.metrics.get("worst-device-accuracy") for one in trained if one.score is not None]
    needed = history.needed_for(budget.axis, target)
    ended = measure(history.final, budget.axis) < budget.amount
    return {
        "score": 100 * accuracy_around(history, budget.axis, budget.amount),
        "note": ENDED if ended else "",
        "worst_tenth": None if not judged or judged[-1] is None else 100 * judged[-1],
        "rounds": last.round,
        "steps": sum(one.steps for one in trained),
        "uplinks": sum(one.units for one in trained),
        "megabytes": last.megabytes,
        "joules": last.total_joules,
        "seconds": last.virtual_seconds,
        "to_target": needed if needed is not None and needed <= budget.amount else None,
    }
