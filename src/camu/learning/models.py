"""Models with their first weights: a built-in one by its name, or the user's own module.

A model maps float images ``(n, channels, height, width)`` in [0, 1], floats ``(n, ...)`` as they
are, or tokens ``(n, length)`` to ``(n, outputs)``, for the next token to ``(n, length, outputs)``.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from camu.config import Config
from camu.data import DatasetSpec, dataset_spec
from camu.errors import InputError
from camu.learning.catalog import MODELS
from camu.learning.cnn import Normalisation, SeededCNN, full_shape, model_stream, sample_shape
from camu.learning.networks import GRU, MLP, CNN1d, Linear, PaperCNN, ResNet8
from camu.learning.task import task_of
from camu.plugins import import_object, is_plugin, user_code
from camu.seeding import Stream

# Methods of an own model that camu calls, by itself or through torch.
_METHODS = (
    *("forward", "train", "eval", "to", "parameters", "modules", "state_dict"),
    *("named_parameters", "named_buffers", "named_modules"),
)
# Methods that other programs call; each with the keys by which camu does the same.
_IGNORED = {
    "loss": "training.loss, which may be a function of your own",
    "training_step": "training.loss, which may be a function of your own",
    "configure_optimizers": "training.optimiser, momentum and the keys beside them",
}
_OF_SHAPE = {"logistic": Linear, "linear": Linear, "svm": Linear, "mlp": MLP, "cnn1d": CNN1d}


def build_model(
    name: str,
    shape: tuple[int, ...],
    outputs: int,
    normalisation: str,
    stream: Stream,
    **arguments: Any,
) -> nn.Module:
    """A built-in model by its name, or ``module:Class``, with weights by the stream.

    ``shape`` is that of one sample. A user's class is constructed as ``Class(shape, outputs)``, and
    for tokens with ``vocabulary=...`` too; the current directory is searched as well.
    """
    # torch initialises from its global generator: lend it our seed, then give it back untouched.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream.torch_seed)
        if name == "cnn":
            return PaperCNN(full_shape(shape), outputs, cast(Normalisation, normalisation))
        if name == "resnet8":
            return ResNet8(full_shape(shape), outputs)
        if name == "gru":
            return GRU(shape, outputs, **arguments)
        if name in _OF_SHAPE:
            return _OF_SHAPE[name](shape, outputs)
        return _own_model(name, shape, outputs, arguments)


def _own_model(
    name: str, shape: tuple[int, ...], outputs: int, arguments: dict[str, Any]
) -> nn.Module:
    if not is_plugin(name):
        raise InputError(
            f"training.model: {name!r} is unknown; use {', '.join(MODELS)} or module:Class"
        )
    kind = import_object(name, "training.model")
    if not callable(kind):
        raise InputError(f"training.model = {name}: this is not a class")
    called = ", ".join(("self", "shape", "outputs", *arguments))
    with user_code(f"training.model = {name}", kind, f"({called})"):
        model = kind(shape, outputs, **arguments)
    if not isinstance(model, nn.Module):
        raise InputError(f"training.model = {name}: this is not a torch.nn.Module")
    if not hasattr(model, "_parameters"):
        raise InputError(
            f"training.model = {name}: its __init__ must call super().__init__() first"
        )
    for method in _METHODS:
        if not callable(getattr(model, method)):
            raise InputError(
                f"training.model = {name}: its attribute {method} hides torch's method; rename it"
            )
    for method, keys in _IGNORED.items():
        if callable(getattr(model, method, None)):
            raise InputError(
                f"training.model = {name}: camu never calls its method {method}: it trains with "
                f"{keys}; rename or remove the method"
            )
    if not any(weights.requires_grad for weights in model.parameters()):
        raise InputError(f"training.model = {name}: it has no weights that can be trained")
    return model


def seeded_model(config: Config) -> nn.Module:
    """The configured model with the weights that every scheme starts from under its seed."""
    training, spec, task = config.training, dataset_spec(config.data), task_of(config)
    arguments = task.model_arguments()
    if training.model == "gru":
        arguments["everywhere"] = task.target == "next-token"
    return build_model(
        training.model,
        sample_shape(spec),
        task.outputs,
        training.normalisation,
        model_stream(config),
        **arguments,
    )


def made_up_inputs(spec: DatasetSpec, samples: int) -> torch.Tensor:
    """Inputs of the shape and type that a model gets, all zero."""
    kind = torch.int64 if spec.inputs == "tokens" else torch.float32
    return torch.zeros((samples, *sample_shape(spec)), dtype=kind)


def one_tensor(outputs: object) -> torch.Tensor:
    """The outputs of a model; anything but a tensor is refused."""
    if not isinstance(outputs, torch.Tensor):
        raise InputError(
            f"training.model: its forward returns {type(outputs).__name__}; return a tensor of "
            "outputs"
        )
    return outputs


def as_module(model: nn.Module | SeededCNN) -> nn.Module:
    """The module of a model that may be given by its description."""
    if isinstance(model, nn.Module):
        return model
    cnn = model.cnn
    return build_model("cnn", cnn.image_shape, cnn.classes, cnn.normalisation, model.stream)
