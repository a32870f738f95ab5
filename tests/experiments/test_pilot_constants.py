"""Constants of P2 from a pilot: those that are known match on a federation of quadratics."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from camu.allocation.measured import Constants, Look, curvatures, follow, measured, of_batches
from camu.errors import CamuError

WEIGHT = np.array([0.5, 0.3, 0.2])
SIZE, SAMPLES, BATCH = 3, 10, 4


class Quadratics:
    """F_c(w) = mean_i of (w - z_i)' H_c (w - z_i) / 2 over the samples z_i of cluster c."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        bases = [np.linalg.qr(self.rng.standard_normal((SIZE, SIZE)))[0] for _ in WEIGHT]
        self.hessians = [q @ np.diag(self.rng.uniform(0.2, 2, SIZE)) @ q.T for q in bases]
        self.samples = self.rng.standard_normal((len(WEIGHT), SAMPLES, SIZE)) + 3

    @property
    def hessian(self) -> npt.NDArray[Any]:
        return np.tensordot(WEIGHT, np.stack(self.hessians), 1)

    def loss(self, c: int, w: npt.NDArray[Any]) -> float:
        away = w - self.samples[c]
        return float(np.einsum("ij,jk,ik->", away, self.hessians[c], away) / (2 * SAMPLES))

    def gradient(self, c: int, w: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.asarray(self.hessians[c] @ (w - self.samples[c].mean(axis=0)))

    def least_loss(self) -> float:
        parts = zip(WEIGHT, self.hessians, self.samples, strict=True)
        pull = sum(g * h @ s.mean(axis=0) for g, h, s in parts)
        best = np.linalg.solve(self.hessian, pull)
        return sum(g * self.loss(c, best) for c, g in enumerate(WEIGHT))

    def look(self, w: npt.NDArray[Any]) -> Look:
        """Every cluster passes over its samples once, in an order of its own."""
        losses, gradients, variance = [], [], []
        for c in range(len(WEIGHT)):
            order = self.rng.permutation(SAMPLES)
            batches = [order[start : start + BATCH] for start in range(0, SAMPLES, BATCH)]
            rows = [self.hessians[c] @ (w - self.samples[c][own].mean(axis=0)) for own in batches]
            mean, scatter = of_batches([len(own) for own in batches], np.stack(rows))
            losses.append(self.loss(c, w))
            gradients.append(mean)
            variance.append(scatter)
        return Look(w, np.array(losses), np.stack(gradients), np.array(variance))


def pilot(federation: Quadratics, models: int = 6) -> tuple[list[Look], Constants]:
    looks = follow(federation.look, WEIGHT, np.zeros(SIZE), 0.3, models)
    return looks, measured(looks, WEIGHT, federation.least_loss(), smallest_move=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_curvatures_are_the_eigenvalues(seed: int) -> None:
    federation = Quadratics(seed)
    _, found = pilot(federation)
    assert found.convexity == pytest.approx(np.linalg.eigvalsh(federation.hessian)[0], rel=1e-6)
    largest = max(np.linalg.eigvalsh(own)[-1] for own in federation.hessians)
    assert found.smoothness == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_ratios_of_gradients_are_the_largest_on_the_way(seed: int) -> None:
    federation = Quadratics(seed)
    _, found = pilot(federation)
    w, aside, whole = np.zeros(SIZE), np.zeros(3), np.zeros(3)
    for _ in range(6):
        own = [federation.gradient(c, w) for c in range(3)]
        mean = sum(g * one for g, one in zip(WEIGHT, own, strict=True))
        size = float(np.sqrt(mean @ mean))
        aside = np.maximum(aside, [np.linalg.norm(one - mean) / size for one in own])
        whole = np.maximum(whole, [np.linalg.norm(one) / size for one in own])
        last, w = w, w - 0.3 * mean
    assert found.divergence == pytest.approx(aside)
    assert found.dissimilarity == pytest.approx(whole)
    loss = sum(g * federation.loss(c, last) for c, g in enumerate(WEIGHT))
    assert found.initial_gap == pytest.approx(loss - federation.least_loss())


def test_the_variance_is_that_of_samples_drawn_without_replacement() -> None:
    """sigma^2 / b (n - b) / (n - 1), as the mean over all orders of five samples."""
    rows, size = np.random.default_rng(3).standard_normal((5, 4)), 2
    seen = []
    for order in itertools.permutations(range(5)):
        batches = [rows[list(order[start : start + size])] for start in range(0, 5, size)]
        means = np.stack([own.mean(axis=0) for own in batches])
        mean, variance = of_batches([len(own) for own in batches], means)
        assert mean == pytest.approx(rows.mean(axis=0))
        seen.append(variance)
    sigma = np.square(rows - rows.mean(axis=0)).sum(axis=1).mean()
    assert np.mean(seen) == pytest.approx(sigma / size * (5 - size) / (5 - 1))


def test_convexity_is_never_below_that_of_the_loss() -> None:
    """With few models it is what the pilot has seen of it."""
    for seed in range(5):
        federation = Quadratics(seed)
        least = np.linalg.eigvalsh(federation.hessian)[0]
        values = [pilot(federation, models)[1].convexity for models in (2, 3, 4)]
        assert min(values) >= least * (1 - 1e-9)
        assert values[-1] == pytest.approx(least, rel=1e-6)


def test_a_loss_that_is_not_convex_has_the_ratio_of_gradient_and_gap() -> None:
    def look(w: npt.NDArray[Any]) -> Look:
        loss, slope = 2 + np.sin(w[0]), np.array([[np.cos(w[0])]])
        return Look(w, np.array([loss]), slope, np.zeros(1))

    looks = follow(look, np.ones(1), np.array([1.0]), 0.1, 3)
    found = measured(looks, np.ones(1), least_loss=1.0)
    assert (
        curvatures(
            np.diff([one.weights for one in looks], axis=0),
            np.diff([one.gradients[0] for one in looks], axis=0),
            1e-3,
        ).min()
        < 0
    )
    ratios = [one.gradients[0, 0] ** 2 / (2 * (one.losses[0] - 1.0)) for one in looks]
    assert found.convexity == pytest.approx(min(ratios))
    assert "gap" in found.convexity_from


def test_a_pilot_that_does_not_move_or_explodes_is_refused() -> None:
    federation = Quadratics(0)
    with pytest.raises(CamuError, match="did not move"):
        measured(follow(federation.look, WEIGHT, np.zeros(SIZE), 0.0, 3), WEIGHT)
    with pytest.raises(CamuError, match="diverged"), np.errstate(all="ignore"):
        measured(follow(federation.look, WEIGHT, np.zeros(SIZE), 1e200, 4), WEIGHT)
