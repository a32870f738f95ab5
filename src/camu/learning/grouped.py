"""Layers of many models at once: one layer whose channels are those of all models side by side.

`vmap` alone takes group norm and batch norm apart into several passes over memory, and adds the
bias of a convolution by another one. A layer with as many groups of channels is one call of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

# Outputs of a layer for so many models, whose tensors have the channels of all of them, one after
# another: of a batch, a weight and a bias.
Layer = Callable[[int, Tensor, Tensor | None, Tensor | None], Sequence[Tensor]]
_RECURRENT = ("gru", "lstm", "rnn_tanh", "rnn_relu")
_aten: Any = torch.ops.aten
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class _Grouped(Function):
    """A layer of one model, which `vmap` turns into that of all of them."""

    @staticmethod
    def forward(layer: Layer, *given: Any) -> tuple[Tensor, ...]:
        return tuple(layer(1, *given))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass  # gradients are those of torch's operations below

    @staticmethod
    def vmap(info: Any, in_dims: Any, layer: Layer, *given: Any) -> Any:
        models = info.batch_size
        beside = [
            _beside(own, batched, models, place)
            for own, batched, place in zip(given, in_dims[1:], (1, 0, 0), strict=True)
        ]
        found = layer(models, *cast(Any, beside))
        # Channels are the second index of a batch, and the only one of its statistics.
        places = [min(1, own.dim() - 1) for own in found]
        apart = [
            own.unflatten(place, (models, own.shape[place] // models))  # type: ignore[no-untyped-call]
            for own, place in zip(found, places, strict=True)
        ]
        return tuple(apart), tuple(places)


def _beside(tensor: Tensor | None, batched: int | None, models: int, place: int) -> Tensor | None:
    """The tensors of all models as one, with their channels one after another."""
    if tensor is None:
        return None
    if batched is None:
        tensor, batched = tensor.unsqueeze(0).expand(models, *tensor.shape), 0
    return tensor.movedim(batched, place).flatten(place, place + 1)


def batch_norm(
    inputs: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A batch normalised by its own samples, their mean, and 1 / sqrt(variance + eps)."""

    def normalised(_: int, *given: Any) -> Sequence[Tensor]:
        batch, its_weight, its_bias = given
        return torch.native_batch_norm(batch, its_weight, its_bias, None, None, True, 0.0, eps)

    found = _Grouped.apply(normalised, inputs, weight, bias)  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, Tensor, Tensor], found)


def grouped_forward(layer: nn.Module) -> Callable[..., Any] | None:
    """What a layer computes, by one call for many models; None: vmap does it as well."""
    if type(layer) in _CONVOLUTIONS:
        own = cast(nn.Conv2d, layer)
        plain = own.padding_mode == "zeros" and not isinstance(own.padding, str)
        return partial(_convolve, own) if plain else None
    if isinstance(layer, nn.RNNBase):
        return partial(_recur, layer.forward)
    if type(layer) is nn.Linear:
        return partial(_multiply, layer)
    return partial(_group_norm, layer) if type(layer) is nn.GroupNorm else None


def _multiply(layer: nn.Linear, inputs: Tensor) -> Tensor:
    """The layer by the product that gives weights a gradient of their own order in memory.

    Steps along the gradient of torch's way, which is transposed, take many times as long.
    """
    if inputs.dim() < 2:  # one sample without a batch
        return nn.Linear.forward(layer, inputs)
    found = layer.weight @ inputs.flatten(0, -2).T
    if layer.bias is not None:
        found = found + layer.bias[:, None]
    return cast(Tensor, found.T.unflatten(0, inputs.shape[:-1]))  # type: ignore[no-untyped-call]


def _convolve(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    sizes = len(layer.stride)
    if inputs.dim() != sizes + 2:  # one sample without a batch
        return type(layer).forward(layer, inputs)

    def convolved(models: int, *given: Any) -> Sequence[Tensor]:
        batch, weight, bias = given
        how: Any = (layer.stride, layer.padding, layer.dilation, False, (0,) * sizes)
        return (_aten.convolution(batch, weight, bias, *how, layer.groups * models),)

    found = _Grouped.apply(convolved, inputs, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
    return cast(Tensor, found[0])


def _group_norm(layer: nn.GroupNorm, inputs: Tensor) -> Tensor:
    def normalised(models: int, *given: Any) -> Sequence[Tensor]:
        batch, weight, bias = given
        return (F.group_norm(batch, layer.num_groups * models, weight, bias, layer.eps),)

    found = _Grouped.apply(normalised, inputs, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
    return cast(Tensor, found[0])


def _recur(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    with _Decomposed():
        return forward(*inputs, **named)


class _Decomposed(TorchFunctionMode):
    """Recurrent layers by the operations that they consist of, which `vmap` knows."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in _RECURRENT:
            whole = isinstance(args[2], list | tuple)  # not a packed sequence
            kinds = getattr(_aten, func.__name__)
            return (kinds.input if whole else kinds.data).decompose(*args)
        return func(*args, **(kwargs or {}))
