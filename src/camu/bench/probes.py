"""Small networks that are timed to learn what operations cost here; nobody trains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import cast

from torch import Tensor, nn

SIDE = 28  # all are for MNIST's images
Make = Callable[[tuple[int, ...], int], nn.Module]


class _Shaped(nn.Module):
    """Layers on images that are taken as sequences; the last place of each decides."""

    def __init__(self, layer: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.output = layer, nn.Linear(width, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Outputs of float images."""
        rows = images.flatten(1, -2)
        found = (
            self.layer(rows, rows, rows, need_weights=False)
            if isinstance(self.layer, nn.MultiheadAttention)
            else self.layer(rows)
        )
        return cast(Tensor, self.output(found[0][:, -1]))


def _dense(
    shape: tuple[int, ...], outputs: int, *, units: Sequence[int], last: type[nn.Module] = nn.ReLU
) -> nn.Module:
    sizes = [SIDE**2, *units]
    layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), last())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], outputs))


def _convolving(
    shape: tuple[int, ...],
    outputs: int,
    *,
    channels: Sequence[int],
    kernel: int,
    stride: int = 1,
    alone: bool = False,
    after: Callable[[int], nn.Module] = lambda count: nn.ReLU(),
) -> nn.Module:
    """Convolutions, all but the first of each channel alone if so asked."""
    layers: list[nn.Module] = []
    for number, (before, now) in enumerate(pairwise((shape[0], *channels))):
        groups = before if alone and number else 1
        layers += [nn.Conv2d(before, now, kernel, stride, kernel // 2, groups=groups), after(now)]
    mean = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, mean, nn.Flatten(), nn.Linear(channels[-1], outputs))


def _recurrent(shape: tuple[int, ...], outputs: int, *, kind: str, states: int) -> nn.Module:
    layer = {"rnn": nn.RNN, "gru": nn.GRU}[kind](SIDE, states, batch_first=True)
    return _Shaped(layer, states, outputs)


def _attending(shape: tuple[int, ...], outputs: int, *, heads: int) -> nn.Module:
    return _Shaped(nn.MultiheadAttention(SIDE, heads, batch_first=True), SIDE, outputs)


def _normed(count: int) -> nn.Module:
    return nn.Sequential(nn.GroupNorm(4, count), nn.GELU(), nn.Tanh())


def _pooled(count: int) -> nn.Module:
    return nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))


dense_small: Make = partial(_dense, units=(64,))
dense_wide: Make = partial(_dense, units=(1024,))
dense_deep: Make = partial(_dense, units=(128,) * 6, last=nn.Tanh)
few_channels: Make = partial(_convolving, channels=(8, 8, 8), kernel=3)
many_channels: Make = partial(_convolving, channels=(48, 48), kernel=3)
large_kernels: Make = partial(_convolving, channels=(24, 48), kernel=5, stride=2)
strided: Make = partial(_convolving, channels=(32, 64, 96), kernel=3, stride=2)
pooled: Make = partial(_convolving, channels=(12, 24), kernel=3, after=_pooled)
pooled_wide: Make = partial(_convolving, channels=(16, 48), kernel=5, after=_pooled)
normed: Make = partial(_convolving, channels=(12, 24), kernel=3, after=_normed)
depthwise: Make = partial(_convolving, channels=(24, 24, 24), kernel=3, alone=True)
depthwise_large: Make = partial(_convolving, channels=(48, 48), kernel=5, alone=True)
rows: Make = partial(_recurrent, kind="rnn", states=48)
gated_rows: Make = partial(_recurrent, kind="gru", states=24)
attending: Make = partial(_attending, heads=4)
PROBES = (
    *("dense_small", "dense_wide", "dense_deep", "few_channels", "many_channels"),
    *("large_kernels", "strided", "pooled", "pooled_wide", "normed", "depthwise"),
    *("depthwise_large", "rows", "gated_rows", "attending"),
)
