"""The antennas of a base station: directions of uplinks, and signals that arrive together.

A burst of several devices reaches N_a antennas as y = H s + n, one column of H per device.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.errors import InputError
from camu.world.fading import link_uniform

Complex128 = npt.NDArray[np.complex128]

# Below this sine of the angle to the span of the others, a channel counts as parallel to them: the
# noise of its signal would be 120 dB above that of a device alone.
_SMALLEST_SINE = 1e-6


def steering(seed: int, offset_m: Float64, antennas: int, link: Int64) -> Complex128:
    """The phases of plane waves on the antennas (K, N_a), all of size 1.

    The antennas stand half a wavelength apart on a line along y. `offset_m` (K, 3) is where each
    device is, seen from its base station; a device whose place is not known has a direction of its
    own, drawn as if it were anywhere around. A second draw turns each link as a whole: nobody
    knows a distance to a fraction of the wavelength. `link` (K,) is the base station's end of each
    link in those draws.
    """
    device = np.arange(len(offset_m))
    distance = np.sqrt(np.square(offset_m).sum(axis=1))
    with np.errstate(invalid="ignore"):
        sine = np.where(distance == 0.0, 0.0, offset_m[:, 1] / distance)
    if np.isnan(sine).any():
        around = np.sin(2.0 * math.pi * link_uniform(seed, "direction-uplink", device, link))
        sine = np.where(np.isnan(sine), around, sine)
    turn = 2.0 * link_uniform(seed, "phase-uplink", device, link)
    half_turns = turn[:, None] - np.arange(antennas) * sine[:, None]
    return np.asarray(np.exp(1j * math.pi * half_turns), dtype=np.complex128)


def zero_forcing(channels: npt.ArrayLike) -> Complex128:
    """The noise on signals that are taken apart, per unit of noise power: its covariance (C, C).

    `channels` (C, N_a) are those of the devices that send together. The receiver computes
    (H^H H)^-1 H^H y, which leaves noise of covariance (H^H H)^-1 on the signals. Its diagonal is at
    least 1 / ||h_c||^2, and equal to it where the channels are orthogonal.
    """
    rows = np.asarray(channels, dtype=np.complex128)
    devices, antennas = rows.shape
    if antennas < devices:
        raise InputError(
            f"radio.antennas = {antennas}: the signals of {devices} devices that send together can "
            f"only be taken apart with at least {devices} antennas"
        )
    size = np.sqrt(np.square(np.abs(rows)).sum(axis=1))
    # Of directions alone: gains of devices differ by many powers of ten.
    triangle = np.linalg.qr((rows / size[:, None]).T, mode="r")
    if (np.abs(np.diag(triangle)) < _SMALLEST_SINE).any():
        raise _parallel(antennas)
    inverse = np.linalg.inv(triangle)
    covariance = inverse @ inverse.conj().T
    # The diagonal is 1 / sine^2 of each channel's angle to the span of the others.
    if (covariance.diagonal().real > _SMALLEST_SINE**-2).any():
        raise _parallel(antennas)
    return np.asarray(covariance / (size[:, None] * size), dtype=np.complex128)


def _parallel(antennas: int) -> InputError:
    return InputError(
        f"radio.antennas = {antennas}: the channels of devices that send together are nearly "
        "parallel, so their signals cannot be taken apart; use more antennas, fewer clusters or "
        "another reading"
    )
