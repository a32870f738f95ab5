"""Bandwidth, power and frequency under OFDMA: the problem, and the best answer at a price of band.

Yang, Chen, Saad, Hong, Shikh-Bahaei, Energy efficient federated learning over wireless
communication networks, IEEE TWC 20(3), 2021; here one round of given local work:

    minimise   sum_k kappa_k C_k^3 / tau_k^2 + static_k tau_k
                     + n_k / eta t_k b_k (e^(s ln 2 / (t_k b_k)) - 1) + circuit t_k
    subject to sum_k b_k <= B,   t_k + tau_k <= D,   tau_k >= C_k / max_hz_k,   p_k <= max_power_k

Device k computes for tau_k seconds and sends for t_k seconds over b_k hertz. The paper knows no
static, circuit and eta; without them both fill the deadline D, with them a device may end before.
The problem is jointly convex in t, b and tau. So at a price L of a hertz every device has its own
best answer, and the L at which all just fill the band B gives the optimum and its certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from camu.allocation.device_problem import DeviceProblem
from camu.allocation.document import Positive
from camu.allocation.shannon import limited_nats, priced_nats
from camu.arrays import Float64

_MARGIN = 1e-9  # a deadline must be this much longer than the least; shorter has no price
_TINY = 1e-12
_HALVINGS, _SECANTS = 12, 14


@dataclass(frozen=True, eq=False, kw_only=True)
class OfdmaProblem(DeviceProblem):
    """What both problems under OFDMA share: everything but the limit."""

    @cached_property
    def compute_seconds(self) -> Float64:
        """Of each device at its largest frequency."""
        return self.cycles / self.max_hz

    @cached_property
    def least_air_seconds(self) -> Float64:
        """The time in which each device could send at its largest power over any bandwidth."""
        return self.noise * self.nats / self.max_power_watts

    @cached_property
    def least_compute_joules(self) -> float:
        """The infimum of all computing: at the cheapest frequencies, however long it takes."""
        hertz = np.where(self.cheapest_hz > 0.0, self.cheapest_hz, 1.0)
        return float(np.where(self.cheapest_hz > 0.0, self.compute_joules(hertz), 0.0).sum())

    @cached_property
    def least_joules(self) -> float:
        """The energy that no deadline suffices for, circuits apart: the least per cycle and nat."""
        return float((self.drawn_noise * self.nats).sum()) + self.least_compute_joules

    @cached_property
    def least_seconds(self) -> float:
        """The least deadline: all devices at their largest powers and frequencies."""
        low = float((self.compute_seconds + self.least_air_seconds).max()) * (1 + _TINY)
        high = 2.0 * low
        while self._missing_band(high) > 0.0:
            high *= 2.0
        from scipy.optimize import brentq  # loading it takes long

        root = brentq(self._missing_band, low, high, xtol=_TINY * low, rtol=_TINY)
        while self._missing_band(root) > 0.0:
            root *= 1.0 + _TINY
        return float(root)

    @property
    def shortest_deadline(self) -> float:
        """The least deadline that is accepted."""
        return self.least_seconds * (1.0 + _MARGIN)

    def _missing_band(self, deadline: float) -> float:
        """log of the band that is needed at full power and frequency, over the band there is."""
        air = deadline - self.compute_seconds
        x = np.minimum(limited_nats(self.least_air_seconds / air), self.most_nats)
        with np.errstate(divide="ignore"):
            needed = float((self.nats / (air * x)).sum())
        return float(np.log(min(needed, 1e300) / self.bandwidth_hz))


@dataclass(frozen=True, eq=False, kw_only=True)
class OfdmaEnergy(OfdmaProblem):
    """The least energy of a round under a deadline."""

    kind: ClassVar = "ofdma-energy"
    deadline_seconds: Positive


@dataclass(frozen=True, eq=False, kw_only=True)
class OfdmaTime(OfdmaProblem):
    """The shortest round under a budget of energy."""

    kind: ClassVar = "ofdma-time"
    energy_joules: Positive


class Point(NamedTuple):
    """The best answer of every device at a price of a hertz."""

    air_seconds: Float64  # t_k
    bandwidth_hz: Float64  # b_k
    slope: Float64  # of the device's cost, in the deadline
    value: float  # at most the sum over devices of energy plus price times bandwidth


def best_point(problem: OfdmaProblem, deadline: float, price: float) -> Point:
    """The t_k and b_k that minimise energy plus price times bandwidth, by bisection and secants.

    Where the slope at the largest t_k is negative that t_k is the best. `value` is safe: by
    convexity the minimum is no lower than the value at an end of the last interval, less the slope
    there times its length.
    """
    last = deadline - problem.compute_seconds
    low, high = np.log(problem.least_air_seconds * (1.0 + _TINY)), np.log(last)
    below, above = np.full(problem.size, -1.0), np.full(problem.size, 1.0)  # slopes at both ends
    for step in range(_HALVINGS + _SECANTS):
        if step == 0 and problem.cheapest_hz.any():
            middle = np.clip(_bend(problem, deadline), low, high)  # smooth on both sides of it
        elif step < _HALVINGS:
            middle = 0.5 * (low + high)
        else:
            middle = np.clip(low - below * (high - low) / (above - below), low, high)
        here = _slope(problem, deadline, price, np.exp(middle))[0]
        rises = here > 0.0
        # An end that stays counts half in the next secant, so that both ends close in.
        below, above = np.where(rises, below / 2, here), np.where(rises, here, above / 2)
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    falls = _slope(problem, deadline, price, last)[0] <= 0.0
    low, high = np.exp(low), np.where(falls, last, np.exp(high))
    total, sending, band = _slope(problem, deadline, price, high)
    cost = device_joules(problem, deadline, high, band) + price * band
    safe = cost - np.maximum(total, 0.0) * np.maximum(high - low, 0.0)
    # More time goes to sending at the largest frequency, and can otherwise go to computing.
    slope = np.where(falls, sending, sending - total)
    return Point(high, band, slope, float(safe.sum()))


def _bend(problem: OfdmaProblem, deadline: float) -> Float64:
    """The logarithm of the t_k from which on computing is faster than is cheapest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left = deadline - problem.cycles / problem.cheapest_hz
        return np.where(left > 0.0, np.log(left), -np.inf)


