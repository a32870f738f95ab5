"""Engines and initial weights for a configuration: the same here, on a server and on a node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import nn

from camu.config import Config
from camu.data import CATALOG, Federation
from camu.learning.engine import Engine
from camu.learning.models import build_model
from camu.learning.weights import Layout, Weights
from camu.seeding import derive
from camu.world import World

Samples = tuple[npt.NDArray[np.uint8], npt.ArrayLike]  # images and labels


def initial_weights(world: World) -> Weights:
    """The weights that every scheme of this world and seed starts from."""
    return Weights.of(_model(world.config, world.seed))


def _model(config: Config, seed: int) -> nn.Module:
    training, spec = config.training, CATALOG[config.data.dataset]
    stream = derive(seed, "model")
    return build_model(
        training.model, spec.image_shape, spec.classes, training.normalisation, stream
    )


def build_engine(world: World, federation: Federation) -> Engine:
    """The engine for a world's model and data."""
    data = federation.dataset
    train, test = (data.train_images, data.train_labels), (data.test_images, data.test_labels)
    return make_engine(world.config, world.seed, train, federation.indices, test)


def make_engine(
    config: Config,
    seed: int,
    train: Samples,
    device_indices: Sequence[npt.ArrayLike],
    test: Samples,
) -> Engine:
    """The engine for the configured model and training on any images and labels."""
    training = config.training
    return Engine(
        _model(config, seed),
        *train,
        device_indices,
        *test,
        learning_rate=training.learning_rate,
        batch=training.batch,
        local_update=training.local_update,
        l2=training.l2,
        seed=seed,
        workers=config.run.workers,
        device=config.run.device,
    )


def model_layout(config: Config) -> Layout:
    """The names and shapes of the configured model's state."""
    return Layout.of(_model(config, config.run.seed))
