"""Units that transmit at once, made up: senders, updates, and a world without noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from camu.learning.weights import Entry, Layout, Weights
from camu.planning.air import Air, Senders
from camu.simulation.run import Update
from camu.world import World
from helpers.small_fleets import random_world


def noiseless(world: World) -> World:
    """The same world with noise that no number can show."""
    world.links.__dict__["noise_watts"] = 1e-300
    return world


def draw_senders(draw: np.random.Generator, count: int) -> Senders:
    """Units with different weights, powers and gains."""
    weight = draw.random(count)
    return Senders(
        weight=weight / weight.sum(),
        power_watts=draw.uniform(0.1, 1.0, count),
        gain=10 ** draw.uniform(-12, -9, count),
        mean_gain=np.ones(count),
        noise_watts=1e-12,
        symbols=500,
        leaders=np.arange(count),
        links=random_world(max(count, 2), 1).links,
        round=0,
    )


def updates_of(draw: np.random.Generator, air: Air, count: int, size: int) -> list[Update]:
    """Updates of different sizes, as workers return them."""
    found = []
    for unit in range(count):
        one = Update(unit, 0, loss=1.0)
        one.update = (draw.uniform(0.5, 2) * draw.standard_normal(size)).astype(np.float32)
        one.squares, one.buffers = air.squares(one.update), np.zeros(0, np.float32)
        found.append(one)
    return found


def start_of(size: int) -> Any:
    """A model of zeros."""
    layout = Layout((Entry("parameters", (size,)),), ())
    return Weights.owning(np.zeros(size, np.float32), np.zeros(0, np.float32), layout)
