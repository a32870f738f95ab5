"""The models as torch modules: the paper's CNN, a small ResNet, logistic regression, or your own.

A model maps float images ``(n, channels, height, width)`` in [0, 1] to ``(n, classes)`` logits.
``prepare`` puts two layers of camu's into any of them: batch norm per device, so that many devices
can share one pass, and dropout that can be repeated.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camu.config import Config
from camu.data import dataset_spec
from camu.errors import InputError
from camu.learning.cnn import (
    CHANNELS,
    CNN,
    FIRST_CHANNELS,
    HIDDEN,
    ImageShape,
    Normalisation,
    SeededCNN,
    full_shape,
    model_stream,
    sample_shape,
)
from camu.learning.task import task_of
from camu.plugins import import_object, is_plugin, user_code
from camu.seeding import Stream

# Methods of an own model that camu calls, by itself or through torch.
_METHODS = (
    *("forward", "train", "eval", "to", "parameters", "modules", "state_dict"),
    *("named_parameters", "named_buffers", "named_modules"),
)
RESNET_CHANNELS, RESNET_GROUPS = (16, 32, 64), 8


class PaperCNN(nn.Sequential):
    """The paper's CNN as torch's layers; `CNN` describes it."""

    def __init__(
        self, image_shape: ImageShape, classes: int, normalisation: Normalisation = "batch"
    ) -> None:
        cnn = CNN(image_shape, classes, normalisation)
        kernel, padding = cnn.kernel, cnn.padding
        norms = {
            "batch": nn.BatchNorm2d(CHANNELS),
            "group": nn.GroupNorm(4, CHANNELS),  # as many parameters as batch norm
            "none": nn.Identity(),
        }
        super().__init__(
            OrderedDict(
                conv1=nn.Conv2d(image_shape[0], FIRST_CHANNELS, kernel, padding=padding),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(FIRST_CHANNELS, CHANNELS, kernel, padding=padding),
                pool2=nn.MaxPool2d(2),
                norm=norms[normalisation],
                flatten=nn.Flatten(),
                hidden=nn.Linear(cnn.features, HIDDEN),
                relu=nn.ReLU(),
                output=nn.Linear(HIDDEN, classes),
            )
        )
        self.cnn = cnn


class ResNet8(nn.Module):
    """A ResNet of eight layers for colour images: He et al. (2016), with group norm.

    A convolution to 16 channels, three blocks of two 3x3 convolutions with 16, 32 and 64 channels,
    the last two at half the width, the mean over all places, classes. Group norm (Wu and He, 2018)
    has no running statistics, which differ between devices with different data.
    """

    def __init__(self, image_shape: ImageShape, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(image_shape[0], RESNET_CHANNELS[0], 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(RESNET_GROUPS, RESNET_CHANNELS[0])
        before = (RESNET_CHANNELS[0], *RESNET_CHANNELS)
        self.blocks = nn.Sequential(
            *(_Block(*pair) for pair in zip(before, RESNET_CHANNELS, strict=False))
        )
        self.output = nn.Linear(RESNET_CHANNELS[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of float images."""
        features = self.blocks(torch.relu(self.norm(self.stem(images))))
        return cast(Tensor, self.output(features.mean((2, 3))))


