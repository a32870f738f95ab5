"""What is sent: how many parameters a model has, how an update is encoded, how many bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from camu.arrays import Float32
from camu.data import dataset_spec
from camu.errors import InputError
from camu.learning.cnn import sample_shape
from camu.learning.layouts import built_in_layout
from camu.learning.task import task_of
from camu.plugins import import_object, importable_name, is_plugin
from camu.seeding import Stream, derive
from camu.world import World

BITS_PER_PARAMETER = 32


def parameter_count(world: World) -> int:
    """q, the number of trainable parameters of the configured model."""
    config = world.config
    training, data, task = config.training, dataset_spec(config.data), task_of(config)
    name = training.model
    # A class that was changed and loaded again has the same name and another count.
    kind = import_object(name, "training.model") if is_plugin(name) else None
    more = tuple(task.model_arguments().items())
    return _count(name, sample_shape(data), task.outputs, training.normalisation, kind, more)


@lru_cache
def _count(
    name: str,
    shape: tuple[int, ...],
    outputs: int,
    normalisation: str,
    kind: object = None,
    more: tuple[tuple[str, Any], ...] = (),
) -> int:
    """Parameters of a model; by formula for the built-in ones, so that a plan loads no torch."""
    if (layout := built_in_layout(name, shape, outputs, normalisation, **dict(more))) is not None:
        return layout.parameter_count
    from camu.learning.models import build_model

    model = build_model(name, shape, outputs, normalisation, derive(0, "count"), **dict(more))
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


Encoded = tuple[Float32, Float32 | None]


class Codec(Protocol):
    """Turns an update into what the server decodes; a frozen dataclass of numbers."""

    def bits(self, parameters: int) -> int:
        """Payload of one update of a model with this many parameters."""
        ...

    def encode(self, update: Float32, memory: Float32 | None, stream: Stream) -> Encoded:
        """The update as the server decodes it, and what the sender keeps for its next one.

        `memory` is what the same sender kept last time, None at first.
        """
        ...


class Uncompressed:
    """An update that is sent as it is, with `radio.bits_per_parameter` bits per number."""

    def numbers(self, parameters: int) -> int:
        """How many numbers are sent."""
        raise NotImplementedError

    def bits(self, parameters: int) -> int:
        return BITS_PER_PARAMETER * self.numbers(parameters)

    def encode(self, update: Float32, memory: Float32 | None, stream: Stream) -> Encoded:
        return update, None


@dataclass(frozen=True)
class Raw(Uncompressed):
    """`copies` is how many vectors of the model's size are sent."""

    copies: int = 1

    def numbers(self, parameters: int) -> int:
        return self.copies * parameters


@dataclass(frozen=True)
class Part(Uncompressed):
    """Some `entries` of the parameters are sent; the server knows which ones were trained."""

    entries: int = 1

    def numbers(self, parameters: int) -> int:
        return min(self.entries, parameters)


@dataclass(frozen=True)
class Quantised:
    """Unbiased stochastic rounding of |z_j| / ||z|| to `levels` steps (QSGD, Alistarh et al. 2017).

    Sent are the norm, and a sign and a level per entry; entropy coding is not counted.
    """

    levels: int = 1

    def bits(self, parameters: int) -> int:
        return BITS_PER_PARAMETER + parameters * (1 + math.ceil(math.log2(self.levels + 1)))

    def encode(self, update: Float32, memory: Float32 | None, stream: Stream) -> Encoded:
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

    def encode(self, update: Float32, memory: Float32 | None, stream: Stream) -> Encoded:
        whole = update if memory is None else update + memory
        # A stable sort, so that entries of equal size are chosen by their index.
        order = np.argsort(-np.abs(whole), kind="stable")[: self._count(whole.size)]
        sent = np.zeros_like(whole)
        sent[order] = whole[order]
        return sent, whole - sent

    def _count(self, parameters: int) -> int:
        return min(parameters, max(1, round(self.share * parameters)))


@dataclass(frozen=True)
class Changes(Sparse):
    """Only the largest entries of what changed are sent (EF21, Richtarik et al. 2021).

    Sender and server keep the same estimate of the update; what is sent is added to it on both
    sides. The server's part is that of the scheme, which is given the changes.
    """

    def encode(self, update: Float32, memory: Float32 | None, stream: Stream) -> Encoded:
        known = np.zeros_like(update) if memory is None else memory
        sent, _ = super().encode(update - known, None, stream)
        return sent, known + sent


RAW = Raw()


def payload_bits(codec: Codec, parameters: int, bits_per_parameter: int) -> int:
    """Payload of one update; what is sent as it is takes `radio.bits_per_parameter`.

    A codec that compresses counts its own bits.
    """
    if isinstance(codec, Uncompressed):
        return bits_per_parameter * codec.numbers(parameters)
    return codec.bits(parameters)


CODECS: dict[str, type[Any]] = {
    "raw": Raw,
    "quantised": Quantised,
    "sparse": Sparse,
    "changes": Changes,
    "part": Part,
}


def codec_faults(codec: Codec) -> list[str]:
    """One sentence per parameter of a built-in codec that is out of range."""
    if isinstance(codec, Sparse) and not 0 < codec.share <= 1:
        return [f"codec.share = {codec.share} must be above 0 and at most 1"]
    counts = asdict(codec) if isinstance(codec, Raw | Part | Quantised) else {}
    return [f"codec.{key} = {n} must be at least 1" for key, n in counts.items() if n < 1]


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
