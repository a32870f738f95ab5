"""The configured model and its layout, with torch only where nothing else knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from camu.config import Config
from camu.data import dataset_spec
from camu.learning.cnn import SeededCNN, sample_shape, seeded_cnn
from camu.learning.layouts import built_in_layout
from camu.learning.task import task_of
from camu.learning.weights import Layout

if TYPE_CHECKING:
    from torch import nn


def model_layout(config: Config) -> Layout:
    """The names and shapes of the configured model's state; a built-in model loads no torch."""
    training, task = config.training, task_of(config)
    shape = sample_shape(dataset_spec(config.data))
    found = built_in_layout(
        *(training.model, shape, task.outputs, training.normalisation),
        **task.model_arguments(),
    )
    if found is not None:
        return found
    from camu.learning.models import seeded_model

    return Layout.of(seeded_model(config))


def seeded(config: Config) -> nn.Module | SeededCNN:
    """The configured model with its initial weights, as a torch module only if it must be one."""
    if (cnn := seeded_cnn(config)) is not None:
        return cnn
    from camu.learning.models import seeded_model  # torch takes long to load

    return seeded_model(config)
