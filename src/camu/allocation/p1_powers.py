"""The powers of P1: the least noise error that a given amount of transmission energy can buy.

With the signal-to-noise ratio x = p gain / noise of a cluster, its share of the error is w / x^a
and its transmission energy is base * x / ln(1+x), where ``base`` is the infimum as x goes to 0.
Neither the energy nor the set it describes is convex in the power. In the time on the air,
t = 1 / ln(1+x), everything is: the energy base * t (e^(1/t) - 1), the error and the power itself
are convex functions of t. So the Lagrangian with the price of a joule (``price``) and the price of
total power (``power_price``) splits into one equation per cluster with exactly one root, and its
minimum over every cluster is a true lower bound, not a local one.

With circuit power the energy is base * (k + x) / ln(1+x), where k = circuit * efficiency * gain /
noise, and least at ln(1+x) = l = 1 + W((k-1)/e). Powers below that cost more and disturb more, so
only those above count. With 1 + x = e^l (1 + r) the energy above its least value is
base * e^l (r - ln(1+r)) / (l + ln(1+r)): for l = 0 it is the same as before with x = r.

Everything works with u = ln r, which is ln x without circuit power: in logarithms those equations
are almost straight lines, and Newton's method needs a handful of steps for all clusters at once.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from camu.allocation.p1 import Problem
from camu.arrays import Float64

# Below this ratio x the closed forms lose digits to cancellation; the series are exact to 1e-15.
_SERIES_BELOW = 1e-3
_NEVER_ABOVE = 1e-300  # r of a cap that is below the cheapest power
_CLOSE = 1e-12  # relative, of joules and of total power
_LONGEST_STEP = 5.0  # in log price: keeps Newton from leaping off where all powers are capped


class Powers(NamedTuple):
    """The powers that minimise the Lagrangian at given prices, and what they cost."""

    log_ratio: Float64  # u_c = ln r_c
    log_price: float  # of a joule; -inf when energy is free
    log_power_price: float  # of sum p^a; -inf when that cap is slack
    error: float  # the numerator of the objective
    joules: float  # of transmission, above the infimum
    joules_slope: float  # d joules / d log_price, total power kept where it binds
    total_power: float  # sum p^a

    @property
    def price(self) -> float:
        """The multiplier of the energy constraint, for the error (the numerator)."""
        return math.exp(self.log_price)


class _Guard:
    """Newton's method on a decreasing function, kept inside the bracket that it has seen.

    Unguarded steps can cycle: where a power reaches its cap, the slope changes at once.
    """

    def __init__(self) -> None:
        self.low, self.high = -math.inf, math.inf

    def next(self, at: float, miss: float, slope: float) -> float:
        """The next point, given the function's value ``miss`` and slope here."""
        if miss > 0:
            self.low = at
        else:
            self.high = at
        step = -miss / slope if slope < 0 else math.copysign(math.inf, miss)
        following = at + max(-_LONGEST_STEP, min(_LONGEST_STEP, step))
        if self.low < following < self.high:
            return following
        if math.isfinite(self.low) and math.isfinite(self.high):
            return (self.low + self.high) / 2
        return at + math.copysign(_LONGEST_STEP, miss)


class _Point(NamedTuple):
    """One solved equation per cluster, with its sensitivities to both prices."""

    u: Float64
    to_price: Float64  # du / d log_price
    to_power_price: Float64  # du / d log_power_price


