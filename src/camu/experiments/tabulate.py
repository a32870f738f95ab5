"""Tabulates runs: the comparison of a set of histories, scheme by scheme and seed by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.comparison import AXES, Comparison, Figures, Row, SeedRow
from camu.experiments.statistics import estimate
from camu.learning.metrics import Metric, find_metric, finite
from camu.notebook import Point
from camu.simulation.history import History, measure

Histories = Mapping[str, Sequence[History]]  # by scheme, one per seed


def budgets_of(config: Config) -> dict[str, float | None]:
    """The least joules, seconds and megabytes of every run, where configured, and its rounds."""
    run = config.run
    least = {
        "joules": run.min_joules,
        "seconds": run.min_virtual_seconds,
        "megabytes": run.min_megabytes,
    }
    longer = any(value is not None for value in least.values())
    return {"rounds": run.rounds if longer else None, **least}


def tabulate(
    histories: Histories,
    seeds: Sequence[int],
    target: float | None = None,
    families: Mapping[str, str] | None = None,
    budgets: Mapping[str, float | None] | None = None,
) -> Comparison:
    """The comparison of a set of histories; the first scheme is the baseline.

    Budgets that are not given are the least that any run spent, so that every run got that far. A
    run that ended before a given budget counts with its final score. The target defaults to what
    the weakest run still reached, if that is better than every run was before training; otherwise
    there is no target.
    """
    everyone = [history for own in histories.values() for history in own]
    metric = _one_metric(everyone)
    at = {
        axis: (budgets or {}).get(axis) or min(measure(one.final, axis) for one in everyone)
        for axis in AXES
    }
    if target is None:
        target = _default_target(everyone, metric)
    else:
        metric.check_target(target, "compare: target =")
    baseline = next(iter(histories.values()))
    runs = {
        name: [
            SeedRow(
                scheme=name,
                family=(families or {}).get(name, ""),
                seed=seed,
                **_figures(history, first, at, target),
            )
            for seed, history, first in zip(seeds, own, baseline, strict=True)
        ]
        for name, own in histories.items()
    }
    return Comparison(
        rows=tuple(_row(own, number == 0) for number, own in enumerate(runs.values())),
        runs=tuple(run for own in runs.values() for run in own),
        baseline=next(iter(runs)),
        seeds=tuple(seeds),
        equal_rounds=int(at["rounds"]),
        equal_joules=at["joules"],
        equal_seconds=at["seconds"],
        equal_megabytes=at["megabytes"],
        target=target,
        metric=metric.name,
        curves={name: _curve(own) for name, own in histories.items()},
    )


def _one_metric(histories: Sequence[History]) -> Metric:
    """What all runs are judged by."""
    names = dict.fromkeys(history.metric.name for history in histories)
    if len(names) > 1:
        raise InputError(
            f"compare: the runs are judged by {' and '.join(names)}; give all of them the same "
            "first name in training.metrics"
        )
    return find_metric(*names)


def _default_target(histories: Sequence[History], metric: Metric) -> float | None:
    """What every run reached, as a whole percentage, or a number of three digits.

    None if an untrained model is as good already.
    """
    weakest = min((one.best_score for one in histories), key=lambda score: metric.sign * score)
    if not math.isfinite(weakest):
        return None
    steps = 100.0 if metric.share else 10.0 ** (2 - math.floor(math.log10(abs(weakest) or 1.0)))
    target = metric.sign * math.floor(metric.sign * weakest * steps) / steps  # towards worse
    untrained = [one.records[0].score for one in histories]
    is_new = all(score is None or metric.better(target, score) for score in untrained)
    return target if is_new else None


def _figures(
    history: History, baseline: History, budgets: Mapping[str, float], target: float | None
) -> dict[str, Any]:
    """The figures of a run, beside the first scheme's run with the same seed."""
    found = {
        "final_score": finite(history.final_score),
        "best_score": finite(history.best_score),
        "rounds": history.final.round,
        "joules": history.final.total_joules,
        "virtual_seconds": history.final.virtual_seconds,
        "megabytes": measure(history.final, "megabytes"),
        "weights_sha256": history.weights_sha256,
        "metrics": history.other_metrics,
    }
    for axis, budget in budgets.items():
        own, first = (one.score_within(axis, budget) for one in (history, baseline))
        found[f"at_equal_{axis}"] = own
        found[AXES[axis]] = None if own is None or first is None else own - first
        found[f"{axis}_to_target"] = None if target is None else history.needed_for(axis, target)
    return found


def _row(own: Sequence[SeedRow], is_first: bool) -> Row:
    """The means over seeds; a scheme has no difference to itself.

    A mean needs a value of every run: leaving runs out would flatter the scheme.
    """
    means: dict[str, Any] = {}
    for name in [field.name for field in fields(Figures)][2:-1]:
        values = [getattr(run, name) for run in own]
        missing = None in values or (is_first and name in AXES.values())
        means[name] = None if missing else estimate(values)
    others = {name: [run.metrics.get(name) for run in own] for name in own[0].metrics}
    means["metrics"] = {
        name: estimate(known)
        if len(known := [v for v in values if v is not None]) == len(own)
        else None
        for name, values in others.items()
    }
    reached = sum(run.rounds_to_target is not None for run in own)
    return Row(own[0].scheme, own[0].family, reached_target=reached, **means)


def _curve(own: Sequence[History]) -> tuple[Point, ...]:
    """Mean score at the evaluations that all runs have."""
    known: dict[int, list[float]] = {}
    for history in own:
        for record in history.evaluated:
            if (score := finite(record.score)) is not None:
                known.setdefault(record.round, []).append(score)
    return tuple(
        (float(number), sum(values) / len(values))
        for number, values in sorted(known.items())
        if len(values) == len(own)
    )
