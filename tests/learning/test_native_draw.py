"""Batches and noise drawn by compiled code: as numpy draws them, and by numpy where it cannot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from camu.data.batches import Batches, Schedules, Wanted
from camu.learning import native
from camu.seeding import Stream

needs_library = pytest.mark.skipif(
    native.library() is None, reason="camu was built without compiled kernels"
)


# With few high bits too: numpy leaves words out that are zero.
ENTROPY = st.integers(0, 256).flatmap(lambda bits: st.integers(0, 2**bits - 1))
SIZES = (1, 2, 7, 8, 60, 500)
WANTED = st.builds(
    Wanted,
    members=st.lists(st.integers(0, len(SIZES) - 1), min_size=1, max_size=4),
    updates=st.tuples(st.integers(0, 9), st.integers(1, 4)).map(lambda n: range(n[0], sum(n))),
    steps=st.integers(1, 3),
    epochs=st.booleans(),
    batch=st.sampled_from([None, 0.34, 5, 1000]),
)


@needs_library
@settings(deadline=None)
@given(ENTROPY, st.lists(WANTED, min_size=1, max_size=4))
def test_batches_are_those_that_numpy_draws(entropy: int, units: list[Wanted]) -> None:
    batches = Batches(1, [np.arange(size) * 3 + 5 for size in SIZES], 0.2)
    draw = native.compiled_draw(batches)
    assert draw is not None
    found = draw(Stream(entropy), units)
    expected = batches.draw_by_numpy(Stream(entropy), units)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@needs_library
def test_branches_with_large_numbers_are_numpys() -> None:
    far = range(10**12, 10**12 + 1)  # this pass has a number of two words
    batches = Batches(1, [np.arange(30)], 1.0)
    draw = native.compiled_draw(batches)
    assert draw is not None
    found = draw(Stream(5), [Wanted((0,), far)]).indices
    branch = np.random.SeedSequence(5, spawn_key=(0, 10**12))
    expected = np.random.Generator(np.random.PCG64(branch)).permutation(30)
    assert found.tolist() == expected.tolist()


@needs_library
@settings(deadline=None)
@given(ENTROPY, st.integers(1, 300), st.sampled_from([1.0, 0.3, 1e-9, 0.0]), st.booleans())
@example(7, 1_000_000, 0.3, True)  # with 260 from the tails
@example(8, 21_840, 0.3, False)
def test_noise_is_what_numpy_draws(entropy: int, count: int, scale: float, relative: bool) -> None:
    model, start = np.linspace(-1, 1, 2 * count, dtype=np.float32).reshape(2, count)
    asked = scale, relative, Stream(entropy)
    found, squares = native._compiled_change(model, start, *asked)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    noise = generator.standard_normal(count, dtype=np.float32)
    change = model - start
    size = np.sqrt(np.mean(np.square(change, dtype=np.float64))) if relative else 1.0
    expected = change + np.float32(scale * size) * noise
    assert found.tobytes() == expected.tobytes()
    assert squares == np.square(expected, dtype=np.float64).sum()
    again = native._compiled_change(change, None, *asked)
    assert (again[0].tobytes(), again[1]) == (found.tobytes(), squares)
    with pytest.raises(ValueError, match="did not start from"):
        native._compiled_change(model, np.append(start, start), *asked)
    by_numpy = native._numpy_change(model, start, *asked)
    assert (by_numpy[0].tobytes(), by_numpy[1]) == (found.tobytes(), squares)


NOTHING = Schedules(*(np.zeros(0, dtype=np.int64) for _ in range(4)))


@pytest.fixture
def unchecked() -> Iterator[None]:
    """What was found about numpy's draws is forgotten before and after the test."""
    checks = (native._batches_are_numpys, native._changes_are_numpys)
    for check in checks:
        check.cache_clear()
    yield
    for check in checks:
        check.cache_clear()


@pytest.mark.usefixtures("unchecked")
def test_without_the_library_numpy_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(11)
    monkeypatch.setattr(native, "library", lambda: None)
    assert native.compiled_draw(Batches(1, [np.arange(5)], 0.2)) is None
    expected = stream.numpy().standard_normal(9, dtype=np.float32)
    nothing = np.zeros(9, dtype=np.float32)
    found, _ = native.noisy_change(nothing, nothing, 1.0, False, stream)
    assert np.array_equal(found, expected)


@needs_library
@pytest.mark.usefixtures("unchecked")
def test_where_numpy_draws_in_another_way_numpy_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batches, "draw_by_numpy", lambda self, stream, units: NOTHING)
    assert native.compiled_draw(Batches(1, [np.arange(5)], 0.2)) is None
    ones = np.ones(9, dtype=np.float32)
    monkeypatch.setattr(native, "_numpy_change", lambda *_: (ones, 3.0))
    assert native.noisy_change(ones, ones, 1.0, False, Stream(11)) == (ones, 3.0)
