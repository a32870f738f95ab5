"""The separable side of P2: the best powers and ready time at given prices, and what they prove.

At a price of a joule, of a second and a worth of descent, each cluster's power is the root of one
equation, and the time m at which clusters are ready is a problem in one variable.

`least_gap` turns the value of that Lagrangian into a lower bound on the gap for every number of
rounds at once. It rests on an identity: the bound after T rounds is gap_0 - g(d) (gap_0 d - B)
with g(d) = (1 - (1 - d)^T) / d, and 1 / g is convex in d. So a gap below phi means
gap_0 d - B - (gap_0 - phi) / g(d) > 0, where all but the last term is separable by cluster.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from camu.allocation.horizon import HorizonProblem
from camu.arrays import Float64

_SMALL = 1e-3  # below, series replace closed forms that lose digits
_GOLDEN = (math.sqrt(5) - 1) / 2
# Rounding errors of the sums in a bound stay far below this share.
MARGIN = 1e-10


class Prices(NamedTuple):
    """What descent earns, and what a joule and a second of one round cost, in units of B."""

    descent: float  # rho
    joule: float
    second: float


def energy_root(x: Float64) -> Float64:
    """(1 + x) ln(1 + x) - x, which is x^2 / 2 for small x."""
    small = x < _SMALL
    safe = np.where(small, 1.0, x)
    series = x**2 * (1 / 2 - x * (1 / 6 - x * (1 / 12 - x * (1 / 20 - x / 30))))
    return np.where(small, series, (1 + safe) * np.log1p(safe) - safe)


def best_ratio(
    worth: Float64, joule: Float64, second: Float64, cap: Float64, start: Float64 | None = None
) -> Float64:
    """The x <= cap that minimises worth / x + joule x / ln(1+x) + second / ln(1+x).

    Newton's method in ln x on joule ((1+x) ln(1+x) - x) = worth (1+x) ln(1+x)^2 / x^2 + second,
    whose left side grows from 0 and whose right side falls.
    """
    with np.errstate(divide="ignore"):
        top = np.log(cap)
        guess = np.log(2 * (worth + second) / joule) / 2
    u = np.clip(guess, -80.0, top) if start is None else start
    for _ in range(60):
        x = np.exp(u)
        log = np.log1p(x)
        left = joule * energy_root(x)
        square = (1 + x) * (log / x) ** 2
        right = worth * square + second
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = joule * x * log / left
            fall = worth * ((log**2 + 2 * log) / x - 2 * square) / right
            step = (np.log(right) - np.log(left)) / (rise - fall)
        step = np.nan_to_num(np.clip(step, -3.0, 3.0), nan=3.0)  # a free joule: full power
        moved = np.clip(u + step, -80.0, top)
        distance = float(np.abs(moved - u).max())
        u = moved
        if distance < 1e-8:  # convergence is quadratic
            break
    return np.exp(u)


def best_ready(
    cube: Float64, offset: Float64, ratio: float, earliest: NDArray[np.float64], latest: float
) -> NDArray[np.float64]:
    """The m that minimises sum_c cube_c / (m - offset_c)^2 + ratio m, between its limits.

    Rows of ``cube`` and ``offset`` are separate problems. (sum 2 cube / (m - offset)^3)^(-1/3) is
    nearly a straight line in m, so Newton's method on it needs a handful of steps.
    """
    m = np.minimum(earliest, latest)
    if ratio <= 0:
        return np.full_like(m, latest)
    target = ratio ** (-1 / 3)
    tiny = 1e-300
    for _ in range(60):
        room = np.maximum(m[:, None] - offset, tiny)
        pull = (2 * cube / room**3).sum(axis=1)
        bend = (6 * cube / room**4).sum(axis=1)
        line = np.maximum(pull, tiny) ** (-1 / 3)
        slope = line * bend / np.maximum(3 * pull, tiny)
        step = np.where(pull > 0, (target - line) / np.maximum(slope, tiny), 0.0)
        moved = np.clip(m + step, earliest, latest)
        distance = float(np.abs(moved - m).max())
        m = moved
        if distance <= 1e-12 * float(np.abs(m).max()):
            break
    return m


def least_gap(
    problem: HorizonProblem, rounds: Float64, prices: Prices, value: Float64, most: float
) -> Float64:
    """A lower bound on the gap after each number of rounds, for all points of a Lagrangian.

    ``value`` is the largest rho d - B - joule E - second tau over those points, one for each
    number of rounds or broadcast to them; ``most`` is the largest d that any point has.
    """
    budget = prices.joule * problem.energy_joules + prices.second * problem.seconds
    room = value + budget / rounds

    def gap(d: Float64) -> Float64:
        log = np.log1p(-np.minimum(d, 1 - 1e-15)) * rounds
        left = np.exp(log)
        return problem.initial_gap * left - np.expm1(log) / d * (prices.descent * d - room)

    low, high = np.full(room.shape, 1e-12 * most), np.full(room.shape, most)
    first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_first, at_second = gap(first), gap(second)
    best = np.minimum(np.minimum(gap(low), gap(high)), np.minimum(at_first, at_second))
    for _ in range(36):
        lower = at_first <= at_second
        high, low = np.where(lower, second, high), np.where(lower, low, first)
        other = np.where(lower, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_other = gap(other)
        first, second = np.where(lower, other, second), np.where(lower, first, other)
        at_first, at_second = (
            np.where(lower, at_other, at_second),
            np.where(lower, at_first, at_other),
        )
        best = np.minimum(best, at_other)
    return np.asarray(best * (1 - MARGIN) - MARGIN * problem.initial_gap * 1e-4)
