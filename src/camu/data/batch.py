"""How many samples a mini-batch has: one rule for what is trained and for what it costs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def batch_samples(batch: float, samples: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Samples in one mini-batch of each device.

    `batch` up to 1 is a fraction of the device's own data, rounded up, so that a fraction 1/n cuts
    the data into n batches and none of them is a small rest; above 1 it is a number of samples. A
    device takes at least one sample and never more than it holds.
    """
    held = np.asarray(samples, dtype=np.int64)
    wanted = np.ceil(batch * held - 1e-9) if batch <= 1 else np.rint(np.minimum(batch, held))
    return np.minimum(np.maximum(wanted.astype(np.int64), 1), held)
