"""Robust aggregation: the rules against plain loops, and in a run with liars."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from camu.learning.weights import Weights
from camu.schemes import FedAvg, FedAvgM, FedBuff, Scheme, State, View
from camu.schemes.aggregation import krum_choice, robust_centre
from camu.world import World
from helpers.scheme_runs import bits, models

Tiny = Callable[..., World]
RULES = ("median", "trimmed-mean", "multi-krum")


def rows(count: int, size: int = 7, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_median_is_that_of_sorted_values(count: int) -> None:
    given = rows(count)
    for entry, found in enumerate(robust_centre(given, "median", 0.2)):
        values = sorted(float(row[entry]) for row in given)
        middle = (values[(count - 1) // 2] + values[count // 2]) / 2
        assert found == pytest.approx(middle, abs=1e-12)


@pytest.mark.parametrize(("count", "share", "cut"), [(5, 0.2, 1), (10, 0.3, 3), (4, 0.2, 0)])
def test_the_trimmed_mean_leaves_out_both_ends(count: int, share: float, cut: int) -> None:
    given = rows(count)
    for entry, found in enumerate(robust_centre(given, "trimmed-mean", share)):
        values = sorted(float(row[entry]) for row in given)
        kept = values[cut : count - cut]
        assert found == pytest.approx(sum(kept) / len(kept), abs=1e-9)


@pytest.mark.parametrize(("count", "faulty"), [(7, 2), (9, 3), (5, 1), (3, 0)])
def test_krum_scores_against_plain_loops(count: int, faulty: int) -> None:
    given = rows(count, seed=count)
    scores = []
    for i in range(count):
        apart = sorted(
            float(((given[i].astype(float) - given[j]) ** 2).sum()) for j in range(count) if j != i
        )
        scores.append(sum(apart[: max(1, count - faulty - 2)]))
    best = sorted(sorted(range(count), key=scores.__getitem__)[: count - faulty])
    assert krum_choice(given, faulty) == best
    expected = given[best].astype(float).mean(axis=0)
    assert robust_centre(given, "multi-krum", faulty / count) == pytest.approx(expected)


@pytest.mark.parametrize("rule", RULES)
def test_one_of_five_cannot_pull_the_centre_away(rule: str) -> None:
    given = rows(5)
    honest = given[1:].astype(float)
    for size in (1e3, 1e6):
        given[0] = size
        centre = robust_centre(given, rule, 0.2)
        assert (centre >= honest.min(axis=0) - 1e-6).all()
        assert (centre <= honest.max(axis=0) + 1e-6).all()


@pytest.mark.parametrize("rule", RULES)
def test_equal_updates_give_the_mean(rule: str) -> None:
    one = rows(1)[0]
    assert robust_centre(np.stack([one] * 6), rule, 0.2) == pytest.approx(one)


class Lied(FedAvg):
    """One of six devices sends the opposite of its update, a hundred times as long."""

    def aggregate(self, view: View, state: State) -> Weights:
        lies = tuple(replace(a, update=-100 * a.update) if a.unit == 2 else a for a in view.arrived)
        return super().aggregate(replace(view, arrived=lies), state)


@pytest.mark.parametrize("rule", RULES)
def test_a_liar_spoils_the_mean_and_not_the_robust_rules(tiny: Tiny, rule: str) -> None:
    honest = models(tiny(run__rounds=5, data__noniid_devices=0), FedAvg())[-1]
    mean = models(tiny(run__rounds=5, data__noniid_devices=0), Lied())[-1]
    settings = {"scheme__aggregation": rule, "data__noniid_devices": 0, "run__rounds": 5}
    robust = models(tiny(**settings), Lied())[-1]
    assert np.linalg.norm(robust - honest) < 0.1 * np.linalg.norm(mean - honest)


def test_the_rule_applies_to_every_scheme_that_adds_updates(tiny: Tiny) -> None:
    schemes: list[Scheme] = [FedAvg(), FedAvgM(2, momentum=0.5)]
    for scheme, rule in itertools.product(schemes, RULES):
        assert bits(tiny(scheme__aggregation=rule), scheme) != bits(tiny(), scheme)


def test_nobody_to_trim_is_the_plain_mean_of_equal_devices(tiny: Tiny) -> None:
    world = tiny(scheme__aggregation="trimmed-mean", scheme__faulty_share=0.0)
    assert len(set(world.devices.samples)) == 1
    assert np.abs(models(world, FedAvg())[-1] - models(tiny(), FedAvg())[-1]).max() < 1e-6


class Weightless(FedBuff):
    """No update counts, as with contributions so small that they are rounded to 0."""

    def aggregate(self, view: View, state: State) -> Weights:
        arrived = tuple(replace(arrival, weight=0.0) for arrival in view.arrived)
        return super().aggregate(replace(view, arrived=arrived), state)


class WeightlessMean(Weightless):
    def aggregate(self, view: View, state: State) -> Weights:
        arrived = tuple(replace(arrival, weight=0.0) for arrival in view.arrived)
        return Scheme.aggregate(self, replace(view, arrived=arrived), state)


@pytest.mark.parametrize("rule", ["mean", *RULES])
def test_updates_without_weight_leave_the_model_as_it_is(tiny: Tiny, rule: str) -> None:
    world = tiny(scheme__aggregation=rule, run__rounds=2)
    for scheme in (Weightless(), WeightlessMean()):
        first, *_, last = models(world, scheme)
        assert np.array_equal(first, last)
