"""The mean of updates, added up one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from camu.arrays import Float32
from camu.learning.sums import WeightedSum

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(eq=False)
class MeanUpdate:
    """The weighted mean of updates; it needs the memory of a few updates, however many are added.

    The sum is in double precision and in the order in which updates are added. It is divided by the
    sum of the weights at the end, because only then is it known which updates were usable.
    """

    start: Weights  # the model that the mean will be added to
    total: float = 0.0  # of the weights so far
    _parameters: WeightedSum = field(init=False)
    _buffers: WeightedSum = field(init=False)

    def __post_init__(self) -> None:
        self._parameters = WeightedSum(self.start.parameters.size)
        self._buffers = WeightedSum(self.start.buffers.size)

    def add(self, weight: float, update: Float32, buffers: Float32) -> None:
        """Count one more update, with the change of the buffers that belongs to it."""
        self.total += weight
        self._parameters.add(weight, update)
        self._buffers.add(weight, buffers)

    def added(self) -> Weights:
        """The model plus the mean; the model itself where no update counts."""
        if self.total <= 0:
            return self.start
        parameters = self.start.parameters + self._parameters.total / self.total
        buffers = self.start.buffers + self._buffers.total / self.total
        return self.start.owning(
            parameters.astype(np.float32), buffers.astype(np.float32), self.start.layout
        )
