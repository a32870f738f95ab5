"""The number of a link depends on its two ends alone, and looks random."""

from __future__ import annotations

import numpy as np
from scipy import stats

from camu.world.fading import link_normal, link_uniform


def matrix(count: int, seed: int = 0, purpose: str = "own-test") -> np.ndarray:
    index = np.arange(count)
    return link_uniform(seed, purpose, index[:, None], index[None, :])


def test_symmetric_and_the_same_in_any_block() -> None:
    whole = matrix(200)
    assert (whole == whole.T).all()
    rows, cols = np.array([7, 190, 3]), np.array([100, 7])
    assert (
        link_uniform(0, "own-test", rows[:, None], cols[None, :]) == whole[np.ix_(rows, cols)]
    ).all()


def test_uniform_and_uncorrelated() -> None:
    whole = matrix(400)
    links = whole[np.triu_indices(400)]
    assert links.min() > 0
    assert links.max() < 1
    assert stats.kstest(links, "uniform").pvalue > 1e-3
    neighbours = np.corrcoef(whole[:-1, :].ravel(), whole[1:, :].ravel())[0, 1]
    assert abs(neighbours) < 0.02


def test_normal_law() -> None:
    index = np.arange(50_000)
    values = link_normal(3, "own-test", index, index)
    assert stats.kstest(values, "norm").pvalue > 1e-3


def test_seeds_and_purposes_are_independent() -> None:
    one = matrix(100).ravel()
    for other in (matrix(100, seed=1), matrix(100, purpose="own-else")):
        assert abs(np.corrcoef(one, other.ravel())[0, 1]) < 0.05