class _Block(nn.Module):
    """Two convolutions and a shortcut, which is a 1x1 convolution where the channels change."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        wider = before != after
        stride = 2 if wider else 1
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(RESNET_GROUPS, after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(RESNET_GROUPS, after)
        self.shortcut: nn.Module = nn.Identity()
        if wider:
            narrow = nn.Conv2d(before, after, 1, stride, bias=False)
            self.shortcut = nn.Sequential(narrow, nn.GroupNorm(RESNET_GROUPS, after))

    def forward(self, images: Tensor) -> Tensor:
        """The block's features."""
        inner = torch.relu(self.norm1(self.conv1(images)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(images))


class LogisticRegression(nn.Module):
    """One linear layer on the pixels; with the engine's l2 term the loss is strongly convex."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(math.prod(shape), outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of float images."""
        return cast(Tensor, self.linear(images.flatten(1)))


def build_model(
    name: str,
    shape: tuple[int, ...],
    outputs: int,
    normalisation: str,
    stream: Stream,
    **arguments: Any,
) -> nn.Module:
    """The model ``cnn``, ``resnet8``, ``logistic`` or ``module:Class``, with weights by the stream.

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
        if name == "logistic":
            return LogisticRegression(shape, outputs)
        return _own_model(name, shape, outputs, arguments)


def _own_model(
    name: str, shape: tuple[int, ...], outputs: int, arguments: dict[str, Any]
) -> nn.Module:
    if not is_plugin(name):
        raise InputError(
            f'training.model: {name!r} is unknown; use "cnn", "resnet8", "logistic" or '
            '"module:Class".'
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
    if callable(getattr(model, "loss", None)):
        raise InputError(
            f"training.model = {name}: camu never calls its method loss: it trains with "
            "training.loss, which may be a function of your own; rename or remove the method"
        )
    if not any(weights.requires_grad for weights in model.parameters()):
        raise InputError(f"training.model = {name}: it has no weights that can be trained")
    return model


def seeded_model(config: Config) -> nn.Module:
    """The configured model with the weights that every scheme starts from under its seed."""
    training, spec, task = config.training, dataset_spec(config.data), task_of(config)
    return build_model(
        training.model,
        sample_shape(spec),
        task.outputs,
        training.normalisation,
        model_stream(config),
        **task.model_arguments(),
    )


def as_module(model: nn.Module | SeededCNN) -> nn.Module:
    """The module of a model that may be given by its description."""
    if isinstance(model, nn.Module):
        return model
    cnn = model.cnn
    return build_model("cnn", cnn.image_shape, cnn.classes, cnn.normalisation, model.stream)


class SegmentBatchNorm(nn.Module):
    """Batch norm whose training batch is a sequence of devices, each normalised by its own samples.

    It takes over an ``nn.BatchNorm*d`` with its parameters and buffers. ``divide`` says how many
    samples each device has in the next pass and what weight its statistics get. The statistics of
    all passes since ``begin`` enter the running ones at ``finish``, once, as if each device had
    updated its own and the results had been averaged.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.eps, self.momentum = norm.eps, norm.momentum
        self.track = norm.running_mean is not None
        if self.track:
            self.register_buffer("running_mean", norm.running_mean)
            self.register_buffer("running_var", norm.running_var)
        self.channels = norm.num_features
        self._sizes: Sequence[int] = ()
        self._shares: Sequence[float] = ()
        self._seen: list[tuple[Tensor, Tensor]] = []
        self._call = 0

    def begin(self) -> None:
        """Forget the statistics of unfinished passes."""
        self._seen = []

    def divide(self, sizes: Sequence[int], shares: Sequence[float]) -> None:
        """Say which devices, in order, the next pass consists of."""
        self._sizes, self._shares, self._call = sizes, shares, 0

    def finish(self) -> None:
        """Move the running statistics by what was seen since ``begin``."""
        assert self.momentum is not None
        # A layer that a model calls several times is moved as often. The shares of all devices of
        # a step sum to one, so the old value keeps 1 - momentum each time.
        for mean, variance in self._seen:
            self.running_mean.mul_(1 - self.momentum).add_(mean, alpha=self.momentum)
            self.running_var.mul_(1 - self.momentum).add_(variance, alpha=self.momentum)
        self.begin()

    def forward(self, batch: Tensor) -> Tensor:
        """The batch, normalised per device in training, by running statistics in evaluation."""
        if not self.training and self.track:
            return F.batch_norm(
                batch, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        # A model may cut each sample into several rows before it normalises them.
        rows, rest = divmod(len(batch), max(1, sum(self._sizes)))
        if rest or not rows:
            raise ValueError(f"batch norm got {len(batch)} rows for {sum(self._sizes)} samples")
        sizes, shares = [size * rows for size in self._sizes], self._shares
        outputs, start, row = [], 0, 0
        # Devices with equally many samples share one call, in which (device, channel) is a channel.
        for size, equal in groupby(sizes):
            devices = len(list(equal))
            part = batch[row : row + size * devices]
            outputs.append(self._normalise(part, devices, shares[start : start + devices]))
            start, row = start + devices, row + size * devices
        self._call += 1
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _normalise(self, part: Tensor, devices: int, shares: Sequence[float]) -> Tensor:
        size = len(part) // devices
        shape = part.shape[1:]
        folded = part.view(devices, size, *shape).transpose(0, 1) if devices > 1 else part
        # Contiguous, because torch 2.13 gives wrong gradients for one sample in channels-last.
        folded = folded.reshape(size, devices * self.channels, *shape[1:]).contiguous()
        mean = torch.zeros(devices * self.channels, device=part.device, dtype=part.dtype)
        variance = torch.zeros_like(mean)
        weight, bias = (
            given if given is None or devices == 1 else given.repeat(devices)
            for given in (self.weight, self.bias)
        )
        # With momentum 1 the "running" statistics are those of this batch.
        result = torch.batch_norm(
            folded, weight, bias, mean, variance, True, 1.0, self.eps, torch.backends.cudnn.enabled
        )
        values = folded.numel() // (devices * self.channels)
        if self.training and self.track:
            self._collect(mean, variance if values > 1 else torch.zeros_like(mean), shares)
        if devices > 1:
            result = result.view(size, devices, *shape).transpose(0, 1).reshape(part.shape)
        return result

    def _collect(self, mean: Tensor, variance: Tensor, shares: Sequence[float]) -> None:
        factors = torch.tensor(shares, dtype=mean.dtype, device=mean.device)
        mean = factors @ mean.view(len(shares), -1)
        variance = factors @ variance.view(len(shares), -1)
        if self._call == len(self._seen):
            self._seen.append((mean, variance))
        else:
            earlier = self._seen[self._call]
            self._seen[self._call] = (earlier[0] + mean, earlier[1] + variance)


class SeededDropout(nn.Module):
    """Dropout that draws from a generator the engine derives, never from torch's global one."""

    def __init__(self, dropout: nn.modules.dropout._DropoutNd) -> None:
        super().__init__()
        self.probability = dropout.p
        # Dropout1d, 2d and 3d drop whole channels.
        self.by_channel = not isinstance(dropout, nn.Dropout)
        self.generator: torch.Generator | None = None

    def forward(self, batch: Tensor) -> Tensor:
        """The batch with a part of its values set to zero in training."""
        if not self.training or self.probability == 0:
            return batch
        if self.probability >= 1:
            return batch * 0
        shape = batch.shape[:2] + (1,) * (batch.dim() - 2) if self.by_channel else batch.shape
        keep = torch.empty(shape, dtype=batch.dtype, device=batch.device)
        keep.bernoulli_(1 - self.probability, generator=self.generator)
        return batch * keep / (1 - self.probability)


def prepare(module: nn.Module) -> nn.Module:
    """Put the engine's layers in the place of every batch norm and dropout of a module."""
    replaced: dict[int, nn.Module] = {}  # a layer used in two places stays one layer
    for parent in list(module.modules()):
        for name, child in parent._modules.items():
            if child is not None:
                if id(child) not in replaced:
                    replaced[id(child)] = _replacement(child)
                parent._modules[name] = replaced[id(child)]
    return module


def _replacement(layer: nn.Module) -> nn.Module:
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
        if layer.momentum is None:
            raise InputError(
                "model: a batch norm with momentum=None (a cumulative average) cannot be averaged "
                "over devices; give it a momentum, for example 0.1."
            )
        return SegmentBatchNorm(layer)
    if type(layer) in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
        return SeededDropout(cast(nn.modules.dropout._DropoutNd, layer))
    return layer
