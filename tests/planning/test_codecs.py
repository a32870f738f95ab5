"""Codecs: what arrives, how many bits it takes, what the sender keeps."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.errors import InputError
from camu.planning.codecs import (
    Changes,
    Part,
    Quantised,
    Raw,
    Sparse,
    codec_from_dict,
    codec_to_dict,
)
from camu.schemes import FedAvg
from camu.seeding import Stream, derive


def vector(size: int, number: int = 0) -> np.ndarray:
    generator = derive(0, "own-codec-test", number).numpy()
    return (generator.standard_normal(size) * 10.0 ** generator.uniform(-3, 1, size)).astype("f4")


def stream(number: int) -> Stream:
    return derive(7, "own-rounding", number)


def test_payloads_in_bits() -> None:
    assert Raw().bits(1000) == 32_000
    assert Raw(copies=2).bits(1000) == 64_000
    assert Quantised(1).bits(1000) == 32 + 1000 * 2  # a sign and a bit per entry
    assert Quantised(5).bits(1000) == 32 + 1000 * (1 + 3)
    assert Quantised(7).bits(1000) == 32 + 1000 * (1 + 3)
    assert Quantised(8).bits(1000) == 32 + 1000 * (1 + 4)
    assert Sparse(0.1).bits(1000) == 100 * (32 + 10)
    assert Sparse(1e-9).bits(1000) == 32 + 10  # at least one entry
    assert Sparse(1.0).bits(1024) == 1024 * (32 + 10)


def test_raw_changes_nothing() -> None:
    update = vector(50)
    sent, kept = Raw(2).encode(update, None, stream(0))
    assert np.array_equal(sent, update)
    assert kept is None


@pytest.mark.parametrize("levels", [1, 3, 10])
def test_quantised_updates_are_unbiased_and_within_the_variance_bound(levels: int) -> None:
    """E Q(z) = z and E ||Q(z) - z||^2 <= min(p / s^2, sqrt(p) / s) ||z||^2."""
    p, draws = 40, 4000
    z = vector(p).astype(np.float64)
    codec = Quantised(levels)
    sent = np.array([codec.encode(z.astype("f4"), None, stream(n))[0] for n in range(draws)])
    norm = float(np.linalg.norm(z))
    # Each entry is one of two neighbouring levels, so that its deviation is at most half a level.
    tolerance = 6 * (norm / levels / 2) / math.sqrt(draws)
    assert np.abs(sent.mean(axis=0) - z).max() < tolerance
    squares = np.square(sent - z).sum(axis=1)
    bound = min(p / levels**2, math.sqrt(p) / levels) * norm**2
    assert squares.mean() + 3 * squares.std() / math.sqrt(draws) < bound
    # The exact variance: the distances to the two levels, multiplied.
    exact = np.abs(z) * levels / norm
    variance = ((exact - np.floor(exact)) * (np.ceil(exact) - exact)).sum() * (norm / levels) ** 2
    assert squares.mean() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("levels", [1, 4])
def test_only_whole_levels_of_the_norm_are_sent(levels: int) -> None:
    z = vector(300)
    norm = math.sqrt(float(np.square(z, dtype=np.float64).sum()))
    sent, kept = Quantised(levels).encode(z, None, stream(1))
    assert kept is None
    steps = np.abs(sent.astype(np.float64)) / norm * levels
    assert steps == pytest.approx(np.rint(steps), abs=1e-5)
    assert (np.sign(sent) == np.sign(z))[sent != 0].all()
    if levels == 1:
        assert set(np.abs(sent)) <= {np.float32(0), np.float32(norm)}


def test_a_zero_update_stays_zero() -> None:
    for codec in (Quantised(2), Sparse(0.5)):
        sent, _ = codec.encode(np.zeros(9, np.float32), None, stream(0))
        assert not sent.any()


def test_rounding_follows_the_stream() -> None:
    z = vector(100)
    first, again, other = (Quantised(2).encode(z, None, stream(n))[0] for n in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@given(st.integers(1, 60), st.floats(0.001, 1.0), st.integers(0, 10**6))
def test_what_is_not_sent_is_kept(size: int, share: float, number: int) -> None:
    """sent + memory == update + old memory, bit for bit, over several rounds."""
    codec = Sparse(share)
    memory = None
    for turn in range(4):
        update = vector(size, number + turn)
        before = update if memory is None else update + memory
        sent, memory = codec.encode(update, memory, stream(turn))
        assert memory is not None
        assert np.array_equal(sent + memory, before)
        chosen = np.flatnonzero(sent)
        count = min(size, max(1, round(share * size)))
        assert len(chosen) <= count
        assert ((sent == 0) | (memory == 0)).all()
        if memory.any():
            assert len(chosen) == count
            assert np.abs(sent[chosen]).min() >= np.abs(memory).max()


def test_share_one_sends_everything_and_keeps_nothing() -> None:
    memory = None
    for turn in range(3):
        update = vector(30, turn)
        sent, memory = Sparse(1.0).encode(update, memory, stream(turn))
        assert np.array_equal(sent, update)
        assert memory is not None
        assert not memory.any()


def test_equal_entries_are_chosen_by_their_index() -> None:
    sent, _ = Sparse(0.5).encode(np.ones(6, np.float32), None, stream(0))
    assert sent.tolist() == [1, 1, 1, 0, 0, 0]


@dataclasses.dataclass(frozen=True)
class Signs:
    """A codec of one's own: the signs, times the mean size of an entry."""

    factor: float = 1.0

    def bits(self, parameters: int) -> int:
        return 32 + parameters

    def encode(
        self, update: np.ndarray, memory: np.ndarray | None, stream: Stream
    ) -> tuple[np.ndarray, None]:
        return (np.sign(update) * self.factor * np.abs(update).mean()).astype(np.float32), None


@pytest.mark.parametrize(
    "codec", [Raw(), Raw(2), Quantised(4), Sparse(0.25), Changes(0.25), Part(7), Signs(0.5)]
)
def test_codecs_as_plain_data(codec: object) -> None:
    data = codec_to_dict(codec)
    assert codec_from_dict(data) == codec
    if isinstance(codec, Signs):
        assert data == {"name": f"{__name__}:Signs", "factor": 0.5}


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(
        InputError, match="codec zip: unknown; use raw, quantised, sparse, changes, part or"
    ):
        codec_from_dict({"name": "zip"})


@pytest.mark.parametrize("codec", [Raw(0), Quantised(0), Sparse(0.0), Sparse(1.5), Part(0)])
def test_a_codec_out_of_range_is_refused_in_the_plan(tiny, codec) -> None:
    plan = FedAvg().plan(tiny())
    units = [dataclasses.replace(unit, codec=codec) for unit in plan.units]
    with pytest.raises(InputError, match=r"scheme fedsgd: unit 0: codec\.\w+ = "):
        dataclasses.replace(plan, units=tuple(units))


def test_the_estimate_of_changes_reaches_an_update_that_stays() -> None:
    """EF21: what was sent so far adds up to the update once every entry was sent."""
    update = np.array([3.0, -2.0, 1.0, 0.5], np.float32)
    codec, memory, total = Changes(0.25), None, np.zeros(4, np.float32)
    for sent_so_far in range(1, 5):
        sent, memory = codec.encode(update, memory, stream(0))
        total += sent
        assert np.count_nonzero(sent) == 1
        assert (total == memory).all()
        assert (total == np.where(np.arange(4) < sent_so_far, update, 0)).all()
    assert codec.bits(1000) == 250 * (32 + 10)
