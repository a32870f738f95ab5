"""Who sends when: uplinks in turn over one band, first ready first served."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def send_in_turn(ready_seconds: Floats, air_seconds: Floats) -> Floats:
    """When each transmission ends if they share one channel and queue in the order of readiness.

    Those ready at the same time go in the order of their index.
    """
    order = np.argsort(ready_seconds, kind="stable")
    ends = np.empty_like(ready_seconds, dtype=float)
    free = 0.0
    for index in order:
        free = max(free, float(ready_seconds[index])) + float(air_seconds[index])
        ends[index] = free
    return ends
