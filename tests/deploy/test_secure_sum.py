"""Secure sums: masks cancel exactly, the server sees noise, and too few shares say nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
from collections.abc import Collection

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy import stats

from camu.deploy import secure_sum
from camu.deploy.secure_sum import (
    Keys,
    MaskError,
    Member,
    from_ring,
    join,
    split,
    step_of,
    threshold,
    to_ring,
    unmask,
)

CONTEXT = b"run 7, round 3, unit 0"
BOUND = 10.0


def secret(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


class Unit:
    """Members with signing keys, their published keys, and what they dealt to each other."""

    def __init__(self, count: int, sums: int = 1, seed: str = "") -> None:
        self.names = [f"device {k}" for k in range(count)]
        self.signers = {n: Ed25519PrivateKey.from_private_bytes(secret(n)) for n in self.names}
        self.members = {n: Member(CONTEXT, n, secret(f"{seed} {n}"), sums) for n in self.names}
        self.keys = {n: m.keys(self.signers[n].sign) for n, m in self.members.items()}
        self.dealt = {n: m.deal(self.keys, self.verify) for n, m in self.members.items()}

    def verify(self, name: str, text: bytes, signature: bytes) -> bool:
        try:
            self.signers[name].public_key().verify(signature, text)
        except InvalidSignature:
            return False
        return True

    def for_member(self, name: str) -> dict[str, bytes]:
        return {sender: sealed[name] for sender, sealed in self.dealt.items()}

    def masked(self, number: int, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        taking_part = {name: self.keys[name] for name in rows}
        return {n: self.members[n].mask(number, row, taking_part) for n, row in rows.items()}

    def total(
        self, number: int, masked: dict[str, np.ndarray], lost: Collection[str]
    ) -> np.ndarray:
        there = {name: row for name, row in masked.items() if name not in lost}
        gone = [name for name in masked if name in lost]
        revealed = {
            name: self.members[name].reveal(
                number, list(there), gone, self.keys, self.for_member(name)
            )
            for name in there
        }
        return unmask(CONTEXT, number, there, gone, self.keys, revealed)


def vectors(names: list[str], size: int, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {name: draw.integers(0, 2**32, size, dtype=np.uint32) for name in names}


@pytest.mark.parametrize("count", [3, 4, 7, 12])
def test_masks_cancel_exactly_with_up_to_a_third_of_the_members_lost(count: int) -> None:
    unit = Unit(count)
    rows = vectors(unit.names, 50, count)
    masked = unit.masked(0, rows)
    most = count - threshold(count)
    assert most == count // 3
    for lost in range(most + 1):
        gone = random.Random(lost).sample(unit.names, lost)
        plain = sum(row for name, row in rows.items() if name not in gone)
        assert np.array_equal(unit.total(0, masked, gone), plain)


def test_one_more_lost_member_and_nobody_reveals_anything() -> None:
    unit = Unit(4)
    masked = unit.masked(0, vectors(unit.names, 5))
    with pytest.raises(MaskError, match="2 of 4 members answered, fewer than 3"):
        unit.total(0, masked, unit.names[:2])


def test_sums_of_a_round_have_masks_of_their_own_and_members_may_leave_between_them() -> None:
    unit = Unit(5, sums=3)
    rows = vectors(unit.names, 20)
    first = unit.masked(0, rows)
    again = unit.masked(1, rows)
    assert not np.array_equal(first[unit.names[0]], again[unit.names[0]])
    assert np.array_equal(unit.total(0, first, unit.names[:1]), sum(list(rows.values())[1:]))
    left = {name: rows[name] for name in unit.names[1:]}  # the lost one takes part no more
    assert np.array_equal(unit.total(1, unit.masked(1, left), ()), sum(left.values()))


def test_the_mean_is_the_plain_one_to_the_fixed_point_step() -> None:
    unit, draw = Unit(6), np.random.default_rng(5)
    shares = draw.dirichlet(np.ones(6))
    updates = {name: draw.uniform(-BOUND, BOUND, 400) for name in unit.names}
    rows = {
        name: to_ring(share * updates[name], BOUND)
        for name, share in zip(unit.names, shares, strict=True)
    }
    gone = unit.names[2]
    found = from_ring(unit.total(0, unit.masked(0, rows), [gone]), BOUND)
    plain = sum(s * updates[n] for n, s in zip(unit.names, shares, strict=True) if n != gone)
    assert np.abs(found - plain).max() <= 5 * step_of(BOUND) / 2 * (1 + 1e-6)
    assert step_of(BOUND) < 1e-8


def test_the_largest_sums_do_not_wrap_around_and_larger_entries_are_refused() -> None:
    for sign in (1, -1):
        halves = [to_ring(np.full(3, sign * BOUND * share), BOUND) for share in (0.25, 0.75)]
        assert from_ring(halves[0] + halves[1], BOUND) == pytest.approx(sign * BOUND)
    for wrong in (BOUND * 1.01, np.nan, np.inf):
        with pytest.raises(MaskError, match="within 10"):
            to_ring([wrong], BOUND)


def uniform(row: np.ndarray) -> float:
    """The p-value of the bytes of a masked vector being uniform."""
    return float(stats.chisquare(np.bincount(row.view(np.uint8), minlength=256)).pvalue)


@pytest.mark.parametrize("value", [0, 2**32 - 1, 12345])
def test_the_servers_view_of_an_update_is_uniform_whatever_it_is(value: int) -> None:
    unit = Unit(4, seed=str(value))
    rows = {name: np.full(100_000, value, dtype=np.uint32) for name in unit.names}
    masked = unit.masked(0, rows)
    assert all(uniform(row) > 1e-4 for row in masked.values())
    # Nor do two members together show more than noise, though their masks of each other cancel.
    assert uniform(masked[unit.names[0]] + masked[unit.names[1]]) > 1e-4
    assert np.corrcoef([row.astype(float) for row in masked.values()]).round(1).sum() == 4


def test_own_masks_hide_an_update_that_comes_after_its_member_was_given_up() -> None:
    """With the keys of a silent member the server knows its masks of pairs; not its own."""
    unit = Unit(4)
    rows = {name: np.zeros(100_000, dtype=np.uint32) for name in unit.names}
    masked, late = unit.masked(0, rows), unit.names[1]
    assert not unit.total(0, masked, [late]).any()  # its masking key is known now
    naked = masked[late]
    for name in unit.names:
        if name != late:
            key = unit.members[late]._masking(0)
            pair = secure_sum._pair_mask(key, unit.keys[name].masking[0], CONTEXT, 0, len(naked))
            naked = naked - pair if late < name else naked + pair
    assert uniform(naked) > 1e-4


def test_shares_give_the_secret_and_fewer_leave_every_secret_possible() -> None:
    for needed, holders in ((2, 3), (3, 4), (5, 7)):
        hidden = int.from_bytes(secret(f"{needed}"), "big")
        shares = dict(enumerate(split(hidden, needed, holders), 1))
        for chosen in itertools.combinations(shares, needed):
            assert join({place: shares[place] for place in chosen}) == hidden
        few = {place: shares[place] for place in list(shares)[: needed - 1]}
        for other in (0, 1, 2**256 - 1):  # the missing share decides alone
            place = holders
            value = _share_that_gives(few, place, other)
            assert join({**few, place: value}) == other


def _share_that_gives(few: dict[int, int], place: int, wanted: int) -> int:
    """The value of one more share with which the secret would be the wanted one."""
    zero, one = join({**few, place: 0}), join({**few, place: 1})
    return (wanted - zero) * pow(one - zero, -1, secure_sum.PRIME) % secure_sum.PRIME


def test_a_server_that_tells_two_stories_gets_too_few_shares_of_one() -> None:
    """Each member gives one kind; both kinds together would show a member's update."""
    for count in range(3, 40):
        assert 2 * threshold(count) > count


