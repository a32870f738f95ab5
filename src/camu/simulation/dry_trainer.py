"""A trainer that trains nothing, for dry runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from camu.arrays import Float32
from camu.learning.job import Evaluation
from camu.learning.kernel import Provenance
from camu.learning.weights import Layout, Weights
from camu.simulation.uplink import Delivery


class DryTrainer:
    """Returns empty updates at once; what becomes of them on the air is decided as in a run.

    With a generator, losses, updates and gradients are random numbers: a scheme whose costs then
    differ decides by what training shows.
    """

    provenance = Provenance("none")

    def __init__(self, layout: Layout, generator: np.random.Generator | None = None) -> None:
        empty = np.zeros(layout.parameter_count, np.float32)
        self.buffers = np.zeros(layout.buffer_count, np.float32)
        self.initial = Weights.owning(empty, self.buffers, layout)
        self.keeps_arrays = True  # False: nobody looks at updates
        self._generator, self._scale = generator, 1.0
        self._update = self._vector()

    @property
    def oracle(self) -> DryTrainer:
        """Itself: it answers with neutral or random losses and gradients."""
        return self

    def loss(self, weights: Weights, members: Sequence[int] | None = None) -> float:
        """A loss of 1, or a random one."""
        if self._generator is None:
            return 1.0
        return self._scale * float(self._generator.uniform(0.5, 1.5))

    def gradient(self, weights: Weights, members: Sequence[int] | None = None) -> Float32:
        """A gradient of zeros, or a random one."""
        return self._vector()

    def _vector(self) -> Float32:
        if self._generator is None:
            return self.initial.parameters
        size = self.initial.parameters.size
        vector: Float32 = self._generator.standard_normal(size, np.float32) * np.float32(0.01)
        vector.setflags(write=False)
        return vector

    def evaluate(self, weights: Weights) -> Evaluation:
        """Nothing is trained, so this says nothing of a model."""
        return Evaluation(None, 0.0)

    def evaluate_devices(self, *_: object) -> list[tuple[float, float]]:
        """Nothing is trained."""
        return []

    def iterate(
        self, start: object, jobs: Any, round_number: int, deliver: Callable[..., Any]
    ) -> Iterator[Any]:
        """The outcome of each job as its delivery decides it, with an empty update."""
        assert isinstance(deliver, Delivery)
        alone = deliver.air is None
        if self._generator is not None:
            self._scale = 10.0 ** self._generator.uniform(-2.0, 1.0)
        for number, update in enumerate(deliver.updates):
            update.loss = self.loss(self.initial)
            corrupt = number in deliver.corrupt
            update.lost = deliver.lost(number) or ("refused" if corrupt and alone else "")
            if not update.lost and self.keeps_arrays:
                update.update, update.buffers = self._update, self.buffers
                update.change = self._update if deliver.keep_change else None
                if corrupt:  # it spoils the sum
                    update.update = np.full_like(self._update, np.nan)
                update.trained = self.initial if deliver.keep_trained else None
            yield update
