"""Rounds to a target score from short runs, and a word on accuracy at chance."""

from __future__ import annotations

from collections.abc import Sequence

from camu.answers.answer import Rounds
from camu.experiments.forecast import forecast
from camu.simulation.history import History


def measured_rounds(runs: Sequence[History], target: float) -> tuple[Rounds, str | None]:
    """The rounds to a target by runs of one scheme, one per seed, and a sentence on chance.

    Where the target is out of reach of the runs and of a model of them, it is the length of the
    runs, and the words say why.
    """
    found = forecast({"": runs}, target)[0]
    metric, length = runs[0].metric, min(run.final.round for run in runs)
    shown = f"{metric.title} {metric.show(target, 1)}"
    if not found.costs:
        how = f"the length of the short runs: {shown} was {found.note}"
        return Rounds(length, how), _chance(runs)
    cost, note = found.costs["rounds"], f" ({found.note})" if found.note else ""
    how = f"{found.how} for {shown} in {len(runs)} short runs of {length} rounds{note}"
    return Rounds(cost.mean, how, cost.low, cost.high, target), _chance(runs)


def _chance(runs: Sequence[History]) -> str | None:
    """The first run's words, if all models name one class only."""
    words = [run.chance for run in runs]
    return words[0] if all(words) else None
