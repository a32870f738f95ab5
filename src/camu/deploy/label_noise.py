"""Label counts with noise, so that no single sample can be told from a node's report.

Each count gets the difference of two geometric variables (discrete Laplace) with parameter
epsilon. A sample that is added or removed changes one count by 1, so a report is
epsilon-differentially private for the samples of a device. The noise is drawn from a secret of the
node and the counts themselves: the same data always give the same report, so that asking again
teaches nothing.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Sequence

import numpy as np

from camu.seeding import derive

EPSILON = 1.0  # unless the node's owner gives another one


def noisy_counts(
    counts: Sequence[int], epsilon: float, secret: bytes, device: str
) -> tuple[int, ...]:
    """The counts with noise, never below 0; at least one of them is 1, as a device has samples."""
    text = f"{device}\x1f{epsilon!r}\x1f{','.join(map(str, counts))}".encode()
    seed = int.from_bytes(hmac.digest(secret, text, "sha256"), "big")
    generator = derive(seed, "label-counts").numpy()
    stop = -math.expm1(-epsilon)  # 1 - exp(-epsilon)
    more, less = generator.geometric(stop, size=(2, len(counts)))
    noisy = np.maximum(np.asarray(counts, dtype=np.int64) + more - less, 0)
    if not noisy.any():
        noisy[int(np.argmax(counts))] = 1
    return tuple(noisy.tolist())
