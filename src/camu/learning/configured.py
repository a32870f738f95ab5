"""What a configuration computes with: its model, its kernel, and the device they run on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from camu.config import Config
from camu.errors import InputError
from camu.learning.cnn import SeededCNN, seeded_cnn
from camu.learning.native_kernel import find_kernels
from camu.learning.weights import Layout

if TYPE_CHECKING:
    from torch import nn


def kernel_name(config: Config) -> str:
    """What an engine for this configuration computes with, as `Engine.kernel` names it."""
    model = seeded_cnn(config)
    if model is None:
        return "torch"
    found = find_kernels(config.run.kernel, model, choose_device(config.run.device))
    return "torch" if found is None else f"native {found[1]}"


def model_layout(config: Config) -> Layout:
    """The names and shapes of the configured model's state."""
    model = seeded(config)
    return model.cnn.layout if isinstance(model, SeededCNN) else Layout.of(model)


def seeded(config: Config) -> nn.Module | SeededCNN:
    """The configured model with its initial weights, as a module only if it must be one."""
    if (cnn := seeded_cnn(config)) is not None:
        return cnn
    from camu.learning.models import seeded_model  # torch takes long to load

    return seeded_model(config)


def choose_device(name: str) -> str:
    """Where to compute, "cpu" or "cuda"."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f'device: {name!r} is unknown; use "auto", "cpu" or "cuda".')
    if name == "cpu" or not _has_graphics_card():
        if name == "cuda":
            raise InputError(
                'device: "cuda" was asked for, but torch finds no such device; use "cpu".'
            )
        return "cpu"
    return "cuda"


# Linux shows a card's driver as one of these files: NVIDIA's, AMD's, and that of WSL.
_CARD_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def _has_graphics_card() -> bool:
    """Whether torch can use a card; torch is asked only if there may be one."""
    if sys.platform == "linux" and not any(Path(file).exists() for file in _CARD_FILES):
        return False
    import torch

    return torch.cuda.is_available()
