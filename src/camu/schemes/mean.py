"""The mean of updates, added up one by one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from camu.arrays import Float32, Float64

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(eq=False)
class MeanUpdate:
    """The weighted mean of updates; it needs the memory of one update, however many are added.

    The sum is in double precision and in the order in which updates are added. It is divided by the
    sum of the weights at the end, because only then is it known which updates were usable.
    """

    start: Weights  # the model that the mean will be added to
    total: float = 0.0  # of the weights so far
    _parameters: Float64 = field(init=False)
    _buffers: Float64 = field(init=False)
    _product: Float64 = field(init=False)  # reused: fresh memory takes longer than the sum

    def __post_init__(self) -> None:
        self._parameters = np.zeros(self.start.parameters.shape)
        self._buffers = np.zeros(self.start.buffers.shape)
        self._product = np.empty(self.start.parameters.shape)

    def add(self, weight: float, update: Float32, buffers: Float32) -> None:
        """Count one more update, with the change of the buffers that belongs to it."""
        self.total += weight
        self._parameters += np.multiply(update, weight, out=self._product, dtype=np.float64)
        self._buffers += np.multiply(buffers, weight, dtype=np.float64)

    def added(self) -> Weights:
        """The model plus the mean; the model itself where no update counts."""
        if self.total <= 0:
            return self.start
        parameters = self.start.parameters + self._parameters / self.total
        buffers = self.start.buffers + self._buffers / self.total
        return replace(
            self.start,
            parameters=parameters.astype(np.float32),
            buffers=buffers.astype(np.float32),
        )
