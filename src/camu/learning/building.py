"""The configured model and an engine for it, alike in a simulation, on a server and on a node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import nn

from camu.config import Config
from camu.data import dataset_spec
from camu.learning.engine import Engine
from camu.learning.models import build_model
from camu.learning.weights import Layout
from camu.seeding import derive

Samples = tuple[npt.NDArray[np.uint8], npt.ArrayLike]  # images and labels


def seeded_model(config: Config, seed: int) -> nn.Module:
    """The model with the weights that every scheme starts from under this seed."""
    training, spec = config.training, dataset_spec(config.data)
    stream = derive(seed, "model")
    return build_model(
        training.model, spec.image_shape, spec.classes, training.normalisation, stream
    )


def model_layout(config: Config) -> Layout:
    """The names and shapes of the model's state."""
    return Layout.of(seeded_model(config, config.run.seed))


def make_engine(
    config: Config,
    seed: int,
    train: Samples,
    device_indices: Sequence[npt.ArrayLike],
    test: Samples,
) -> Engine:
    """An engine for the configured model and training on any images and labels."""
    training = config.training
    return Engine(
        seeded_model(config, seed),
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
