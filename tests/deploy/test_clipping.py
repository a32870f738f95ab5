"""Updates far above the median norm are clipped; where nobody is, no bit changes."""

from __future__ import annotations

import numpy as np
import pytest

from camu.deploy.server.clipping import Clipping, clip_update, norm_limit, update_norm
from camu.learning.job import Trained
from camu.learning.models import model_layout
from camu.learning.weights import Weights
from camu.seeding import derive
from helpers.configs import small

LAYOUT = model_layout(small(training__model="logistic"))
START = Weights(np.zeros(LAYOUT.parameter_count), np.zeros(LAYOUT.buffer_count), LAYOUT)


def trained(norm: float, seed: int = 0) -> Trained:
    vector = derive(seed, "own-update").numpy().standard_normal(LAYOUT.parameter_count)
    vector *= norm / np.linalg.norm(vector)
    return Trained(Weights(vector, START.buffers, LAYOUT), 1.0)


def test_an_update_is_scaled_to_the_multiple_of_the_median() -> None:
    results = [trained(1.0, 1), trained(2.0, 2), None, trained(3.0, 3), trained(2000.0, 4)]
    clipped = Clipping(5.0).together(results, [START] * 5)
    for before, after in zip(results[:4], clipped[:4], strict=True):
        assert after is before  # the same object: no bit changes
    last = clipped[4]
    assert last is not None
    # The median of 1, 2, 3 and 2000 is 2.5.
    assert update_norm(last.weights, START) == pytest.approx(12.5, rel=1e-6)
    np.testing.assert_allclose(
        last.weights.parameters, results[4].weights.parameters * (12.5 / 2000), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("norms", "multiple", "limit"),
    [
        ([1.0, 9.0], 5.0, np.inf),  # of two, nobody is far off
        ([0.0, 0.0, 0.0], 5.0, np.inf),
        ([1.0, 2.0, 3.0], 0.0, np.inf),
        ([1.0, 2.0, np.inf, np.nan, 6.0], 5.0, 10.0),
        ([], 5.0, np.inf),
    ],
)
def test_the_limit_needs_something_to_compare_with(
    norms: list[float], multiple: float, limit: float
) -> None:
    assert norm_limit(norms, multiple) == limit


def test_entries_that_are_not_finite_are_left_to_the_refusal() -> None:
    bad = Trained(Weights(START.parameters * np.nan, START.buffers, LAYOUT), 1.0)
    assert clip_update(bad, START, 1.0) is bad


def test_an_arrival_is_compared_with_those_before_it() -> None:
    clipping = Clipping(2.0)
    norms = [1.0, 1.0, 1.0, 100.0, 100.0, 1.0]
    found = [clipping.alone(trained(norm), START) for norm in norms]
    sizes = [update_norm(each.weights, START) for each in found]
    # The first two have nothing to compare with; what was clipped counts as clipped.
    np.testing.assert_allclose(sizes, [1, 1, 1, 2, 2, 1], rtol=1e-5)
