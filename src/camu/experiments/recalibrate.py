"""Batch norm's statistics of a finished run, computed again on data of all devices."""

from __future__ import annotations

import numpy as np
import torch
from safetensors.torch import load_file

from camu.data import Federation
from camu.files import read_json, write_json
from camu.learning.models import seeded_model
from camu.simulation.directory import RunDirectory
from camu.world import build_world

SAMPLES_PER_DEVICE = 70


def recalibrated_accuracy(run: RunDirectory) -> float:
    """The accuracy of a finished run's model with statistics of batch norm from all devices.

    The result is kept in the run's directory.
    """
    kept = run.path / "recalibrated.json"
    if not kept.exists():
        world = build_world(run.read_config())
        assert world.federation is not None  # the run was trained
        module = seeded_model(world.config)
        module.load_state_dict(load_file(run.model), strict=False)
        recalibrate(module, world.federation)
        write_json(kept, {"accuracy": _accuracy(module, world.federation)})
    return float(read_json(kept, "an accuracy")["accuracy"])


def recalibrate(module: torch.nn.Module, federation: Federation) -> None:
    """Set the running statistics to the means over mixed batches, ten samples of every device."""
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean over batches
    spread = [
        np.linspace(0, len(own) - 1, SAMPLES_PER_DEVICE).astype(int) for own in federation.indices
    ]
    picked = np.stack([own[place] for own, place in zip(federation.indices, spread, strict=True)])
    module.train()
    with torch.no_grad():
        for part in np.split(picked, SAMPLES_PER_DEVICE // 10, axis=1):
            module(_images(federation.dataset.train_inputs[part.ravel()]))
    module.eval()


def _accuracy(module: torch.nn.Module, federation: Federation) -> float:
    data = federation.dataset
    parts = range(0, len(data.test_inputs), 1000)
    with torch.no_grad():
        answers = [module(_images(data.test_inputs[k : k + 1000])).argmax(1) for k in parts]
    return float((torch.cat(answers).numpy() == data.test_labels).mean())


def _images(pixels: np.typing.NDArray[np.uint8]) -> torch.Tensor:
    images = torch.from_numpy(np.ascontiguousarray(pixels)).float() / 255
    return images[:, None] if images.ndim == 3 else images
