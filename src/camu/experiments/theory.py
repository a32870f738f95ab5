"""Claim T1: is the measured gap ever above the bound, where the theorem's assumptions hold?

The federation is l2-regularised logistic regression on a real data set (is the label 5 or more?),
on the devices and clusters of the paper's layout. Constants that the bounds need are computed, not
guessed; the expectation over channel noise is a mean over many noisy copies of the same run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.allocation.bound import Bound, CorrectedBound, Theorem1, bound_after, convex_constants
from camu.arrays import Float64
from camu.data import Federation
from camu.experiments.scheduler import study_config
from camu.schemes import make_scheme, plans
from camu.seeding import derive
from camu.world import build_world

ROUNDS = 25
NOISY_COPIES = 32
NOISE_VARIANCE = 1e-4  # of one weight, in the aggregate
SIDE = 4  # images are averaged down to 4 x 4 pixels: every constant is then exact and cheap
STRENGTH = 0.1  # mu, the l2 term


@dataclass(frozen=True, eq=False)
class LogisticFederation:
    """Clusters of devices, each with rows y*x of unit length at most."""

    weight: Float64  # G_c
    member_weight: list[Float64]  # G_{k,c}
    rows: list[list[Float64]]  # per cluster and member
    updates: npt.NDArray[np.int64]  # N_c

    @property
    def size(self) -> int:
        """q, the number of weights."""
        return int(self.rows[0][0].shape[1])

    def loss(self, w: Float64) -> Float64:
        """F at each row of w."""
        total = STRENGTH / 2 * (w**2).sum(axis=-1)
        for c, members in enumerate(self.rows):
            for share, rows in zip(self.member_weight[c], members, strict=True):
                each = np.logaddexp(0, -w @ rows.T).mean(axis=-1)
                total = total + self.weight[c] * share * each
        return np.asarray(total)

    def member_gradients(self, c: int, w: Float64) -> Float64:
        """Gradients of the members of a cluster, (members, rows of w, q)."""
        slopes = [-(1 / (1 + np.exp(w @ rows.T))) @ rows / len(rows) for rows in self.rows[c]]
        return np.stack([slope + STRENGTH * w for slope in slopes])

    def gradient(self, c: int, w: Float64) -> Float64:
        """Gradient of a cluster at each row of w."""
        return np.asarray(np.tensordot(self.member_weight[c], self.member_gradients(c, w), 1))

    def gradients(self, w: Float64) -> Float64:
        """Gradients of all clusters, (clusters, rows of w, q)."""
        return np.stack([self.gradient(c, w) for c in range(len(self.rows))])

    def optimum(self) -> Float64:
        """The minimiser of F, by gradient descent to the last digit."""
        w = np.zeros((1, self.size))
        for _ in range(20_000):
            step = np.tensordot(self.weight, self.gradients(w), 1)
            w = w - step / (0.25 + STRENGTH)
            if np.abs(step).max() < 1e-13:
                break
        return np.asarray(w[0])

    def curvature(self) -> Float64:
        """The largest eigenvalue of each cluster's data term; it bounds the Hessian's."""
        hessians = [
            sum(s * rows.T @ rows / (4 * len(rows)) for s, rows in zip(shares, own, strict=True))
            for shares, own in zip(self.member_weight, self.rows, strict=True)
        ]
        return np.array([np.linalg.eigvalsh(hessian)[-1] for hessian in hessians])


def federation_of(dataset: str, seed: int) -> LogisticFederation:
    """The paper's devices and clusters (Benchmark 2's updates) on a data set."""
    changes = {"data.dataset": dataset, "data.samples_per_device": 200, "run.seed": seed}
    config = study_config({**changes, "scheme.name": "petrel"})
    world = build_world(config)
    data = world.federation
    assert isinstance(data, Federation)  # only a fleet file comes without
    images, labels = data.dataset.train_inputs, data.dataset.train_labels
    plan = plans.plan(make_scheme(config), world)
    side = images.shape[1] // SIDE
    small = images[:, : SIDE * side, : SIDE * side].reshape(-1, SIDE, side, SIDE, side)

    def rows(device: int) -> Float64:
        own = data.indices[device]
        x = small[own].mean(axis=(2, 4)).reshape(len(own), -1)
        x = np.hstack([x / 255, np.ones((len(own), 1))])
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        return np.asarray(np.where(labels[own] >= 5, 1.0, -1.0)[:, None] * x)

    return LogisticFederation(
        weight=np.array([unit.weight for unit in plan.units]),
        member_weight=[np.array(unit.member_weights) for unit in plan.units],
        rows=[[rows(device) for device in unit.members] for unit in plan.units],
        updates=np.array([unit.local_updates for unit in plan.units]),
    )


def corrected_bound(federation: LogisticFederation, rate: float) -> CorrectedBound:
    """The corrected bound with constants that hold at every model."""
    curve = federation.curvature()
    # Both data terms are positive semidefinite: their difference is below the larger one.
    difference = np.maximum(curve, federation.weight @ curve)
    rest = np.linalg.norm(federation.gradients(federation.optimum()[None])[:, 0], axis=1)
    constants = convex_constants(curve + STRENGTH, difference, STRENGTH, rest)
    smooth = float(curve.max() + STRENGTH)
    return CorrectedBound(federation.weight, *constants, STRENGTH, smooth, rate, federation.size)


def margins(dataset: str, seed: int) -> dict[str, float]:
    """The smallest log10(bound / measured gap) over the rounds, per bound; negative: violated."""
    federation = federation_of(dataset, seed)
    smooth = float(federation.curvature().max() + STRENGTH)
    rate = 0.1 / smooth
    gaps, delta, delta_c = measure(federation, rate, seed)
    printed = Theorem1(
        federation.weight, federation.member_weight, delta, delta_c, STRENGTH, smooth, rate
    )

    def margin(bound: Bound) -> float:
        line = [
            bound_after(bound, federation.updates, NOISE_VARIANCE, float(gaps[0]), t)
            for t in range(1, len(gaps))
        ]
        ratio = np.maximum(np.array(line), 1e-300) / np.maximum(gaps[1:], 1e-300)
        return float(np.clip(np.log10(ratio), -300, 300).min())

    return {"theorem1": margin(printed), "corrected": margin(corrected_bound(federation, rate))}


def measure(
    federation: LogisticFederation, rate: float, seed: int
) -> tuple[Float64, float, Float64]:
    """Mean gap per round (the start first), and A4's indices, the largest that were met."""
    generator = derive(seed, "theory-noise").numpy()
    start = derive(seed, "theory-start").numpy().normal(0, 2, federation.size)
    w = np.tile(start, (NOISY_COPIES, 1))
    best = float(federation.loss(federation.optimum()[None])[0])
    gaps, outer, inner = [float(federation.loss(w).mean()) - best], [], []
    for _ in range(ROUNDS):
        outer.append(_index(federation.weight, federation.gradients(w)))
        inner.append(
            [
                _index(federation.member_weight[c], federation.member_gradients(c, w))
                for c in range(len(federation.rows))
            ]
        )
        moved = np.zeros_like(w)
        for c, count in enumerate(federation.updates):
            local = w
            for _ in range(count):
                local = local - rate * federation.gradient(c, local)
            moved += federation.weight[c] * (local - w)
        w = w + moved
        w = w + np.sqrt(NOISE_VARIANCE) * generator.standard_normal(w.shape)
        gaps.append(float(federation.loss(w).mean()) - best)
    return np.array(gaps), max(outer), np.max(inner, axis=0)


def _index(weight: Float64, gradients: Float64) -> float:
    """A4's dissimilarity of these gradients, averaged over the noisy copies."""
    mean = np.tensordot(weight, gradients, 1)
    squares = float((weight[:, None] * (gradients**2).sum(axis=-1)).sum())
    return float(np.sqrt(squares / (mean**2).sum()))
