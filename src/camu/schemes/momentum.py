"""Momentum of the server (heavy ball) on the mean update; it costs devices nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from camu.schemes.contract import State, View

if TYPE_CHECKING:
    from camu.learning.weights import Weights


def pushed(view: View, state: State, mean: Weights, momentum: float, rate: float = 1.0) -> Weights:
    """The model after v <- momentum v + mean update, x <- x + rate v; buffers are the mean's."""
    here = view.weights.parameters.astype("float64")
    velocity = mean.parameters - here
    if "velocity" in state:
        velocity += momentum * state["velocity"]
    state["velocity"] = velocity
    return mean.with_parameters(here + rate * velocity)
