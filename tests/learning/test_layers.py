"""The fused layers compute what torch's own layers compute."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from camu.errors import InputError
from camu.learning.layers import SegmentBatchNorm, prepare
from camu.seeding import derive


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=derive(seed, "own-test").torch())


def device_by_device(norm, batch, sizes, shares):
    outputs, means, variances = [], [], []
    for part in batch.split(sizes):
        local = copy.deepcopy(norm)
        outputs.append(local(part))
        means.append(local.running_mean)
        variances.append(local.running_var)
    mean = sum(s * m for s, m in zip(shares, means, strict=True))
    variance = sum(s * v for s, v in zip(shares, variances, strict=True))
    return torch.cat(outputs), mean, variance


@pytest.mark.parametrize("sizes", [[7], [4, 4, 4], [5, 5, 3, 2, 2, 9]])
@pytest.mark.parametrize(("kind", "shape"), [(nn.BatchNorm2d, (3, 4, 4)), (nn.BatchNorm1d, (3,))])
def test_segments_are_normalised_as_separate_batches(
    sizes: list[int], kind: type, shape: tuple[int, ...]
) -> None:
    norm = kind(3)
    norm.weight.data = random(3)
    norm.bias.data = random(3, seed=1)
    shares = [size / sum(sizes) for size in sizes]
    batch = random(sum(sizes), *shape, seed=2)
    expected, mean, variance = device_by_device(norm, batch, sizes, shares)
    layer = SegmentBatchNorm(copy.deepcopy(norm))
    layer.begin()
    layer.divide(sizes, shares)
    found = layer(batch)
    layer.finish()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(layer.running_mean, mean)
    torch.testing.assert_close(layer.running_var, variance)
    # In evaluation it is ordinary batch norm with the running statistics.
    norm.running_mean, norm.running_var = mean, variance
    torch.testing.assert_close(layer.eval()(batch), norm.eval()(batch))


def test_a_device_with_a_single_value_keeps_statistics_finite() -> None:
    layer = SegmentBatchNorm(nn.BatchNorm1d(3))
    layer.divide([1, 4], [0.5, 0.5])
    assert torch.isfinite(layer(random(5, 3))).all()
    layer.finish()
    assert torch.isfinite(layer.running_var).all()


def test_prepare_replaces_norms_wherever_they_are_and_keeps_names() -> None:
    norm = nn.BatchNorm2d(3)
    model = nn.ModuleDict({"a": nn.Sequential(norm, nn.Dropout(0.1)), "b": norm})
    names = [name for name, _ in model.named_parameters()]
    prepared = prepare(copy.deepcopy(model))
    assert [name for name, _ in prepared.named_parameters()] == names
    assert prepared["a"][0] is prepared["b"]
    assert not any(isinstance(layer, nn.BatchNorm2d | nn.Dropout) for layer in prepared.modules())


def test_a_cumulative_batch_norm_is_refused() -> None:
    with pytest.raises(InputError, match="momentum"):
        prepare(nn.Sequential(nn.BatchNorm2d(3, momentum=None)))
