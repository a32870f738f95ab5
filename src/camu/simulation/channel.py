"""What the uplink does to a unit's update, and which updates the server refuses."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from camu.seeding import Stream

Floats = npt.NDArray[np.float32]


def receive(update: Floats, snr: float, uplink: str, stream: Stream) -> Floats:
    """The update as the base station reads it, at this linear SNR.

    `update`: the leader sends the update scaled to unit power, so its noise relative to the update
    is 1/sqrt(SNR). `weights`: the leader sends raw weights, so the noise of standard deviation
    1/sqrt(SNR) per weight is the same however small the update is (as printed in Appendix I).
    `digital`: bits arrive without error.
    """
    if uplink == "digital":
        return update
    scale = 1.0 / np.sqrt(snr)
    if uplink == "update":
        scale *= float(np.sqrt(np.mean(np.square(update, dtype=np.float64))))
    noise = stream.numpy().standard_normal(update.shape, dtype=np.float32)
    return update + np.float32(scale) * noise


def in_outage(snr: float, outage_snr_db: float | None) -> bool:
    """Whether an uplink at this linear SNR fails."""
    return outage_snr_db is not None and 10.0 * np.log10(snr) < outage_snr_db


def refuse(update: Floats, buffers: Floats, limit: float) -> str | None:
    """Why an update must not touch the model, or None."""
    if not (np.isfinite(update).all() and np.isfinite(buffers).all()):
        return "it has entries that are not finite"
    norm = math.sqrt(float(np.square(update, dtype=np.float64).sum()))
    if norm > limit:
        return f"its norm {norm:.3g} exceeds training.max_update_norm = {limit:g}"
    return None
