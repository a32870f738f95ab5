"""The fused layers compute what torch's own layers compute."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from camu.errors import InputError
from camu.learning.layers import ConvPoolStack, SegmentBatchNorm, prepare
from camu.seeding import derive


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=derive(seed, "test").torch())


def plain(stack: ConvPoolStack, images: torch.Tensor) -> torch.Tensor:
    for convolution in stack.convolutions:
        images = F.max_pool2d(convolution(images), 2)
    return images


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(11, 20),
    st.integers(11, 20),
    st.sampled_from([(1, 0), (3, 0), (3, 1), (5, 2)]),
    st.integers(1, 40),
    st.lists(st.integers(1, 6), min_size=1, max_size=2),
)
def test_the_stack_equals_convolutions_and_pooling(
    channels, height, width, kernel, samples, outputs
):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        stack = ConvPoolStack((channels, height, width), outputs, *kernel)
    images = random(samples, channels, height, width)
    images[:, :, :3] = 0  # flat places, where all four candidates of a cell tie
    found, expected = stack(images), plain(stack, images)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    slope = random(*found.shape, seed=1)
    fused = torch.autograd.grad((found * slope).sum(), list(stack.parameters()))
    separate = torch.autograd.grad((expected * slope).sum(), list(stack.parameters()))
    for one, two in zip(fused, separate, strict=True):
        torch.testing.assert_close(one, two, atol=1e-4 * float(two.abs().max() + 1), rtol=0)


def test_chunks_leave_no_trace(monkeypatch):
    stack = ConvPoolStack((1, 28, 28), (10, 20), 5, 0)
    images = random(101, 1, 28, 28)
    whole = stack(images)
    whole_gradient = torch.autograd.grad(whole.square().sum(), list(stack.parameters()))
    monkeypatch.setattr("camu.learning.layers.CHUNK_SAMPLES", 16)
    parts = stack(images)
    part_gradient = torch.autograd.grad(parts.square().sum(), list(stack.parameters()))
    torch.testing.assert_close(whole, parts)
    for one, two in zip(whole_gradient, part_gradient, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4 * float(two.abs().max()))


def test_two_passes_before_a_backward_do_not_share_memory():
    stack = ConvPoolStack((1, 8, 8), (3, 4), 3, 1)
    first, second = random(5, 1, 8, 8), random(5, 1, 8, 8, seed=1)
    pending = stack(first)
    stack(second).sum().backward()
    stack.zero_grad()
    pending.square().sum().backward()
    found = [p.grad.clone() for p in stack.parameters()]
    expected = torch.autograd.grad(plain(stack, first).square().sum(), list(stack.parameters()))
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_batches_of_many_sizes_share_one_workspace():
    stack = ConvPoolStack((1, 8, 8), (3, 4), 3, 1)
    for samples in [*range(1, 60), 300, 7, 300]:
        images = random(samples, 1, 8, 8)
        torch.testing.assert_close(stack(images), plain(stack, images), atol=1e-5, rtol=1e-5)
        stack(images).sum().backward()
    # 300 samples are two chunks; no other memory was ever needed at the same time.
    assert sum(len(chunks) for chunks in stack._work._free.values()) == 2


def test_a_second_backward_through_the_same_pass_is_refused():
    stack = ConvPoolStack((1, 8, 8), (3,), 3, 1)
    total = stack(random(5, 1, 8, 8)).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward"):
        total.backward()


def test_other_precisions_and_input_gradients_take_torchs_own_layers():
    stack = ConvPoolStack((1, 8, 8), (3, 4), 3, 1)
    images = random(5, 1, 8, 8).requires_grad_()
    stack(images).sum().backward()
    assert images.grad is not None
    assert stack.double()(images.detach().double()).dtype == torch.float64


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
def test_segments_are_normalised_as_separate_batches(sizes, kind, shape):
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


def test_a_device_with_a_single_value_keeps_statistics_finite():
    layer = SegmentBatchNorm(nn.BatchNorm1d(3))
    layer.divide([1, 4], [0.5, 0.5])
    assert torch.isfinite(layer(random(5, 3))).all()
    layer.finish()
    assert torch.isfinite(layer.running_var).all()


def test_prepare_replaces_norms_wherever_they_are_and_keeps_names():
    norm = nn.BatchNorm2d(3)
    model = nn.ModuleDict({"a": nn.Sequential(norm, nn.Dropout(0.1)), "b": norm})
    names = [name for name, _ in model.named_parameters()]
    prepared = prepare(copy.deepcopy(model))
    assert [name for name, _ in prepared.named_parameters()] == names
    assert prepared["a"][0] is prepared["b"]
    assert not any(isinstance(layer, nn.BatchNorm2d | nn.Dropout) for layer in prepared.modules())


def test_a_cumulative_batch_norm_is_refused():
    with pytest.raises(InputError, match="momentum"):
        prepare(nn.Sequential(nn.BatchNorm2d(3, momentum=None)))
