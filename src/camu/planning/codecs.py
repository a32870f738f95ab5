"""How a unit's update is encoded for the uplink, and how many bits that takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from camu.arrays import Float32
from camu.errors import InputError
from camu.plugins import import_object, importable_name
from camu.seeding import Stream

BITS_PER_PARAMETER = 32


class Codec(Protocol):
    """Turns an update into what the server decodes; a frozen dataclass of numbers."""

    def bits(self, parameters: int) -> int:
        """Payload of one update of a model with this many parameters."""
        ...

    def encode(
        self, update: Float32, memory: Float32 | None, stream: Stream
    ) -> tuple[Float32, Float32 | None]:
        """The update as the server decodes it, and what the sender keeps for its next one.

        `memory` is what the same sender kept last time, None at first.
        """
        ...


@dataclass(frozen=True)
class Raw:
    """32 bits per parameter; `copies` is how many vectors of the model's size are sent."""

    copies: int = 1

    def bits(self, parameters: int) -> int:
        return self.copies * BITS_PER_PARAMETER * parameters

    def encode(
        self, update: Float32, memory: Float32 | None, stream: Stream
    ) -> tuple[Float32, Float32 | None]:
        return update, None


@dataclass(frozen=True)
class Quantised:
    """Unbiased stochastic rounding of |z_j| / ||z|| to `levels` steps (QSGD, Alistarh et al. 2017).

    Sent are the norm, and a sign and a level per entry; entropy coding is not counted.
    """

    levels: int = 1

    def bits(self, parameters: int) -> int:
        return BITS_PER_PARAMETER + parameters * (1 + math.ceil(math.log2(self.levels + 1)))

    def encode(
        self, update: Float32, memory: Float32 | None, stream: Stream
    ) -> tuple[Float32, Float32 | None]:
        norm = math.sqrt(float(np.square(update, dtype=np.float64).sum()))
        if norm == 0 or not math.isfinite(norm):
            return update, None
        exact = np.abs(update.astype(np.float64)) * (self.levels / norm)
        whole = np.floor(exact)
        whole += stream.numpy().random(update.shape) < exact - whole
        return (np.sign(update) * whole * (norm / self.levels)).astype(np.float32), None


@dataclass(frozen=True)
class Sparse:
    """Only the largest entries are sent; the rest is kept and added to the next update.

    `share` is the part of the entries that is sent, each with its value and its index.
    """

    share: float = 0.1

    def bits(self, parameters: int) -> int:
        index_bits = max(1, math.ceil(math.log2(max(parameters, 2))))
        return self._count(parameters) * (BITS_PER_PARAMETER + index_bits)

    def encode(
        self, update: Float32, memory: Float32 | None, stream: Stream
    ) -> tuple[Float32, Float32 | None]:
        whole = update if memory is None else update + memory
        # A stable sort, so that entries of equal size are chosen by their index.
        order = np.argsort(-np.abs(whole), kind="stable")[: self._count(whole.size)]
        sent = np.zeros_like(whole)
        sent[order] = whole[order]
        return sent, whole - sent

    def _count(self, parameters: int) -> int:
        return min(parameters, max(1, round(self.share * parameters)))


@dataclass(frozen=True)
class Part:
    """32 bits for each of `entries` parameters; the server knows which ones were trained."""

    entries: int = 1

    def bits(self, parameters: int) -> int:
        return BITS_PER_PARAMETER * min(self.entries, parameters)

    def encode(
        self, update: Float32, memory: Float32 | None, stream: Stream
    ) -> tuple[Float32, Float32 | None]:
        return update, None


RAW = Raw()


def payload_bits(codec: Codec, parameters: int, bits_per_parameter: int) -> int:
    """Payload of one update; what is sent as it is takes `radio.bits_per_parameter`.

    A codec that compresses counts its own bits.
    """
    if isinstance(codec, Raw):
        return codec.copies * bits_per_parameter * parameters
    if isinstance(codec, Part):
        return bits_per_parameter * min(codec.entries, parameters)
    return codec.bits(parameters)


CODECS: dict[str, type[Any]] = {"raw": Raw, "quantised": Quantised, "sparse": Sparse, "part": Part}


def codec_faults(codec: Codec) -> list[str]:
    """One sentence per parameter of a built-in codec that is out of range."""
    if isinstance(codec, Raw) and codec.copies < 1:
        return [f"codec.copies = {codec.copies} must be at least 1"]
    if isinstance(codec, Quantised) and codec.levels < 1:
        return [f"codec.levels = {codec.levels} must be at least 1"]
    if isinstance(codec, Part) and codec.entries < 1:
        return [f"codec.entries = {codec.entries} must be at least 1"]
    if isinstance(codec, Sparse) and not 0 < codec.share <= 1:
        return [f"codec.share = {codec.share} must be above 0 and at most 1"]
    return []


def codec_to_dict(codec: Any) -> dict[str, Any]:
    """The codec as plain data: its name, or `module:Class`, and its fields."""
    kind = type(codec)
    known = [name for name, own in CODECS.items() if own is kind]
    name = known[0] if known else f"{importable_name(kind.__module__)}:{kind.__name__}"
    return {"name": name, **asdict(codec)}


def codec_from_dict(data: Mapping[str, Any]) -> Codec:
    """The codec from plain data."""
    fields = {key: value for key, value in data.items() if key != "name"}
    name = str(data.get("name"))
    kind = CODECS.get(name)
    if kind is None and ":" in name:
        kind = import_object(name, "codec")
    if kind is None:
        raise InputError(f"codec {name}: unknown; use {', '.join(CODECS)} or module:Class")
    codec: Codec = kind(**fields)
    return codec
