"""The engine's own layers: batch norm per device, and dropout that can be repeated.

`prepare` puts them into any module, so that many devices can share one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camu.errors import InputError


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