class Transmit:
    """The power side of one problem, prepared for many solves."""

    def __init__(self, problem: Problem) -> None:
        a, log_snr = problem.exponent, np.log(problem.snr_per_watt)
        # A weight of zero would send its power to zero exactly, which P1 excludes; the floor
        # leaves such a cluster a power that costs nothing that a double could show.
        floored = np.maximum(problem.weight, problem.weight.max() * 1e-60)
        total, caps = problem.max_total_power_watts, problem.max_power_watts
        self.exponent = a
        self.weight = problem.weight**2 * problem.snr_per_watt ** (a - 1)  # w_c
        self.log_weight = 2 * np.log(floored) + (a - 1) * log_snr
        self.base_joules, self.log_base = problem.base_joules, np.log(problem.base_joules)
        self.log_cap = (
            np.array([math.log(cap) for cap in caps]) + log_snr
        )  # u_c at the leader's cap
        self.nats = problem.cheapest_nats  # l_c
        self.circuit = bool(self.nats.any())
        self.scale = np.exp(self.nats)  # 1 + x at the cheapest power
        if self.circuit:
            above = (np.exp(self.log_cap) - np.expm1(self.nats)) / self.scale
            self.log_cap = np.log(np.maximum(above, _NEVER_ABOVE))
        self.log_scale = -a * log_snr  # ln(p^a) - a u
        self.log_total = math.inf if total is None else math.log(total)
        self.available = problem.spare_joules

    def at_price(self, log_price: float, near: Powers | None = None) -> Powers:
        """The minimiser of the Lagrangian when a joule costs ``exp(log_price)``."""
        start = None if near is None else near.log_ratio
        point, power_price = self._equations(log_price, -math.inf, start), -math.inf
        if self._log_total_power(point.u) > self.log_total:
            hint = -math.inf if near is None else near.log_power_price
            point, power_price = self._price_of_power(log_price, hint, point)
        return self._powers(point, log_price, power_price)

    def for_joules(self, joules: float, near: Powers | None = None) -> Powers:
        """The least error for a given transmission energy above the infimum (it must be > 0)."""
        if self.free.joules <= joules:
            return self.free
        log_price = self.first_guess(joules) if near is None else near.log_price
        if log_price == -math.inf:
            log_price = self.first_guess(joules)
        found, guard = self.at_price(log_price, near), _Guard()
        while abs(miss := math.log(found.joules / joules)) > _CLOSE:
            following = guard.next(log_price, miss, found.joules_slope / found.joules)
            if following == log_price:  # the bracket is one double wide
                break
            log_price = following
            found = self.at_price(log_price, found)
        return found

    @cached_property
    def free(self) -> Powers:
        """The powers when energy costs nothing: only the caps hold them."""
        return self.at_price(-math.inf)

    def power_watts(self, powers: Powers) -> Float64:
        """p_c of a solution, never above the cap."""
        log_ratio = self._log_snr(np.minimum(powers.log_ratio, self.log_cap))
        return np.asarray(np.exp(log_ratio + self.log_scale / self.exponent))

    def _log_snr(self, u: Float64) -> Float64:
        """ln x."""
        return np.log(np.expm1(self.nats) + self.scale * np.exp(u)) if self.circuit else u

    def first_guess(self, joules: float) -> float:
        """The log price for so many joules, exact for small ratios: energy is base (1 + x/2).

        With circuit power it is that of r = 1.
        """
        if self.circuit:
            one = np.zeros_like(self.nats)
            price = math.log(self.exponent) + self.log_weight - self.log_base - self._slope(one)[0]
            return float(np.median(price - (self.exponent + 1) * self._log_snr(one)))
        root = 1 / (self.exponent + 1)
        terms = self.log_base + root * (math.log(2 * self.exponent) + self.log_weight)
        return float(
            (np.logaddexp.reduce(terms - root * self.log_base) - math.log(2 * joules)) / root
        )

    def _equations(self, log_price: float, log_power_price: float, start: Float64 | None) -> _Point:
        """Newton on ln(price * base * g'(x) x^(a+1) + power_price * a * p^a x^a) = ln(a w)."""
        a = self.exponent
        target = math.log(a) + self.log_weight
        first_shift = log_price + self.log_base - target
        second_shift = log_power_price + math.log(a) + self.log_scale - target
        if log_price == -math.inf and log_power_price == -math.inf:
            zero = np.zeros_like(self.log_cap)
            return _Point(self.log_cap, zero, zero)
        if start is None:
            guess = np.minimum(
                (math.log(2) - first_shift) / (a + 1), (math.log(2) - second_shift) / (2 * a)
            )
            start = np.minimum(0.0 if self.circuit else guess, self.log_cap)
        u = start
        for _ in range(100):
            log_slope, curvature = self._slope(u)
            log_snr = self._log_snr(u)
            move = self.scale * np.exp(u - log_snr) if self.circuit else 1.0  # its derivative
            first, second = first_shift + log_slope + (a + 1) * log_snr, second_shift + 2 * a * u
            miss = first if log_power_price == -math.inf else np.logaddexp(first, second)
            share = np.exp(first - miss)
            slope = share * ((a + 1) * move + curvature) + (1 - share) * 2 * a
            moved = np.minimum(u - miss / slope, self.log_cap)
            distance = float(np.abs(moved - u).max())
            u = moved
            if distance < 1e-7:  # convergence is quadratic: the error is now below 1e-13
                break
        inside = u < self.log_cap
        return _Point(u, -share / slope * inside, -(1 - share) / slope * inside)

    def _price_of_power(
        self, log_price: float, power_price: float, point: _Point
    ) -> tuple[_Point, float]:
        """Newton on the total power as a function of its price, in logarithms."""
        if power_price == -math.inf:
            power_price = math.log(self._error(point.u)) - self.log_total
        point = self._equations(log_price, power_price, point.u)
        guard = _Guard()
        while True:
            power = np.exp(self.exponent * point.u + self.log_scale)
            total = float(power.sum())
            miss = math.log(total) - self.log_total
            slope = self.exponent * float((power * point.to_power_price).sum()) / total
            following = guard.next(power_price, miss, slope)
            if abs(miss) <= _CLOSE or following == power_price:
                break
            power_price = following
            point = self._equations(log_price, power_price, point.u)
        return point, power_price

    def _powers(self, point: _Point, log_price: float, log_power_price: float) -> Powers:
        r, base = np.exp(point.u), self.base_joules * self.scale
        above = base * _energy_above(r, self.nats)
        power = np.exp(self.exponent * self._log_snr(point.u) + self.log_scale)
        move = point.to_price
        if log_power_price > -math.inf:
            # While the price of a joule moves, the price of power moves too and keeps the total.
            across = float((power * point.to_power_price).sum())
            ratio = float((power * point.to_price).sum()) / across if across else 0.0
            move = move - ratio * point.to_power_price
        slope = float((base * r * np.exp(self._slope(point.u)[0]) * move).sum())
        return Powers(
            log_ratio=point.u,
            log_price=log_price,
            log_power_price=log_power_price,
            error=self._error(point.u),
            joules=float(above.sum()),
            joules_slope=slope,
            total_power=float(power.sum()),
        )

    def _error(self, u: Float64) -> float:
        return float((self.weight * np.exp(-self.exponent * self._log_snr(u))).sum())

    def _slope(self, u: Float64) -> tuple[Float64, Float64]:
        return _log_slope_above(u, self.nats) if self.circuit else _log_slope(u)

    def _log_total_power(self, u: Float64) -> float:
        if self.log_total == math.inf:
            return -math.inf
        return float(np.logaddexp.reduce(self.exponent * u + self.log_scale))


