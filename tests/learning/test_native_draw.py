"""The compiled drawing of batches: the same orders as numpy's, and numpy's where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
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


def test_without_the_library_or_with_other_draws_numpy_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = Batches(1, [np.arange(5)], 0.2)
    native_draw._draws_as_numpy.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(native, "library", lambda: None)
            assert native_draw.compiled_draw(batches) is None
        native_draw._draws_as_numpy.cache_clear()
        if native.library() is not None:
            with monkeypatch.context() as patch:
                # As if numpy had another way to shuffle.
                other = lambda held, *_: [own[::-1] for own in held]  # noqa: E731
                patch.setattr(native_draw, "draw_orders", other)
                assert native_draw.compiled_draw(batches) is None
    finally:
        native_draw._draws_as_numpy.cache_clear()