def test_what_does_not_fit_is_refused() -> None:
    unit = Unit(4)
    one, two, three, _ = unit.names
    member = unit.members[one]
    swapped = {**unit.keys, two: dataclasses.replace(unit.keys[two], sealing=bytes(range(32)))}
    with pytest.raises(MaskError, match=f"the keys of {two} are not signed by its node"):
        member.deal(swapped, unit.verify)
    foreign = Member(b"another round", two, secret("x"), 1).keys(unit.signers[two].sign)
    with pytest.raises(MaskError, match="not signed"):
        member.deal({**unit.keys, two: foreign}, unit.verify)
    with pytest.raises(MaskError, match="needs 3 members"):
        member.deal({name: unit.keys[name] for name in (one, two)}, unit.verify)
    with pytest.raises(MaskError, match="are not with those"):
        member.deal({**unit.keys, one: unit.keys[two]}, unit.verify)
    with pytest.raises(MaskError, match="has 0 keys for 1 sums"):
        member.deal({**unit.keys, two: Keys((), unit.keys[two].sealing)}, unit.verify)
    dealt = unit.for_member(one)
    with pytest.raises(MaskError, match="both kinds"):
        member.reveal(0, unit.names, [two], unit.keys, dealt)
    with pytest.raises(MaskError, match="both kinds"):
        member.reveal(0, unit.names[1:], [one], unit.keys, dealt)
    for wrong in (dealt[three], dealt[two][:-1], b""):
        with pytest.raises(MaskError, match=f"the shares of {two} are not those"):
            member.reveal(0, unit.names, [], unit.keys, {**dealt, two: wrong})
    with pytest.raises(MaskError, match="no keys or shares of stranger"):
        member.reveal(0, [*unit.names, "stranger"], [], unit.keys, dealt)


def test_wrong_shares_of_a_silent_member_are_noticed() -> None:
    unit = Unit(4)
    masked = unit.masked(0, vectors(unit.names, 5))
    gone, *others = unit.names
    there = {name: masked[name] for name in others}
    revealed = {
        name: unit.members[name].reveal(0, others, [gone], unit.keys, unit.for_member(name))
        for name in others
    }
    revealed[others[0]][gone] = bytes(33)
    with pytest.raises(MaskError, match=f"the shares of {gone} do not fit"):
        unmask(CONTEXT, 0, there, [gone], unit.keys, revealed)
