"""Who opposes the others for long is left out, near-copies count once, and honest ones are kept."""

from __future__ import annotations

import numpy as np
import pytest

from camu.arrays import Float32
from camu.schemes.standing import FEWEST, WATCHED, Standing, agreements
from camu.seeding import derive

SIZE = 400


def honest(count: int, step: int) -> list[Float32]:
    """Updates with a common direction and twice as much of their own."""
    stream = derive(step, "own-update").numpy()
    common = np.ones(SIZE) / np.sqrt(SIZE)
    own = stream.standard_normal((count, SIZE)) * 2 / np.sqrt(SIZE)
    return list((common + own).astype(np.float32))


def judged(bad: int, attack: str, steps: int = 12) -> list[list[float]]:
    """What is used of 20 senders, the first of which are bad, step by step."""
    standing, found = Standing(), []
    for step in range(steps):
        sent = honest(20, step)
        for n in range(bad):
            mean = np.mean(sent[bad:], axis=0)
            sent[n] = {
                "flip": -sent[n],
                "opposite": -mean,
                "same": np.sin(np.arange(SIZE), dtype=np.float32),
                "nan": sent[n] * np.float32(np.nan),
                "none": sent[n],
            }[attack]
        found.append(standing.judge(list(range(20)), sent))
    return found


@pytest.mark.parametrize("attack", ["flip", "opposite"])
@pytest.mark.parametrize("bad", [1, 4])
def test_who_opposes_the_others_for_long_is_left_out_and_nobody_else(attack: str, bad: int) -> None:
    found = np.array(judged(bad, attack))
    assert (found[: WATCHED - 1] > 0).all()  # nobody before enough has been seen
    assert (found[WATCHED - 1 :, :bad] == 0).all()
    assert (found[:, bad:] == 1).all()


def test_who_agrees_again_comes_back() -> None:
    standing, used = Standing(), []
    for step in range(40):
        sent = honest(10, step)
        if step < 8:
            sent[0] = -sent[0]
        used.append(standing.judge(range(10), sent)[0])
    assert used[7] == 0
    assert used[-1] == 1


def test_copies_count_once_together() -> None:
    found = np.array(judged(4, "same"))
    np.testing.assert_allclose(found[:, :4].sum(axis=1), 1.0)
    assert (found[:, 4:] == 1).all()
    one = standing_of_equals()
    assert one == [1.0] * 12  # where all are copies, nobody has more than the others


def standing_of_equals() -> list[float]:
    row = honest(1, 0)[0]
    return Standing().judge(list(range(12)), [row] * 12)


def test_honest_few_or_broken_updates_are_used_as_they_are() -> None:
    assert (np.array(judged(0, "none")) == 1).all()
    standing = Standing()
    few = [-row if n else row for n, row in enumerate(honest(FEWEST - 1, 0))]
    for _ in range(2 * WATCHED):
        assert standing.judge(range(FEWEST - 1), few) == [1.0] * (FEWEST - 1)
    assert np.array(judged(4, "nan"))[:, 4:].min() == 1  # nan is refused elsewhere


def test_agreement_against_plain_loops() -> None:
    rows = np.stack(honest(6, 3)).astype(float)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    voices = np.array([1.0, 1, 0, 1, 1, 1])
    weights = []
    for i in range(6):
        weights.append(voices[i] / sum(max(0.0, float(rows[i] @ rows[j])) ** 2 for j in range(6)))
    for i, found in enumerate(agreements(rows @ rows.T, voices)):
        others = sum(weights[j] * rows[j] for j in range(6) if j != i)
        assert found == pytest.approx(float(rows[i] @ others / np.linalg.norm(others)))
