"""Engine and initial weights of a world."""

from __future__ import annotations

from camu.data import Federation
from camu.learning.building import make_engine, seeded_model
from camu.learning.engine import Engine
from camu.learning.weights import Weights
from camu.world import World


def initial_weights(world: World) -> Weights:
    """The weights that every scheme of this world and seed starts from."""
    return Weights.of(seeded_model(world.config, world.seed))


def build_engine(world: World, federation: Federation) -> Engine:
    """The engine for a world's model and data."""
    data = federation.dataset
    train, test = (data.train_images, data.train_labels), (data.test_images, data.test_labels)
    return make_engine(world.config, world.seed, train, federation.indices, test)