def _slope(
    problem: OfdmaProblem, deadline: float, price: float, air: Float64
) -> tuple[Float64, Float64, Float64]:
    """Derivative in t_k of the whole cost and of sending alone, and the best bandwidth.

    The bandwidth is the one that its price asks for, or what the largest power and the code need.
    """
    nats, cycles = problem.nats, problem.cycles
    free = np.minimum(priced_nats(price / (problem.drawn_noise * air)), problem.most_nats)
    limit = limited_nats(problem.least_air_seconds / air)
    band = nats / (air * np.minimum(free, limit))
    most_watts = problem.max_power_watts / problem.amplifier_efficiency
    at_limit = most_watts - price * nats / (air**2 * (limit + np.expm1(-limit)))
    sending = np.where(limit < free, at_limit, -price * band / air) + problem.circuit_watts
    with np.errstate(divide="ignore", invalid="ignore"):
        computing = 2.0 * problem.capacitance * (cycles / (deadline - air)) ** 3
    # Who would compute for longer than is cheapest ends before the deadline.
    computing = np.where(cycles > 0.0, np.maximum(computing - problem.static_watts, 0.0), 0.0)
    return computing + sending, sending, band


def frequencies(problem: OfdmaProblem, deadline: float, air: Float64) -> Float64:
    """f_k: as slow as the deadline allows and is cheapest; the largest with nothing to compute."""
    left = np.where(problem.cycles > 0.0, deadline - air, 1.0)
    slow = np.where(problem.cycles > 0.0, problem.cycles / left, problem.max_hz)
    return np.minimum(np.maximum(slow, problem.cheapest_hz), problem.max_hz)


def device_joules(
    problem: OfdmaProblem, deadline: float, air: Float64, bandwidth_hz: Float64
) -> Float64:
    """What a round costs each device."""
    computing = problem.compute_joules(frequencies(problem, deadline, air))
    return computing + problem.transmit_joules(air, bandwidth_hz)
