"""A model's state as an immutable value: flat parameters, flat buffers and their layout.

Parameters are trained and sent. Buffers are the other numbers of a model: batch norm's running
statistics and frozen parameters. Integer buffers, such as batch norm's count of batches, are not
part of the state, because nothing depends on them.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from camu.arrays import Float32, Float64
from camu.errors import InputError
from camu.learning import native

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Entry:
    """One named array of a state."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The names and shapes behind the two flat arrays, in order."""

    parameters: tuple[Entry, ...]
    buffers: tuple[Entry, ...]
    frozen: int = 0  # of the buffers: so many at the beginning are frozen parameters

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module's state; complex numbers and trained integers are refused."""
        _check_types(module)
        trained = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        carried: list[tuple[str, torch.Tensor]] = []
        carried += [(n, p) for n, p in module.named_parameters() if not p.requires_grad]
        frozen = len(carried)
        carried += [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]
        return cls(
            tuple(Entry(name, tuple(tensor.shape)) for name, tensor in trained),
            tuple(Entry(name, tuple(tensor.shape)) for name, tensor in carried),
            frozen,
        )

    @cached_property
    def parameter_count(self) -> int:
        """The number of trainable parameters, q."""
        return sum(entry.size for entry in self.parameters)

    @cached_property
    def frozen_count(self) -> int:
        """How many numbers at the beginning of the buffers no training changes."""
        return sum(entry.size for entry in self.buffers[: self.frozen])

    @cached_property
    def buffer_count(self) -> int:
        """How many numbers the buffers hold."""
        return sum(entry.size for entry in self.buffers)


@dataclass(frozen=True, eq=False)
class Weights:
    """The state of a model: ``parameters`` (q,) and ``buffers``, float32 and read-only."""

    parameters: Float32
    buffers: Float32
    layout: Layout = field(repr=False)

    def __post_init__(self) -> None:
        for name, count in (
            ("parameters", self.layout.parameter_count),
            ("buffers", self.layout.buffer_count),
        ):
            array = np.array(getattr(self, name), dtype=np.float32).reshape(-1)
            if array.size != count:
                raise InputError(
                    f"weights: {name} hold {array.size} numbers, but the model has {count}."
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def owning(cls, parameters: Float32, buffers: Float32, layout: Layout) -> Weights:
        """A state that takes over float32 arrays of the right sizes without a copy."""
        state = object.__new__(cls)
        parameters.setflags(write=False)
        buffers.setflags(write=False)
        vars(state).update(parameters=parameters, buffers=buffers, layout=layout)
        return state

    @classmethod
    def of(cls, module: nn.Module) -> Weights:
        """The present state of a module."""
        layout, state = Layout.of(module), _tensors(module)
        arrays = {name: tensor.detach().cpu().float().numpy() for name, tensor in state.items()}
        return cls.from_tensors(arrays, layout)

    def copied(self) -> Weights:
        """The same state in memory of its own: what a worker trained shares one block of memory."""
        return Weights(self.parameters, self.buffers, self.layout)

    def with_parameters(self, parameters: npt.ArrayLike) -> Weights:
        """The same buffers with other parameters, for example after noise or aggregation."""
        return Weights(np.asarray(parameters, dtype=np.float32), self.buffers, self.layout)

    def load_into(self, module: nn.Module) -> None:
        """Give a module this state."""
        import torch  # whoever has a module has loaded it

        state = _tensors(module)
        with torch.no_grad():
            for name, array in self.tensors().items():
                if name not in state or tuple(state[name].shape) != array.shape:
                    raise InputError(f"weights: the model has no array {name!r} of {array.shape}.")
                state[name].copy_(torch.from_numpy(array.copy()))

    def tensors(self) -> dict[str, Float32]:
        """The arrays by name, as a state dict; safetensors can save it as it is."""
        result: dict[str, Float32] = {}
        for flat, entries in (
            (self.parameters, self.layout.parameters),
            (self.buffers, self.layout.buffers),
        ):
            start = 0
            for entry in entries:
                result[entry.name] = flat[start : start + entry.size].reshape(entry.shape)
                start += entry.size
        return result

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, npt.ArrayLike], layout: Layout) -> Weights:
        """The state from arrays by name, for example as loaded from a checkpoint."""
        flats = []
        for entries in (layout.parameters, layout.buffers):
            parts = [np.zeros(0, dtype=np.float32)]
            for entry in entries:
                if entry.name not in tensors:
                    raise InputError(f"weights: the array {entry.name!r} is missing.")
                array = np.asarray(tensors[entry.name], dtype=np.float32)
                if array.shape != entry.shape:
                    raise InputError(
                        f"weights: {entry.name!r} has shape {array.shape}, expected {entry.shape}."
                    )
                parts.append(array.reshape(-1))
            flats.append(np.concatenate(parts))
        return cls(flats[0], flats[1], layout)

    def sha256(self) -> str:
        """A fingerprint of the bytes of parameters and buffers."""
        digest = hashlib.sha256(self.parameters.astype("<f4").tobytes())
        digest.update(self.buffers.astype("<f4").tobytes())
        return digest.hexdigest()


def weighted_mean(items: Iterable[tuple[float, Weights]]) -> Weights:
    """The mean of states under relative weights, added up in order and in double precision."""
    total, first = 0.0, None
    for weight, state in items:
        if first is None:
            first = state
            sums = WeightedSum(state.parameters.size), WeightedSum(state.buffers.size)
        sums[0].add(weight, state.parameters)
        sums[1].add(weight, state.buffers)
        total += weight
    if first is None or total <= 0:
        raise InputError("weights: a mean needs at least one state with a positive weight.")
    parameters, buffers = ((own.total / total).astype(np.float32) for own in sums)
    return Weights(parameters, buffers, first.layout)


def _check_types(module: nn.Module) -> None:
    trained = dict(module.named_parameters())
    for name, tensor in _tensors(module).items():
        kind = "parameter" if name in trained else "buffer"
        if tensor.is_complex() or (name in trained and not tensor.is_floating_point()):
            raise InputError(
                f"model: its {kind} {name} has numbers of type {str(tensor.dtype)[6:]}; camu "
                "trains, sends and averages real numbers: give it a floating-point type, a complex "
                "number as two."
            )


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


class WeightedSum:
    """A sum of arrays, each times a factor, in double precision and in the order of `add`.

    Arrays are held until there are `HELD` of them, because a pass over the sum takes as long as one
    over an array; they must not change until then.
    """

    HELD = 8

    def __init__(self, size: int) -> None:
        self._total = np.zeros(size)
        self._factors: list[float] = []
        self._rows: list[Float32] = []

    def add(self, factor: float, row: Float32) -> None:
        """Add one more array."""
        if row.shape != self._total.shape:
            raise ValueError(f"an array of shape {row.shape} is added to {self._total.shape}")
        self._factors.append(factor)
        self._rows.append(np.ascontiguousarray(row, dtype=np.float32))
        if len(self._rows) == self.HELD:
            self._flush()

    @property
    def total(self) -> Float64:
        """The sum so far."""
        self._flush()
        return self._total

    def _flush(self) -> None:
        loaded = native.library()
        if loaded is None:
            for factor, row in zip(self._factors, self._rows, strict=True):
                self._total += np.multiply(row, factor, dtype=np.float64)
        elif self._rows:
            factors = array("d", self._factors)
            rows = array("Q", [row.ctypes.data for row in self._rows])
            loaded.camu_add_rows(
                *(self._total.ctypes.data, factors.buffer_info()[0], rows.buffer_info()[0]),
                *(len(rows), len(self._total)),
            )
        self._factors.clear()
        self._rows.clear()
