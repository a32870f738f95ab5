"""A warm start: the weights of an earlier run's model.safetensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file

from camu.config import Config
from camu.errors import InputError
from camu.learning.configured import model_layout
from camu.learning.weights import Weights
from camu.sealed import check_tensors

START = "start"  # in the manifest's sources


@dataclass(frozen=True, eq=False)
class Start:
    """The weights that a run begins with, and their digest."""

    weights: Weights
    sha256: str


def read_start(path: Path, config: Config) -> Start:
    """The model in a file that a run of camu wrote; it must fit the configured model."""
    if not path.is_file():
        raise InputError(f"--start {path}: there is no such file; give a run's model.safetensors")
    check_tensors(path, "give the model.safetensors of a run with --start")
    try:
        weights = Weights.from_tensors(load_file(path), model_layout(config))
    except (SafetensorError, OSError) as error:
        raise InputError(f"--start {path}: cannot be read ({error})") from None
    except InputError as error:
        raise InputError(
            f"--start {path}: does not fit training.model = {config.training.model} on "
            f"data.dataset = {config.data.dataset} ({error})"
        ) from None
    return Start(weights, weights.sha256())
