"""Packets on the uplink: how often an update is sent until it arrives, and whether it does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, from_decibels
from camu.config import Config
from camu.seeding import derive

WATERFALL = float(from_decibels(0.023))  # Chen et al. 2021


def packet_error(snr: npt.ArrayLike) -> Float64:
    """Probability that an update is lost: 1 - exp(-m (I + N) / (p g)), Chen et al. 2021, eq. (7).

    m is the waterfall threshold, 0.023 dB, and the linear SNR is p g / (I + N).
    """
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(-WATERFALL / np.asarray(snr, float)))


def mean_tries(error: Float64, most: int) -> Float64:
    """How often an update is sent on average, if each try fails with this probability."""
    tries = np.divide(
        1 - error**most, 1 - error, out=np.full(error.shape, float(most)), where=error < 1
    )
    return np.asarray(tries, dtype=np.float64)


def drawn_tries(config: Config, round_: int, leaders: npt.ArrayLike, error: Float64) -> Float64:
    """How often each leader sends in a round until its update arrives; infinite: it never does.

    One number in (0, 1) per leader and round decides: that it is below error^i means that i tries
    have failed. All tries of a round meet the same fade.
    """
    own = [
        derive(config.run.seed, "packet", round_, int(leader)).numpy().random()
        for leader in np.atleast_1d(leaders)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        failed = np.floor(np.log(own) / np.log(error))
    failed = np.where(error >= 1, np.inf, np.where(error <= 0, 0.0, failed))
    return np.where(failed >= config.radio.packet_tries, np.inf, failed + 1)
