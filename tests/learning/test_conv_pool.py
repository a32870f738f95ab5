"""The fused convolution and pooling computes what torch's own layers compute."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from camu.learning import conv_pool
from camu.learning.conv_pool import ConvPoolStack
from camu.seeding import derive


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=derive(seed, "own-test").torch())


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
    channels: int, height: int, width: int, kernel: int, samples: int, outputs: int
) -> None:
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


def test_chunks_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = ConvPoolStack((1, 28, 28), (10, 20), 5, 0)
    images = random(101, 1, 28, 28)
    whole = stack(images)
    whole_gradient = torch.autograd.grad(whole.square().sum(), list(stack.parameters()))
    monkeypatch.setattr("camu.learning.conv_pool.CHUNK_SAMPLES", 16)
    parts = stack(images)
    part_gradient = torch.autograd.grad(parts.square().sum(), list(stack.parameters()))
    torch.testing.assert_close(whole, parts)
    for one, two in zip(whole_gradient, part_gradient, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4 * float(two.abs().max()))


def test_two_passes_before_a_backward_do_not_share_memory() -> None:
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


def test_batches_of_many_sizes_share_one_workspace() -> None:
    stack = ConvPoolStack((1, 8, 8), (3, 4), 3, 1)
    for samples in [*range(1, 60), 300, 7, 300]:
        images = random(samples, 1, 8, 8)
        torch.testing.assert_close(stack(images), plain(stack, images), atol=1e-5, rtol=1e-5)
        stack(images).sum().backward()
    # No other memory was ever needed at the same time than that of the largest batch.
    held = sum(len(chunks) for chunks in stack._work._free.values())
    assert held == len(conv_pool._sizes(300))


def test_a_second_backward_through_the_same_pass_is_refused() -> None:
    stack = ConvPoolStack((1, 8, 8), (3,), 3, 1)
    total = stack(random(5, 1, 8, 8)).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward"):
        total.backward()


def test_other_precisions_and_input_gradients_take_torchs_own_layers() -> None:
    stack = ConvPoolStack((1, 8, 8), (3, 4), 3, 1)
    images = random(5, 1, 8, 8).requires_grad_()
    stack(images).sum().backward()
    assert images.grad is not None
    assert stack.double()(images.detach().double()).dtype == torch.float64


@given(st.integers(1, 3000))
def test_chunks_cover_a_batch_in_nearly_equal_parts(samples: int) -> None:
    sizes = conv_pool._sizes(samples)
    assert sum(sizes) == samples
    assert min(sizes) > 0
    assert max(sizes) - min(sizes) < 2 * conv_pool.CHUNK_STEP
    assert max(sizes) <= conv_pool.CHUNK_SAMPLES


def test_compiled_passes_give_the_bits_of_python_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    images = random(101, 1, 28, 28)
    found = []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            stack = ConvPoolStack((1, 28, 28), (10, 20), 5, 0)
        output = stack(images)
        output.square().sum().backward()
        found.append([output, *(p.grad for p in stack.parameters())])
        monkeypatch.setattr("camu.learning.conv_pool.compiled", lambda function: function)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
