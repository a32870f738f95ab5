"""The constants of a real run against an explicit Hessian and plain sums."""

import numpy as np
import pytest

from camu.config import load_config
from camu.experiments.constants import estimate_constants
from camu.schemes import make_scheme
from camu.simulation.engines import build_engine
from camu.world import build_world


def test_logistic_regression_against_its_hessian() -> None:
    config = load_config(
        preset="demo",
        settings=["training.model=logistic", "training.l2=0.1", "run.workers=1"],
    )
    world = build_world(config)
    plan = make_scheme(config).plan(world)
    with build_engine(world, world.federation) as engine:
        found = estimate_constants(engine, plan, engine.initial, iterations=300)
        weights = engine.initial
    data = world.federation.dataset
    own = np.concatenate(world.federation.indices)
    x = data.train_images[own].reshape(len(own), -1) / 255.0
    tensors = weights.tensors()
    logits = x @ tensors["linear.weight"].T.astype(float) + tensors["linear.bias"]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    features = np.hstack([x, np.ones((len(own), 1))])
    # Devices hold equally many samples, so the global loss is the mean over all samples.
    middle = np.einsum("na,ab->nab", p, np.eye(10)) - p[:, :, None] * p[:, None, :]
    hessian = np.einsum("nab,ni,nj->aibj", middle, features, features, optimize=True) / len(own)
    hessian = hessian.reshape(650, 650) + 0.1 * np.eye(650)
    eigenvalues = np.linalg.eigvalsh(hessian)
    assert found.smoothness == pytest.approx(eigenvalues[-1], rel=0.01)
    assert found.strong_convexity == pytest.approx(eigenvalues[0], abs=0.02 * eigenvalues[-1])


def test_dissimilarity_by_hand() -> None:
    config = load_config(
        preset="demo", settings=["training.model=logistic", "training.l2=0.1", "run.workers=1"]
    )
    world = build_world(config)
    plan = make_scheme(config).plan(world)
    with build_engine(world, world.federation) as engine:
        found = estimate_constants(engine, plan, engine.initial, iterations=2)
        each = [engine.gradient(engine.initial, [k]).astype(float) for k in range(20)]
    units = [
        sum(w * each[k] for k, w in zip(u.members, u.member_weights, strict=True))
        for u in plan.units
    ]
    weight = [u.weight for u in plan.units]
    mean = sum(w * g for w, g in zip(weight, units, strict=True))
    outer = sum(w * (g @ g) for w, g in zip(weight, units, strict=True))
    assert found.delta == pytest.approx((outer / (mean @ mean)) ** 0.5, rel=1e-4)
    for u, unit, got in zip(plan.units, units, found.delta_c, strict=True):
        squares = sum(
            w * (each[k] @ each[k]) for k, w in zip(u.members, u.member_weights, strict=True)
        )
        assert got == pytest.approx(max(1.0, (squares / (unit @ unit)) ** 0.5), rel=1e-4)
    assert found.delta > 1
