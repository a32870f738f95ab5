"""Batches and noise drawn by compiled code: as numpy draws them, and by numpy where it cannot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from camu.data.batches import Batches, draw_orders
from camu.learning import native, native_draw
from camu.seeding import Stream

needs_library = pytest.mark.skipif(
    native.library() is None, reason="camu was built without compiled kernels"
)


@needs_library
@settings(deadline=None)
@given(
    st.integers(0, 2**64),
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 10**9)), min_size=1, max_size=9),
)
def test_orders_are_those_that_numpy_draws(
    seed: int, round_number: int, asked: list[tuple[int, int]]
) -> None:
    held = [np.arange(size) * 3 + 5 for size in (1, 2, 7, 8, 60, 500, 3000)]
    draw = native_draw.compiled_draw(Batches(seed, held, 0.2))
    assert draw is not None
    devices, passes = zip(*asked, strict=True)
    found = draw(seed, round_number, devices, passes)
    expected = draw_orders(held, seed, round_number, devices, passes)
    assert [own.tolist() for own in found] == [own.tolist() for own in expected]


@needs_library
@pytest.mark.parametrize("entropy", [0, 1, 2**32, 2**128 - 1, 2**224 - 1, 2**256 - 1])
def test_numbers_with_zeros_are_taken_as_numpy_takes_them(
    entropy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [np.arange(30)]
    draw = native_draw.compiled_draw(Batches(1, held, 0.2))
    assert draw is not None
    monkeypatch.setattr(native_draw, "order_streams", lambda *_: [Stream(entropy)])
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    assert np.array_equal(draw(1, 0, [0], [0])[0], expected.permutation(held[0]))


@needs_library
@settings(deadline=None)
@given(st.integers(0, 2**256 - 1), st.integers(0, 300))
@example(7, 1_000_000)  # with 260 from the tails
def test_normal_numbers_are_those_that_numpy_draws(entropy: int, count: int) -> None:
    found = native_draw._compiled_normal(Stream(entropy), count)
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    assert found.tobytes() == expected.standard_normal(count, dtype=np.float32).tobytes()


@pytest.fixture
def unchecked() -> Iterator[None]:
    """What was found about numpy's draws is forgotten before and after the test."""
    checks = (native_draw._orders_are_numpys, native_draw._normals_are_numpys)
    for check in checks:
        check.cache_clear()
    yield
    for check in checks:
        check.cache_clear()


@pytest.mark.usefixtures("unchecked")
def test_without_the_library_numpy_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(11)
    monkeypatch.setattr(native, "library", lambda: None)
    assert native_draw.compiled_draw(Batches(1, [np.arange(5)], 0.2)) is None
    expected = stream.numpy().standard_normal(9, dtype=np.float32)
    assert np.array_equal(native_draw.standard_normal(stream, 9), expected)


@needs_library
@pytest.mark.usefixtures("unchecked")
def test_where_numpy_draws_in_another_way_numpy_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_draw, "draw_orders", lambda held, *_: [own[::-1] for own in held])
    assert native_draw.compiled_draw(Batches(1, [np.arange(5)], 0.2)) is None
    other = np.zeros(9, dtype=np.float32)
    monkeypatch.setattr(native_draw, "_numpy_normal", lambda *_: other)
    assert native_draw.standard_normal(Stream(11), 9) is other
