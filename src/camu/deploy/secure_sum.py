"""Sums of vectors whose terms nobody sees: the masks of secure aggregation inside a unit.

After SecAgg and SecAgg+ (Bonawitz et al., CCS 2017; Bell et al., CCS 2020), with all members of a
unit as neighbours. A member adds masks to its vector in the ring of 32-bit numbers: one that it
shares with each other member, and one of its own. Those of pairs cancel in the sum. The own masks
of members that answered, and the masks of pairs with members that did not, are found again from
shares that the members hold of each other's secrets. Whoever has fewer than `threshold` shares
learns nothing from them.

A round of a unit has fresh secrets, one pair of keys and one own mask for each of its sums, so that
finding a secret again says nothing about other sums. Keys are signed by their nodes, because a
server could otherwise put its own in their place. Members hand out one kind of share per member and
sum: the threshold is two thirds, so that a server that tells members different stories has too few
shares of one kind.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from camu.arrays import Float64
from camu.errors import CamuError

Ring = npt.NDArray[np.uint32]
Verify = Callable[[str, bytes, bytes], bool]  # (member, text, signature)

PRIME = 2**256 + 297  # the smallest above all secrets of 32 bytes
SECRET_BYTES, SHARE_BYTES, NONCE_BYTES, TAG_BYTES = 32, 33, 12, 16
FEWEST = 3  # of two members, each would find the other's vector in the sum
HALF_RANGE = 2**30  # steps that a sum may have in either direction; room for rounding is left


class MaskError(CamuError):
    """Why a member or the server does not go on with a sum."""


def threshold(members: int) -> int:
    """How many of so many members must answer: two thirds."""
    return -(-2 * members // 3)


def to_ring(vector: npt.ArrayLike, bound: float) -> Ring:
    """A vector whose entries are within the bound, as whole steps modulo 2^32."""
    steps = np.rint(np.asarray(vector, dtype=np.float64) / step_of(bound))
    if not (np.abs(steps) <= HALF_RANGE).all():
        raise MaskError(f"an entry is not a number within {bound:g}")
    return np.asarray(steps.astype(np.int64) & 0xFFFFFFFF, dtype=np.uint32)


def from_ring(total: Ring, bound: float) -> Float64:
    """The sum of vectors whose absolute values add up to no more than the bound per entry."""
    return np.asarray(total.view(np.int32).astype(np.float64) * step_of(bound))


def step_of(bound: float) -> float:
    """The fixed-point step for sums within a bound."""
    return bound / HALF_RANGE


def split(secret: int, needed: int, holders: int) -> list[int]:
    """Shamir's shares of a secret: any `needed` of them give it, fewer say nothing about it."""
    line = [secret, *(secrets.randbelow(PRIME) for _ in range(needed - 1))]
    return [_value(line, place) for place in range(1, holders + 1)]


def _value(line: Sequence[int], place: int) -> int:
    found = 0
    for coefficient in reversed(line):
        found = (found * place + coefficient) % PRIME
    return found


def join(shares: Mapping[int, int]) -> int:
    """The secret of these shares, by their places from 1: the polynomial's value at 0."""
    found = 0
    for place, share in shares.items():
        above = below = 1
        for other in shares:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        found = (found + share * above * pow(below, -1, PRIME)) % PRIME
    return found