def _energy_above(r: Float64, nats: Float64) -> Float64:
    """g(r) = (r - ln(1+r)) / (l + ln(1+r)): what a ratio costs above the infimum."""
    small = r < _SERIES_BELOW
    log = np.log1p(np.where(small, 1.0, r))
    if nats.any():
        series = r**2 * (1 / 2 - r * (1 / 3 - r * (1 / 4 - r * (1 / 5 - r / 6))))
        return np.where(small, series, r - log) / (nats + np.log1p(r))
    series = r * (1 / 2 - r * (1 / 12 - r * (1 / 24 - r * 19 / 720)))
    return np.where(small, series, (r - log) / log)


def _log_slope_above(u: Float64, nats: Float64) -> tuple[Float64, Float64]:
    """ln g'(r) and its derivative by u = ln r, with circuit power."""
    r = np.exp(u)
    log, part = np.log1p(r), r / (1 + r)
    series = r**2 * (1 / 2 - r * (2 / 3 - r * (3 / 4 - r * (4 / 5 - r * 5 / 6))))
    rise = np.where(r < _SERIES_BELOW, series, log - part) + nats * part
    total = nats + log
    return (
        np.log(rise) - 2 * np.log(total),
        part * ((r + nats) / (1 + r) / rise - 2 / total),
    )


def _log_slope(u: Float64) -> tuple[Float64, Float64]:
    """ln g'(x) and its derivative by u = ln x."""
    x = np.exp(u)
    small = x < _SERIES_BELOW
    safe = np.where(small, 1.0, x)
    log, part = np.log1p(safe), safe / (1 + safe)
    rest = log - part
    if not small.any():
        return np.log(rest / log**2), part * (part / rest - 2 / log)
    tiny = np.where(small, x, 0.0)
    series = 1 / 2 - tiny * (1 / 6 - tiny * (1 / 8 - tiny * 19 / 180))
    return (
        np.log(np.where(small, series, rest / log**2)),
        np.where(small, -tiny / 3, part * (part / rest - 2 / log)),
    )
