"""Rules over the air for a base station that uses all its antennas: one receive vector, or all.

A burst reaches the antennas as y = sum_k h_k x_k + n. `Beamformed` listens with one vector, so that
the air adds up; `Separated` takes the sum apart again and adds up the units' own updates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from camu.allocation.beamforming import receive_beam, select_devices
from camu.arrays import Float64, Int64
from camu.planning.air import Air, Amplitudes, Senders, aligned
from camu.seeding import Stream, derive
from camu.world.antennas import Complex128, zero_forcing
from camu.world.links import Links


def _scaled(channels: Complex128, power_watts: Float64, weight: Float64) -> Complex128:
    """g_k = h_k sqrt(P_k) / w_k; a unit of no weight limits nobody."""
    scale = np.sqrt(power_watts) / np.maximum(weight, 1e-9)
    return np.asarray(scale[:, None] * channels)


def _starts(links: Links, round_: int) -> Stream:
    """The random starts of the search for a receive vector."""
    return derive(links.seed, "receive-vector", round_)


def units_below_error(
    links: Links,
    round_: int,
    leaders: Int64,
    power_watts: Float64,
    weight: Float64,
    mse_limit: float,
) -> Int64:
    """The most units found whose mean has an error of at most mse_limit in this round.

    The error is sigma^2 / min_k |f^H h_k|^2 P_k / w_k^2, per entry of updates of unit variance.
    """
    scaled = _scaled(links.known_channels(round_)[leaders], power_watts, weight)
    return select_devices(scaled, links.noise_watts / mse_limit, _starts(links, round_))[0]


@dataclass(frozen=True)
class Beamformed(Air):
    """Aligned units, received with the vector f of norm 1 that serves the worst of them best."""

    def amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        known = senders.links.known_channels(senders.round)
        return aligned(replace(senders, gain=np.square(np.abs(_outputs(senders, known)))), squares)

    def true_over_known(self, senders: Senders) -> Complex128:
        """f^H h_k over f^H h'_k."""
        true, known = senders.links.channels, senders.links.known_channels
        ratio = _outputs(senders, true(senders.round)) / _outputs(senders, known(senders.round))
        return np.asarray(ratio)


def _outputs(senders: Senders, channels: Complex128) -> Complex128:
    """f^H h_k of these channels, with the vector f for the channels that are known."""
    own = senders
    known = own.links.known_channels(own.round)[own.leaders]
    scaled = _scaled(known, own.power_watts, own.weight)
    vector = receive_beam(scaled, _starts(own.links, own.round)).vector
    return np.asarray(channels[own.leaders] @ vector.conj())


@dataclass(frozen=True)
class Separated(Air):
    """Every unit sends with all its power, and zero forcing takes their signals apart.

    Unit k is heard with an amplitude of p_k = sqrt(n P_k / ||s_k||^2) and noise of covariance
    sigma^2 (H^H H)^-1 between the units, so that the weighted mean has noise of variance
    sigma^2 v^T Re((H^H H)^-1) v / 2 on every real number, v_k = w_k / p_k.
    """

    combines = True

    def amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        own = senders
        covariance = zero_forcing(own.links.channels(own.round)[own.leaders]).real
        each = own.weight * np.sqrt(squares / (own.symbols * own.power_watts))
        noise = math.sqrt(own.noise_watts * float(each @ covariance @ each) / 2)
        return Amplitudes(own.weight, noise, np.where(squares > 0, own.power_watts, 0.0))
