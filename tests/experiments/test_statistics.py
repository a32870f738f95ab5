"""Intervals and tests against scipy and simulation, verdicts against their definition."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from camu.experiments import claims
from camu.experiments.design import cells_of
from camu.experiments.statistics import (
    NO_EFFECT,
    UNDECIDED,
    chance_to_differ,
    corrected,
    detectable,
    estimate,
    holm,
    judge,
    with_averages,
)

VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=12).filter(lambda v: np.std(v) > 1e-6)


@given(VALUES)
def test_interval_is_students(values: list[float]) -> None:
    found = estimate(values)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert found.low == pytest.approx(expected.low, rel=1e-6, abs=1e-9)
    assert found.high == pytest.approx(expected.high, rel=1e-6, abs=1e-9)
    wide = estimate(values, tests=3)
    third = stats.ttest_1samp(values, 0.0).confidence_interval(1 - 0.05 / 3)
    assert wide.high == pytest.approx(third.high, rel=1e-6, abs=1e-9)


def test_one_seed_has_no_interval() -> None:
    found = estimate([3.0])
    assert (found.low, found.high, found.n) == (None, None, 1)
    assert judge("X", "d", "s", [3.0], 1, None).verdict == UNDECIDED


@pytest.mark.parametrize(
    ("values", "sign", "word"),
    [
        ([1.0, 1.1, 0.9], 1, "reproduced"),
        ([1.0, 1.1, 0.9], -1, "contradicted"),
        ([-1.0, -1.1, -0.9], -1, "reproduced"),
        ([-1.0, -1.1, -0.9], 1, "contradicted"),
        ([1.0, -1.0, 0.5], 1, UNDECIDED),
        ([0.1, -0.1, 0.05], 1, NO_EFFECT),
        ([0.1, 0.12, 0.11], 1, "reproduced"),
    ],
)
def test_verdicts(values: list[float], sign: int, word: str) -> None:
    assert judge("X", "d", "s", values, sign, None).verdict == word


def test_choosing_the_best_of_several_needs_more_evidence() -> None:
    values = [1.0, 2.0, 3.1]
    assert judge("X", "d", "s", values, 1, None).verdict == UNDECIDED
    values = [1.0, 1.5, 1.9]
    assert judge("X", "d", "s", values, 1, None).verdict == "reproduced"
    assert judge("X", "d", "s", values, 1, None, tests=3).verdict == UNDECIDED


@given(VALUES)
def test_p_values_sd_and_equivalence_are_scipys(values: list[float]) -> None:
    found = estimate(values)
    assert found.sd == pytest.approx(np.std(values, ddof=1))
    assert found.p_value() == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue, abs=1e-9)
    assert found.p_value(3) == pytest.approx(min(1.0, 3 * (found.p_value() or 0.0)))
    below = stats.ttest_1samp(values, 1.0, alternative="less").pvalue
    above = stats.ttest_1samp(values, -1.0, alternative="greater").pvalue
    if abs(max(below, above) - 0.05) > 1e-6:
        assert found.equivalent(1.0) == (max(below, above) < 0.05)
    third = max(below, above) * 3
    if abs(third - 0.05) > 1e-6:
        assert found.equivalent(1.0, 3) == (third < 0.05)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_its_steps_reject(p_values: list[float]) -> None:
    """Against the procedure as Holm wrote it: from the smallest p on, until one is too large."""
    adjusted = holm(p_values)
    for level in (0.01, 0.05, 0.3):
        rejected, left = set(), len(p_values)
        for index in np.argsort(p_values, kind="stable").tolist():
            if p_values[index] * left > level:
                break
            rejected.add(index)
            left -= 1
        assert {i for i, p in enumerate(adjusted) if p <= level} == rejected


@pytest.mark.parametrize(("mean", "sd", "n"), [(1.0, 2.0, 8), (0.5, 1.0, 20), (0.0, 1.0, 8)])
def test_chances_are_those_of_simulated_seeds(mean: float, sd: float, n: int) -> None:
    drawn = np.random.default_rng(n).normal(mean, sd, (40_000, n))
    p = stats.ttest_1samp(drawn, 0.0, axis=1).pvalue
    assert chance_to_differ(mean, sd, n) == pytest.approx((p < 0.05).mean(), abs=0.01)


@pytest.mark.parametrize(("sd", "n", "tests"), [(1.0, 5, 1), (0.3, 8, 1), (2.0, 20, 10)])
def test_the_smallest_effect_that_seeds_show_is_shown_in_four_of_five_studies(
    sd: float, n: int, tests: int
) -> None:
    effect = detectable(sd, n, tests)
    drawn = np.random.default_rng(n).normal(effect, sd, (40_000, n))
    p = stats.ttest_1samp(drawn, 0.0, axis=1).pvalue
    assert (tests * p < 0.05).mean() == pytest.approx(0.8, abs=0.01)


def test_a_verdict_says_what_its_seeds_could_have_shown() -> None:
    values = [3.0, -1.0, 2.5, 0.0]
    row = judge("X", "d", "s", values, 1, None)
    assert row.verdict == UNDECIDED
    assert row.detectable == detectable(float(np.std(values, ddof=1)), 4)
    assert row.cells()["within 1 point"] == "no"
    # A margin in points says nothing about other units.
    other = judge("X", "d", "s", [0.1, -0.1, 0.05], 1, None, "log10")
    assert (other.verdict, other.p_equivalent) == (UNDECIDED, None)


def test_a_difference_and_its_smallness_are_both_shown() -> None:
    cells = judge("X", "d", "s", [0.1, 0.12, 0.11], 1, None).cells()
    assert (cells["verdict"], cells["within 1 point"]) == ("reproduced", "yes")


def test_a_difference_that_holm_takes_back_may_leave_an_equivalence() -> None:
    small = judge("X", "d", "s", [0.10, 0.14, 0.18, 0.06], 1, None)
    others = [judge(f"Y{k}", "d", "s", [3.0, -1.0, 2.5, 0.0], 1, None) for k in range(19)]
    assert small.verdict == "reproduced"
    first, *rest = corrected([small, *others])
    assert first.holm == NO_EFFECT
    assert {row.holm for row in rest} == {UNDECIDED}


def test_equivalences_are_corrected_for_their_number_too() -> None:
    values = [0.9, -0.4, -0.2, 0.5, 0.1]
    one = judge("X", "d", "s", values, 1, None)
    assert one.verdict == NO_EFFECT
    many = [judge(f"X{k}", "d", "s", values, 1, None) for k in range(20)]
    assert {row.holm for row in corrected([one])} == {NO_EFFECT}
    assert {row.holm for row in corrected(many)} == {UNDECIDED}


def test_one_counterexample_contradicts_a_bound_and_no_average_does() -> None:
    kept, broken = {"theorem1": 2.0, "corrected": 1.0}, {"theorem1": -0.1, "corrected": 3.0}
    printed, right = claims.theory("mnist", [kept, kept, broken])
    assert (printed.verdict, right.verdict) == ("contradicted", "reproduced")
    assert "held in 2 of 3" in printed.statement
    assert {row.holm for row in corrected([printed, right])} == {None}


def test_holm_takes_back_what_a_large_family_cannot_carry() -> None:
    weak = [judge(f"X{k}", "d", "s", [1.0, 1.4, 1.8], 1, None) for k in range(20)]
    strong = judge("Y", "d", "s", [1.0, 1.001, 0.999], 1, None)
    detail = judge("Y@h=6", "d", "s", [1.0, 1.4, 1.8], 1, None)
    rows = corrected([*weak, strong, detail])
    assert {row.verdict for row in rows} == {"reproduced"}
    assert [row.holm for row in rows] == [UNDECIDED] * 20 + ["reproduced"] * 2
    (row,) = with_averages([strong], [weak[0]])
    assert (row.average, row.average_verdict) == (weak[0].mean, "reproduced")


def test_two_equal_differences_are_no_evidence() -> None:
    """Two seeds on few test images often differ by exactly the same."""
    found = estimate([0.5, 0.5])
    assert (found.low, found.high, found.p_value()) == (None, None, None)
    assert not found.equivalent(1.0)
    assert judge("A1", "mnist", "", [0.5, 0.5], 1, None).verdict == "undecided"
    assert estimate([0.5, 0.5, 0.5]).p_value() == 0.0


def test_more_tests_need_larger_effects() -> None:
    assert detectable(1.0, 8, 10) > detectable(1.0, 8)


def test_the_strongest_of_many_rivals_is_not_judged_as_if_it_were_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no scheme is better than another, B3 is rarely contradicted."""
    generator, seeds = np.random.default_rng(1), range(8)
    monkeypatch.setattr(claims, "accuracy_ahead", lambda *given: generator.normal(0, 0.01))
    cells = [cell for cell in cells_of("resources", "mnist") if cell.solver != "ppo"]
    histories: Any = {(cell, seed): None for cell in cells for seed in seeds}
    found = [row for _ in range(150) for row in claims.budgets("mnist", seeds, histories)]
    assert np.mean([row.verdict == "contradicted" for row in found]) < 0.05