@dataclass(frozen=True)
class Keys:
    """What a member publishes for a round: a key per sum, one for sealed shares, a signature."""

    masking: tuple[bytes, ...]
    sealing: bytes
    signature: bytes = b""

    def text(self, context: bytes, member: str) -> bytes:
        """What is signed."""
        parts = (b"camu secure sum", context, member.encode(), self.sealing, *self.masking)
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@dataclass(frozen=True)
class Member:
    """A member of a unit in one round; its secrets follow from one that only it has.

    `context` says which run, round and unit; `sums` is how many sums the round has.
    """

    context: bytes
    name: str
    secret: bytes  # fresh for each round
    sums: int

    def _key(self, purpose: str) -> bytes:
        return _derive(self.secret, self.context, purpose)

    def _masking(self, number: int) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self._key(f"masking {number}"))

    @cached_property
    def _sealing(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self._key("sealing"))

    def keys(self, sign: Callable[[bytes], bytes]) -> Keys:
        """Its public keys, signed."""
        masking = tuple(_public(self._masking(number)) for number in range(self.sums))
        bare = Keys(masking, _public(self._sealing))
        return Keys(masking, bare.sealing, sign(bare.text(self.context, self.name)))

    def check(self, keys: Mapping[str, Keys], verify: Verify) -> None:
        """Refuse keys of a round that are too few, not signed by their members, or not its own."""
        if len(keys) < FEWEST:
            raise MaskError(f"a secure sum needs {FEWEST} members, and there are {len(keys)}")
        if self.name not in keys or keys[self.name].sealing != _public(self._sealing):
            raise MaskError("the round's keys are not with those that this member has sent")
        for member, own in keys.items():
            if len(own.masking) != self.sums:
                raise MaskError(f"{member} has {len(own.masking)} keys for {self.sums} sums")
            if not verify(member, own.text(self.context, member), own.signature):
                raise MaskError(f"the keys of {member} are not signed by its node")

    def deal(self, keys: Mapping[str, Keys], verify: Verify) -> dict[str, bytes]:
        """For each other member its shares of this one's secrets, sealed for it alone."""
        self.check(keys, verify)
        names, needed = sorted(keys), threshold(len(keys))
        parts: dict[str, list[bytes]] = {name: [] for name in names}
        for number in range(self.sums):
            for secret in (self._key(f"own mask {number}"), self._key(f"masking {number}")):
                shares = split(int.from_bytes(secret, "big"), needed, len(names))
                for name, share in zip(names, shares, strict=True):
                    parts[name].append(share.to_bytes(SHARE_BYTES, "big"))
        sealed = {}
        for name in names:
            nonce = secrets.token_bytes(NONCE_BYTES)
            box = ChaCha20Poly1305(self._box_key(keys[name].sealing))
            label = f"{self.name}\n{name}".encode()
            sealed[name] = nonce + box.encrypt(nonce, b"".join(parts[name]), label)
        return sealed

    def _box_key(self, other: bytes) -> bytes:
        shared = self._sealing.exchange(X25519PublicKey.from_public_bytes(other))
        return _derive(shared, self.context, "box")

    def mask(self, number: int, vector: Ring, keys: Mapping[str, Keys]) -> Ring:
        """The vector for sum `number`, masked against all members of `keys`, which take part."""
        masked = vector + _stream(self._key(f"own mask {number}"), len(vector))
        key = self._masking(number)
        for name, other in keys.items():
            if name != self.name:
                pair = _pair_mask(key, other.masking[number], self.context, number, len(vector))
                masked = masked + pair if self.name < name else masked - pair
        return masked

    def reveal(
        self,
        number: int,
        answered: Collection[str],
        silent: Collection[str],
        keys: Mapping[str, Keys],
        dealt: Mapping[str, bytes],
    ) -> dict[str, bytes]:
        """Its shares that unmask a sum: of the own masks of members that answered, and of the keys
        of those that did not.

        `keys` are those of the whole round, `dealt` what each member has sealed for this one. Who
        calls this sees to it that it is asked once per sum.
        """
        if set(answered) & set(silent) or self.name not in answered:
            raise MaskError("a member is asked for both kinds of shares, or it did not answer")
        needed = threshold(len(keys))
        if len(answered) < needed:
            raise MaskError(f"{len(answered)} of {len(keys)} members answered, fewer than {needed}")
        found = {}
        for name in (*answered, *silent):
            if name not in keys or name not in dealt:
                raise MaskError(f"there are no keys or shares of {name}")
            start = (2 * number + (name in silent)) * SHARE_BYTES
            found[name] = self._open(name, keys[name], dealt[name])[start : start + SHARE_BYTES]
        return found

    def _open(self, name: str, keys: Keys, sealed: bytes) -> bytes:
        box = ChaCha20Poly1305(self._box_key(keys.sealing))
        nonce, content = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        try:
            opened = box.decrypt(nonce, content, f"{name}\n{self.name}".encode())
        except (InvalidTag, ValueError):
            raise MaskError(f"the shares of {name} are not those that it sealed") from None
        if len(opened) != 2 * self.sums * SHARE_BYTES:
            raise MaskError(f"the shares of {name} are too few")
        return opened


def unmask(
    context: bytes,
    number: int,
    masked: Mapping[str, Ring],
    silent: Collection[str],
    keys: Mapping[str, Keys],
    revealed: Mapping[str, Mapping[str, bytes]],
) -> Ring:
    """The sum of the vectors of the members that answered, at the server.

    `silent` took part in the masks and did not answer. `revealed` are the shares of the members, by
    who holds them.
    """
    places, needed = (
        {name: place for place, name in enumerate(sorted(keys), 1)},
        threshold(len(keys)),
    )
    total = np.zeros(len(next(iter(masked.values()))), dtype=np.uint32)
    for row in masked.values():
        total = total + row

    def secret_of(name: str) -> bytes:
        shares = {
            places[holder]: int.from_bytes(own[name], "big")
            for holder, own in revealed.items()
            if name in own
        }
        if len(shares) < needed:
            raise MaskError(f"{len(shares)} shares of {name} are here, fewer than {needed}")
        found = join(dict(list(shares.items())[:needed]))
        if found >= 2 ** (8 * SECRET_BYTES):
            raise MaskError(f"the shares of {name} do not fit together")
        return found.to_bytes(SECRET_BYTES, "big")

    for name in masked:
        total = total - _stream(secret_of(name), len(total))
    for gone in silent:
        key = X25519PrivateKey.from_private_bytes(secret_of(gone))
        if _public(key) != keys[gone].masking[number]:
            raise MaskError(f"the shares of {gone} do not fit its key")
        for name in masked:
            pair = _pair_mask(key, keys[name].masking[number], context, number, len(total))
            total = total - pair if name < gone else total + pair
    return total


def _pair_mask(key: X25519PrivateKey, other: bytes, context: bytes, number: int, size: int) -> Ring:
    shared = key.exchange(X25519PublicKey.from_public_bytes(other))
    return _stream(_derive(shared, context, f"pair {number}"), size)


def _derive(secret: bytes, context: bytes, purpose: str) -> bytes:
    info = hashlib.sha256(context).digest() + purpose.encode()
    return HKDF(algorithm=SHA256(), length=SECRET_BYTES, salt=None, info=info).derive(secret)


def _stream(key: bytes, size: int) -> Ring:
    """So many numbers of ChaCha20's key stream; a key is used for one stream alone."""
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(4 * size)), dtype="<u4").astype(np.uint32)


def _public(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
