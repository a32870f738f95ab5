"""One receive vector for devices that send together, and the largest set that it serves.

The devices of a burst align their signals at the output f^H y of the receiver, ||f|| = 1. With
channels scaled by power and weight, g_k = h_k sqrt(P_k) / w_k, the error of the aggregate per
symbol of unit variance is sigma^2 / t, where

    t = min over k of |f^H g_k|^2.

Largest t over f: not convex. The relaxation with M in place of f f^H has the dual

    minimise over the simplex    lambda_max(sum_k lambda_k g_k g_k^H),

whose every point is an upper bound on t. A barrier method solves it; eigenvectors and random
vectors of M start an ascent that linearises |f^H g_k| (see `_climb`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.seeding import Stream

_Complex = npt.NDArray[np.complex128]

_DRAWS = 100  # random vectors of the relaxed answer
_STARTS = 6  # the best of them, from which ascents start
_FIRST_STEPS = 8  # of every ascent; the best one goes on
_STEPS = 100  # at most
_TRIES = 50  # devices that are tried again
_NEWTON_STEPS = 200  # at most
_CLOSED = 1e-8  # relative gap at which the relaxation counts as solved
_RISE = 1e-7  # relative rise below which an ascent ends


@dataclass(frozen=True, eq=False)
class Beam:
    """A receive vector, what it reaches, and what no vector can exceed."""

    vector: _Complex  # f, of norm 1
    worst: float  # t, the smallest |f^H g_k|^2
    bound: float  # at least the largest t
    multipliers: Float64  # lambda, how much each device limits the bound; adds up to 1

    @property
    def gap(self) -> float:
        """How far below the bound the vector may be, relative to the bound."""
        return max(0.0, 1.0 - self.worst / self.bound)

    def seen_from(self, base: _Complex, unit: float) -> Beam:
        """The same in the space of the antennas, and in a unit of power."""
        vector = np.asarray(base @ self.vector)
        return Beam(vector, self.worst * unit, self.bound * unit, self.multipliers)


def receive_beam(channels: npt.ArrayLike, stream: Stream) -> Beam:
    """The receive vector that serves the worst of these devices best.

    `channels` (K, N_a) are scaled by power and weight; random vectors come from the stream.
    """
    base, rows, unit = _coordinates(channels)
    return _beam(rows, _relax(rows), stream).seen_from(base, unit)


def select_devices(channels: npt.ArrayLike, target: float, stream: Stream) -> tuple[Int64, Beam]:
    """As many devices as possible with t >= target, and their receive vector.

    Devices that cannot reach the target alone are out. While the others together cannot, those
    that limit the bound most leave: one, or of many the twentieth part where the bound proves that
    some must. Then the strongest of those outside are tried again. If nobody reaches the target,
    the strongest device is alone.
    """
    base, rows, unit = _coordinates(channels)
    target, power = target / unit, _power(rows)
    able = np.flatnonzero(power >= target)
    chosen = able if len(able) else np.array([int(power.argmax())])
    while True:
        relaxed = _relax(rows[chosen])
        proven = relaxed.bound < target and len(chosen) > 1
        if not proven:
            beam = _beam(rows[chosen], relaxed, stream)
            if beam.worst >= target or len(chosen) == 1:
                break
        leave = max(1, len(chosen) // 20) if proven else 1
        chosen = np.sort(chosen[np.argsort(relaxed.multipliers, kind="stable")[:-leave]])
    outside = np.setdiff1d(able, chosen)
    for device in outside[np.argsort(-power[outside], kind="stable")][:_TRIES].tolist():
        more = np.sort(np.append(chosen, device))
        vector = _climb(rows[more], beam.vector, _FIRST_STEPS)
        if _worst(rows[more], vector) >= target:
            chosen, beam = more, replace(beam, vector=vector)
    return chosen, _beam(rows[chosen], _relax(rows[chosen]), stream, beam.vector).seen_from(
        base, unit
    )


def _coordinates(channels: npt.ArrayLike) -> tuple[_Complex, _Complex, float]:
    """An orthonormal base of the channels' span (N_a, N), coordinates (K, N), a unit of power.

    No part of f outside the span helps. The unit is the power of the weakest device.
    """
    base, triangle = np.linalg.qr(np.asarray(channels, dtype=np.complex128).T)
    rows = np.asarray(triangle.T)
    unit = float(_power(rows).min())
    return base, rows / np.sqrt(unit), unit


class _Relaxed(NamedTuple):
    """The answer to the relaxation: M of trace 1, the multipliers, the bound."""

    matrix: _Complex
    multipliers: Float64
    bound: float


def _beam(rows: _Complex, relaxed: _Relaxed, stream: Stream, known: _Complex | None = None) -> Beam:
    """The best vector found, or a known one if that is better."""
    vector = _rounded(rows, relaxed, stream)
    if known is not None and _worst(rows, known) > _worst(rows, vector):
        vector = known
    worst = _worst(rows, vector)
    return Beam(vector, worst, max(worst, relaxed.bound), relaxed.multipliers)


def _power(rows: _Complex) -> Float64:
    return np.asarray(np.square(np.abs(rows)).sum(axis=1), dtype=np.float64)


def _worst(rows: _Complex, vector: _Complex) -> float:
    return float(np.square(np.abs(rows.conj() @ vector)).min())


def _relax(rows: _Complex) -> _Relaxed:
    """The relaxation's answer.

    Newton's method on tau / mu - log det(tau I - sum_k lambda_k g_k g_k^H) - sum_k log lambda_k
    with sum_k lambda_k = 1, for smaller and smaller mu. On this path the bound is at most
    mu (K + N_a) above the relaxation, and M is the inverse of the matrix in it, scaled.
    """
    count, size = rows.shape
    shares = 1.0 / _power(rows)  # strong devices hardly limit the bound
    shares /= shares.sum()
    bound = _largest(rows, shares)
    best, multipliers, tau, mu = bound, shares, 2.0 * bound, bound
    inverse = np.eye(size, dtype=np.complex128)
    for _ in range(_NEWTON_STEPS):
        inverse = _inverse(rows, tau, shares)
        if mu * (count + size) <= _CLOSED * best:
            break
        step, decrement = _newton(rows, shares, inverse, mu)
        tau, shares = _moved(rows, tau, shares, step)
        bound = _largest(rows, shares)
        if bound < best:
            best, multipliers = bound, shares
        if decrement < 0.5:
            mu *= 0.1
    return _Relaxed(inverse / np.trace(inverse).real, multipliers, best)


def _newton(rows: _Complex, shares: Float64, inverse: _Complex, mu: float) -> tuple[Float64, float]:
    """The step in (lambda, tau) that keeps the sum of lambda, and its length in the metric."""
    count = len(shares)
    once = rows.conj() @ inverse  # rows g_k^H W
    gram = once @ rows.T
    gradient = np.append(gram.diagonal().real - 1.0 / shares, 1.0 / mu - np.trace(inverse).real)
    system = np.zeros((count + 2, count + 2))
    system[:count, :count] = np.square(np.abs(gram)) + np.diag(shares**-2)
    system[:count, count] = system[count, :count] = -np.square(np.abs(once)).sum(axis=1)
    system[count, count] = np.square(np.abs(inverse)).sum()
    # Scaled by the size of each variable, so that very unequal shares do no harm.
    scale = np.append(shares, system[count, count] ** -0.5)
    system[:-1, :-1] *= scale[:, None] * scale
    system[:count, -1] = system[-1, :count] = shares
    step = np.linalg.solve(system, np.append(-gradient * scale, 0.0))[:-1]
    return step * scale, float(np.sqrt(max(0.0, -(gradient * scale) @ step)))


def _moved(rows: _Complex, tau: float, shares: Float64, step: Float64) -> tuple[float, Float64]:
    """The longest of some steps that stays well inside."""
    room = tau - _largest(rows, shares)
    for damping in 0.6 ** np.arange(60):
        after = shares + damping * step[:-1]
        top = tau + damping * step[-1]
        if (after > 0.1 * shares).all():
            after /= after.sum()
            if top - _largest(rows, after) > 0.1 * room:
                return top, after
    return tau, shares


def _inverse(rows: _Complex, tau: float, shares: Float64) -> _Complex:
    room = tau * np.eye(rows.shape[1]) - (rows.T * shares) @ rows.conj()
    return np.asarray(np.linalg.inv(room), dtype=np.complex128)


def _largest(rows: _Complex, shares: Float64) -> float:
    """lambda_max(sum_k lambda_k g_k g_k^H)."""
    return float(np.linalg.eigvalsh((rows.T * shares) @ rows.conj())[-1])


def _rounded(rows: _Complex, relaxed: _Relaxed, stream: Stream) -> _Complex:
    """The best vector that ascents from good starts reach."""
    values, vectors = np.linalg.eigh(relaxed.matrix)
    parts = stream.numpy().standard_normal((2, _DRAWS, len(values)))
    drawn = (parts[0] + 1j * parts[1]) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    alone = rows[_power(rows).argmin()]  # the best one for the weakest device
    starts = np.vstack([vectors[:, -1], alone, drawn])
    starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    worst = np.square(np.abs(starts @ rows.conj().T)).min(axis=1)
    order = [0, 1, *(2 + np.argsort(-worst[2:], kind="stable")[:_STARTS])]
    best: _Complex = starts[0]
    reached = -1.0
    for start in starts[order]:
        vector = _climb(rows, start, _FIRST_STEPS)
        own = _worst(rows, vector)
        if own > reached:
            best, reached = vector, own
        if reached >= relaxed.bound * (1.0 - _CLOSED):
            return best
    return _climb(rows, best, _STEPS)


def _climb(rows: _Complex, vector: _Complex, steps: int) -> _Complex:
    """Raise the smallest |f^H g_k| until it stays.

    With the phases of g_k^H f held, min_k Re(e^-j.. g_k^H f) is a lower bound on it that is exact
    here and concave. Its largest value over ||f|| <= 1 is the distance of the convex hull of the
    turned channels from zero, and f points to the hull's nearest point.
    """
    from scipy.optimize import nnls  # deferred: only bursts need it

    reached, size = np.sqrt(_worst(rows, vector)), np.sqrt(_power(rows).min())
    for _ in range(steps):
        outputs = rows.conj() @ vector
        turned = rows * np.exp(1j * np.angle(outputs))[:, None]
        flat = np.hstack([turned.real, turned.imag]).T
        # The nearest point of a hull as least squares: its shares, up to a factor.
        shares, _ = nnls(np.vstack([flat, np.full(len(rows), size)]), np.eye(len(flat) + 1)[-1])
        point = shares @ turned
        length = float(np.linalg.norm(point))
        if length == 0.0:
            break
        after = point / length
        own = np.sqrt(_worst(rows, after))
        if own <= reached * (1.0 + _RISE):
            break
        vector, reached = after, own
    return vector
