"""The messages of a secure sum: keys, sealed shares, masked vectors, and shares that unmask.

The steps of all sums of a node are in one message, as a record with JSON beside what the message
is otherwise: the task of masked vectors is that of any update. Bytes are written as hexadecimal
digits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from camu.deploy.array_records import Refusal
from camu.deploy.messages import STRICT, parse
from camu.deploy.secure_sum import Keys
from camu.learning.weights import Layout, Weights

WEIGHTY = 0.1  # of the largest weight: less hides next to nothing
RECORD = "camu-secure"  # beside the record of a message
Hex = Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=10_000)]
Name = Annotated[str, Field(min_length=1, max_length=20_000)]  # of a node: those of its devices
Number = Annotated[int, Field(ge=0, le=10**9)]


@checked(frozen=True, config=STRICT)
class Sum:
    """One sum: who takes part with which devices and weights, and from which model."""

    run: str
    round: Number
    update: Number  # of the unit, in the round
    devices: dict[Name, tuple[Number, ...]]  # by node
    weights: dict[Number, Annotated[float, Field(ge=0, allow_inf_nan=False)]]  # by device
    start: Hex  # digest of the model that all members start from
    nonce: Hex

    @property
    def context(self) -> bytes:
        """What keys are signed for: a member agrees to all of it, or to nothing."""
        text = json.dumps(SUM.dump_python(self, mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def weight(self, node: str) -> float:
        """The weight of all devices of a node."""
        return sum(self.weights[device] for device in self.devices[node])


@checked(frozen=True, config=STRICT)
class WrittenKeys:
    """The keys that a member publishes for a sum."""

    masking: Hex
    sealing: Hex
    signature: Hex

    @classmethod
    def of(cls, keys: Keys) -> WrittenKeys:
        """Keys for one sum."""
        return cls(keys.masking[0].hex(), keys.sealing.hex(), keys.signature.hex())

    @property
    def keys(self) -> Keys:
        """The keys as they are used."""
        masking, sealing, signature = (
            bytes.fromhex(text) for text in (self.masking, self.sealing, self.signature)
        )
        if len(masking) != 32 or len(sealing) != 32:
            raise Refusal("a key for masks has 32 bytes")
        return Keys((masking,), sealing, signature)


@checked(frozen=True, config=STRICT)
class Asked:
    """What the server asks of a member: the next step of a sum, and what it needs."""

    step: Literal["keys", "deal", "mask", "reveal"]
    sum: Sum
    keys: dict[Name, WrittenKeys] = Field(default_factory=dict)
    registered: dict[Name, Annotated[str, Field(max_length=1000)]] = Field(default_factory=dict)
    sealed: dict[Name, Hex] = Field(default_factory=dict)  # shares for this member, by sender
    answered: tuple[Name, ...] = ()
    silent: tuple[Name, ...] = ()


@checked(frozen=True, config=STRICT)
class Answered:
    """What a member answers to a step; a masked vector is the array of the message."""

    nonce: Hex
    keys: WrittenKeys | None = None
    sealed: dict[Name, Hex] = Field(default_factory=dict)  # its shares for others
    shares: dict[Name, Hex] = Field(default_factory=dict)
    problem: Annotated[str, Field(max_length=500)] = ""


SUM = TypeAdapter(Sum)
ASKED, ANSWERS = TypeAdapter(tuple[Asked, ...]), TypeAdapter(tuple[Answered, ...])


def attach(content: RecordDict, asked: Sequence[Asked]) -> RecordDict:
    """The message with steps of secure sums."""
    content[RECORD] = ConfigRecord({"json": ASKED.dump_json(tuple(asked)).decode()})
    return content


def detach(content: RecordDict) -> tuple[Asked, ...] | None:
    """The steps of secure sums in a message, which are taken out; None if there are none."""
    if RECORD not in content:
        return None
    record = content.pop(RECORD)
    text = record.get("json") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str):
        raise Refusal("the step of a secure sum has no text")
    return parse(ASKED, text, "the step of a secure sum")


def check_answer(found: Answered, asked: Asked) -> Answered:
    """A member's answer to a step; a Refusal where it has none."""
    if found.problem:
        raise Refusal(f"it takes no part in the sum: {found.problem}")
    if found.nonce != asked.sum.nonce:
        raise Refusal("it answers an earlier sum (a replayed message?)")
    return found


def digest(start: Weights) -> str:
    """What stands for a model in what members sign."""
    found = hashlib.sha256()
    for part in (start.parameters, start.buffers):
        found.update(np.ascontiguousarray(part, "<f4").tobytes())
    return found.hexdigest()


def vector_size(layout: Layout) -> int:
    """The entries of a member's vector: all that is trained, what goes with it, and the loss."""
    return layout.parameter_count + layout.buffer_count - layout.frozen_count + 1


def weighty(sum_: Sum, least: int) -> bool:
    """Whether so many members weigh at least a tenth of the one that weighs most."""
    weights = [sum_.weight(node) for node in sum_.devices]
    most = max(weights, default=0.0)
    return most > 0 and sum(weight >= WEIGHTY * most for weight in weights) >= least


def hexed(found: Mapping[str, bytes]) -> dict[str, str]:
    """Bytes by name, as they are written."""
    return {name: content.hex() for name, content in found.items()}


def unhexed(found: Mapping[str, str]) -> dict[str, bytes]:
    """The bytes that were written."""
    return {name: bytes.fromhex(text) for name, text in found.items()}
