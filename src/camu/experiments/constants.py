"""The bound's constants for a real run: mu, L, delta and delta_c at given weights.

Gradients come from the engine (full data, all devices), curvature from their differences: L is the
largest eigenvalue of the Hessian by power iteration, mu the smallest by power iteration on L - H.
They describe the loss where one looked; only for logistic regression with an l2 term is there a
guarantee everywhere (mu is then at least the l2 weight).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.bound import dissimilarity, hessian_product, smoothness, strong_convexity
from camu.learning.engine import Engine
from camu.learning.weights import Weights
from camu.schemes import Plan
from camu.seeding import derive

Floats = npt.NDArray[np.float64]

# Gradients are single precision: a smaller step would drown in their rounding.
_STEP = 1e-2


@dataclass(frozen=True, eq=False)
class Constants:
    """What a bound needs to know about a loss and a federation at one model."""

    smoothness: float  # L
    strong_convexity: float  # mu; negative where the loss is not convex
    delta: float  # dissimilarity of the units' gradients
    delta_c: Floats  # dissimilarity of the members' gradients in each unit


def estimate_constants(
    engine: Engine, plan: Plan, weights: Weights, iterations: int = 100
) -> Constants:
    """Estimate all constants at these weights."""

    def gradient(parameters: Floats) -> Floats:
        return engine.gradient(weights.with_parameters(parameters)).astype(np.float64)

    size = weights.parameters.size
    product = hessian_product(gradient, weights.parameters, _STEP)
    largest = smoothness(product, size, derive(engine.seed, "smoothness").numpy(), iterations)
    smallest = strong_convexity(
        product, size, derive(engine.seed, "convexity").numpy(), largest, iterations
    )
    units = [engine.gradient(weights, u.members, u.member_weights) for u in plan.units]
    inner = [
        dissimilarity(unit.member_weights, [engine.gradient(weights, [k]) for k in unit.members])
        for unit in plan.units
    ]
    return Constants(
        smoothness=largest,
        strong_convexity=smallest,
        delta=dissimilarity([unit.weight for unit in plan.units], units),
        delta_c=np.array(inner),
    )
