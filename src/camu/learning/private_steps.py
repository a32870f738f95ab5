"""Differential privacy at the device: clipped vectors, and normal noise from the seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from camu.learning.kernel import DeviceBatch
from camu.learning.method import Method
from camu.seeding import Stream

MARGIN = 1e-6  # keeps a clipped norm below its bound in single precision


def clip(vector: Tensor, limit: float) -> Tensor:
    """The vector, made shorter where its norm is above the limit."""
    norm = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    return vector.mul_(min(1.0, limit / (norm + MARGIN)))


def add_noise(vector: Tensor, method: Method, stream: Stream) -> Tensor:
    """Noise of the standard deviation `dp_noise` times `dp_clip` on every number."""
    draws = stream.numpy().standard_normal(len(vector), dtype=np.float32)
    noise = torch.from_numpy(draws).to(vector.device)
    return vector.add_(noise, alpha=method.dp_noise * method.dp_clip)


def private_gradient(
    part: DeviceBatch,
    gradient: Tensor,
    loss_of: Callable[[DeviceBatch], Tensor],
    method: Method,
    stream: Stream,
) -> float:
    """Set the gradient to the mean of the samples' clipped ones with noise; returns the mean loss.

    `loss_of` gives the loss of a batch, whose gradient goes where `gradient` is.
    """
    total, value = torch.zeros_like(gradient), 0.0
    for index in part.indices:
        gradient.zero_()
        loss = loss_of(DeviceBatch(part.device, np.array([index]), 1.0))
        loss.backward()  # type: ignore[no-untyped-call]
        total.add_(clip(gradient, method.dp_clip))
        value += float(loss.detach())
    count = len(part.indices)
    gradient.copy_(add_noise(total, method, stream).div_(count))
    return value / count
