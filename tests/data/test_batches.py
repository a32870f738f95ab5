"""Every device takes the same batches whatever scheme, unit or worker it trains in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.data.batches import Batches, Wanted, batch_samples
from camu.errors import InputError


@given(st.integers(1, 300), st.floats(0.01, 1) | st.integers(1, 400), st.integers(0, 3))
def test_a_pass_takes_every_sample_once(samples, batch, pass_number):
    held = np.arange(samples) * 3 + 7
    batches = Batches(1, [held], batch)
    chunks = batches.epoch(2, 0, pass_number)
    assert sorted(np.concatenate(chunks)) == list(held)
    assert len(chunks) == batches.per_epoch(0)
    assert {len(chunk) for chunk in chunks[:-1]} <= {batches.size(0)}
    for number, chunk in enumerate(chunks):
        step = pass_number * batches.per_epoch(0) + number
        np.testing.assert_array_equal(batches.step(2, 0, step), chunk)


def test_passes_rounds_devices_and_seeds_differ():
    held = np.arange(50)
    batches = Batches(1, [held, held], 0.2)
    first = batches.step(0, 0, 0)
    others = [
        batches.step(0, 0, 5),
        batches.step(1, 0, 0),
        batches.step(0, 1, 0),
        Batches(2, [held], 0.2).step(0, 0, 0),
    ]
    assert all(not np.array_equal(first, other) for other in others)
    np.testing.assert_array_equal(first, Batches(1, [held], 0.2).step(0, 0, 0))


@pytest.mark.parametrize("epochs", [False, True])
def test_a_units_schedule_goes_by_update_member_and_step(epochs: bool) -> None:
    batches = Batches(3, [np.arange(10), np.arange(20, 27), np.arange(40, 43)], 4)
    together = Wanted((0, 2, 1), range(1, 3), steps=2, epochs=epochs)
    alone = Wanted((1,), range(1, 3), steps=2, epochs=epochs)
    found, other = batches.schedules(5, [together, alone]).apart()
    per_update = {0: 6, 2: 2, 1: 4} if epochs else {0: 2, 2: 2, 1: 2}
    expected = [
        batches.step(5, device, step)
        for update in (1, 2)
        for device, count in per_update.items()
        for step in range(update * count, (update + 1) * count)
    ]
    assert found.steps.tolist() == list(per_update.values())
    assert [own.tolist() for own in found.batches] == [own.tolist() for own in expected]
    count = per_update[1]
    wanted = [batches.step(5, 1, step).tolist() for step in range(count, 3 * count)]
    assert [own.tolist() for own in other.batches] == wanted


@pytest.mark.parametrize(
    ("samples", "batch", "size"),
    [
        (2000, 0.2, 400),
        (60, 0.2, 12),
        (61, 0.2, 13),
        (3, 0.2, 1),
        (50, 1.0, 50),
        (50, 1, 1),
        (50, np.int64(1), 1),
        (50, 64, 50),
        (50, 2, 2),
    ],
)
def test_the_batch_is_a_fraction_or_a_number(samples, batch, size):
    assert batch_samples(batch, samples) == size


@pytest.mark.parametrize("batch", [0, -1, 1.5, 0.0, float("nan"), float("inf")])
def test_what_is_no_batch_size_is_refused(batch):
    with pytest.raises(InputError, match="batch"):
        batch_samples(batch, 10)
