"""Sparse updates in few measurements over the air: a random projection, and AMP to undo it.

The projection needs the memory of a few vectors, not of a matrix of s x q numbers: it shuffles the
entries, turns the signs of half of them at random, and keeps s of the q entries of an orthonormal
cosine transform. For approximate message passing (Donoho, Maleki, Montanari, PNAS 2009) it is as
good as a matrix of independent normal numbers of variance 1/s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from camu.arrays import Float32, Float64, Int64
from camu.planning.air import Air, Amplitudes, Reception, Senders
from camu.planning.codecs import Encoded, Sparse
from camu.seeding import Stream, derive


class LinearMap(Protocol):
    """A matrix A that is known by what it does."""

    def forward(self, vector: Float64) -> Float64:
        """A x."""
        ...

    def adjoint(self, measured: Float64) -> Float64:
        """A^T y."""
        ...


@dataclass(frozen=True, eq=False)
class Projection:
    """A matrix of s rows and q columns whose rows are orthogonal, of squared length q/s."""

    order: Int64  # (q,) in which the entries are taken
    signs: Float64  # (q,) 1 or -1
    rows: Int64  # (s,) of the cosine transform

    @classmethod
    def drawn(cls, measurements: int, parameters: int, stream: Stream) -> Projection:
        """The projection of a stream; sender and receiver draw the same one."""
        generator = stream.numpy()
        return cls(
            order=generator.permutation(parameters),
            signs=generator.choice(np.array([-1.0, 1.0]), parameters),
            rows=np.sort(generator.permutation(parameters)[:measurements]),
        )

    @property
    def _scale(self) -> float:
        return math.sqrt(len(self.order) / len(self.rows))

    def forward(self, vector: Float64) -> Float64:
        from scipy.fft import dct  # deferred: few runs need it

        turned = dct(self.signs * vector[self.order], norm="ortho")
        return np.asarray(self._scale * turned[self.rows], dtype=np.float64)

    def adjoint(self, measured: Float64) -> Float64:
        from scipy.fft import idct

        whole = np.zeros(len(self.order))
        whole[self.rows] = self._scale * measured
        result = np.empty(len(self.order))
        result[self.order] = self.signs * idct(whole, norm="ortho")
        return result


def soft_threshold(vector: Float64, threshold: float) -> Float64:
    """Each entry moved towards zero by the threshold; smaller ones become zero."""
    return np.asarray(np.sign(vector) * np.maximum(np.abs(vector) - threshold, 0.0))


def recover(matrix: LinearMap, measured: Float64, threshold: float, steps: int) -> Float64:
    """The sparse x in y = A x + noise, by approximate message passing.

        r = x + A^T z;  x = soft(r, c ||z|| / sqrt(s));  z = y - A x + z ||x||_0 / s

    ||z||^2 / s estimates the noise on r, which is that of the measurements plus the error of x per
    measurement; so the x with the smallest ||z|| is returned. If y has as many entries as x, the
    matrix is orthonormal, and its inverse loses nothing.
    """
    rows, residual = len(measured), measured
    pulled = matrix.adjoint(measured)  # r
    if len(pulled) == rows:
        return pulled
    best, smallest = pulled, math.inf
    for _ in range(steps):
        noise = float(np.linalg.norm(residual)) / math.sqrt(rows)
        estimate = soft_threshold(pulled, threshold * noise)
        memory = residual * (np.count_nonzero(estimate) / rows)
        residual = measured - matrix.forward(estimate) + memory
        pulled = estimate + matrix.adjoint(residual)
        size = float(np.linalg.norm(residual))
        if size < smallest:
            best, smallest = estimate, size
    return best


@lru_cache(maxsize=2)
def _projection(seed: int, parameters: int, measurements: int) -> Projection:
    """The matrix A that all devices and the server share."""
    return Projection.drawn(measurements, parameters, derive(seed, "projection"))


@dataclass(frozen=True)
class Projected(Air):
    """Unit k sends sqrt(a_k) (A x_k, pilot): x_k are its largest entries, the rest it keeps.

    The server divides what it hears by the last number, so that it needs no amplitudes: it has the
    mean of the x_k with weights sqrt(a_k), projected, with noise.
    """

    seed: int
    parameters: int  # q
    measured_share: float  # measurements s, as a share of q
    sent_share: float  # entries of x_k that are not zero
    threshold: float  # c of AMP
    steps: int  # of AMP
    pilot: float
    report_bits = 0  # the pilot tells the scale

    @property
    def measurements(self) -> int:
        """s, the number of rows of A."""
        return max(1, round(self.measured_share * self.parameters))

    @property
    def matrix(self) -> Projection:
        """A."""
        return _projection(self.seed, self.parameters, self.measurements)

    def symbols(self, parameters: int) -> int:
        return math.ceil((self.measurements + 1) / 2)

    def encode(self, update: Float32, memory: Float32 | None, stream: Stream) -> Encoded:
        largest, rest = Sparse(self.sent_share).encode(update, memory, stream)
        measured = self.matrix.forward(largest.astype(np.float64))
        return np.append(measured, self.pilot).astype(np.float32), rest

    def amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        """Each unit arrives with a power in proportion to w_k^2; the weakest sends at P_k."""
        own, weight = senders, np.maximum(senders.weight, 1e-9)  # one of no weight limits nobody
        power = weight**2 * (own.power_watts * own.gain / weight**2).min() / own.gain
        root = np.sqrt(own.symbols * power * own.gain / squares)
        return Amplitudes(root, math.sqrt(own.noise_watts / 2), power)

    def estimate(self, received: Reception) -> Float64:
        """AMP on A sum_k sqrt(a_k) x_k / sum_k sqrt(a_k), both received with noise."""
        heard = received.noisy()[: self.measurements + 1]
        if heard[-1] == 0.0:  # nobody sent anything, as in a dry run
            return np.zeros(self.parameters)
        mean = heard[:-1] * (self.pilot / heard[-1])
        return recover(self.matrix, mean, self.threshold, self.steps)
