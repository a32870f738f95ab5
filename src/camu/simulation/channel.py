"""What the uplink does to a unit's update, and which updates the server refuses."""

from __future__ import annotations

import math

import numpy as np

from camu.arrays import Float32
from camu.errors import InputError
from camu.plugins import import_object, is_plugin, user_code
from camu.seeding import Stream


def receive(update: Float32, snr: float, uplink: str, stream: Stream) -> Float32:
    """The update as the base station reads it, at this linear SNR.

    `update`: the leader sends the update scaled to unit power, so its noise relative to the update
    is 1/sqrt(SNR). `weights`: the leader sends raw weights, so the noise of standard deviation
    1/sqrt(SNR) per weight is the same however small the update is (as printed in Appendix I).
    `digital`: bits arrive without error. Otherwise `uplink` names the user's own function
    (update, snr, generator) -> update, with numpy's random generator of this uplink and round.
    """
    if uplink == "digital":
        return update
    if is_plugin(uplink):
        return _own_uplink(update, snr, uplink, stream)
    scale = 1.0 / np.sqrt(snr)
    if uplink == "update":
        scale *= float(np.sqrt(np.mean(np.square(update, dtype=np.float64))))
    noise = stream.numpy().standard_normal(update.shape, dtype=np.float32)
    return update + np.float32(scale) * noise


def _own_uplink(update: Float32, snr: float, name: str, stream: Stream) -> Float32:
    function = import_object(name, "radio.uplink")
    with user_code(f"radio.uplink = {name}", function):
        received = function(update.copy(), snr, stream.numpy())
    array = np.asarray(received)
    if array.shape != update.shape or array.dtype.kind != "f":
        raise InputError(
            f"radio.uplink = {name}: it returned {array.dtype} of shape {array.shape}; return the "
            f"received update, floats of shape {update.shape}"
        )
    return array.astype(np.float32)


def in_outage(snr: float, outage_snr_db: float | None) -> bool:
    """Whether an uplink at this linear SNR fails."""
    return outage_snr_db is not None and 10.0 * np.log10(snr) < outage_snr_db


def refuse(update: Float32, buffers: Float32, limit: float) -> str | None:
    """Why an update must not touch the model, or None."""
    if not (np.isfinite(update).all() and np.isfinite(buffers).all()):
        return "it has entries that are not finite"
    norm = math.sqrt(float(np.square(update, dtype=np.float64).sum()))
    if norm > limit:
        return f"its norm {norm:.3g} exceeds training.max_update_norm = {limit:g}"
    return None
