"""The losses as torch's functions: one number per sample, from outputs and targets."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from camu.errors import InputError
from camu.plugins import import_object, is_plugin, user_code

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (n, ...) and targets (n, ...) to losses (n,)


def find_loss(name: str) -> Loss:
    """The loss per sample by its name, or the user's function."""
    return _own_loss(name) if is_plugin(name) else _LOSSES[name]


def _own_loss(path: str) -> Loss:
    what = f"training.loss = {path}"
    function = import_object(path, "training.loss")
    if not callable(function):
        raise InputError(f"{what}: this is not a function")

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        with user_code(what, function, "(outputs, targets)"):
            losses = function(outputs, targets)
        if not isinstance(losses, Tensor) or losses.shape != (len(outputs),):
            found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise InputError(
                f"{what}: for {len(outputs)} samples it returned {found}; return a tensor with one "
                "loss per sample"
            )
        return losses

    return loss


def _cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy; of texts, the mean over the places of each."""
    if labels.dim() == 1:
        return F.cross_entropy(outputs, labels, reduction="none")
    return F.cross_entropy(outputs.transpose(1, 2), labels, reduction="none").mean(1)


def _binary(outputs: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of a coin, whose logarithmic odds are the output."""
    wanted = labels.to(outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs[:, 0], wanted, reduction="none")


def _hinge(outputs: Tensor, labels: Tensor) -> Tensor:
    """The smooth hinge, max(0, 1 - y f)^2 / 2 with y = +-1; one output for two classes."""
    if outputs.shape[1] == 1:
        signs = 2.0 * labels[:, None].to(outputs.dtype) - 1.0
    else:  # each class against all others
        signs = 2.0 * F.one_hot(labels, outputs.shape[1]).to(outputs.dtype) - 1.0
    return torch.relu(1.0 - signs * outputs).square().sum(1) / 2


def _squared(outputs: Tensor, numbers: Tensor) -> Tensor:
    """The mean squared error of a sample's numbers."""
    return (outputs - numbers).square().mean(1)


def _huber(outputs: Tensor, numbers: Tensor) -> Tensor:
    """Squared up to an error of 1, linear beyond, as the mean over a sample's numbers."""
    return F.huber_loss(outputs, numbers, reduction="none").mean(1)


_LOSSES: dict[str, Loss] = {
    "cross-entropy": _cross_entropy,
    "binary": _binary,
    "hinge": _hinge,
    "squared": _squared,
    "huber": _huber,
}
