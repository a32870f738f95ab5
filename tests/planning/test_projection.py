"""Sparse vectors in few measurements: the projection as a matrix, and AMP against its theory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pytest
from scipy.fft import dct
from scipy.integrate import quad
from scipy.stats import norm

from camu.arrays import Float64
from camu.planning.codecs import Sparse
from camu.planning.projection import LinearMap, Projection, recover, soft_threshold
from camu.seeding import derive


class Dense(NamedTuple):
    matrix: Float64

    def forward(self, vector: Float64) -> Float64:
        return self.matrix @ vector

    def adjoint(self, measured: Float64) -> Float64:
        return self.matrix.T @ measured


def projection(rows: int, columns: int, seed: int = 0) -> Projection:
    return Projection.drawn(rows, columns, derive(seed, "own-test"))


def sparse(count: int, entries: int, seed: int) -> Float64:
    draw = np.random.default_rng(seed)
    vector = np.zeros(count)
    vector[draw.permutation(count)[:entries]] = draw.standard_normal(entries)
    return vector


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 7), (7, 7), (12, 40)])
def test_it_is_a_matrix_with_orthogonal_rows(rows: int, columns: int) -> None:
    own = projection(rows, columns)
    matrix = np.column_stack([own.forward(unit) for unit in np.eye(columns)])
    assert matrix @ matrix.T == pytest.approx(columns / rows * np.eye(rows), abs=1e-12)
    back = np.column_stack([own.adjoint(unit) for unit in np.eye(rows)])
    assert back == pytest.approx(matrix.T, abs=1e-12)
    cosines = dct(np.eye(columns), norm="ortho", axis=0)[own.rows] * own.signs
    plain = np.empty_like(cosines)
    plain[:, own.order] = cosines
    assert matrix == pytest.approx(np.sqrt(columns / rows) * plain, abs=1e-12)


def test_the_adjoint_has_the_same_inner_products() -> None:
    own, draw = projection(500, 1001), np.random.default_rng(3)
    vector, measured = draw.standard_normal(1001), draw.standard_normal(500)
    forward = own.forward(vector) @ measured
    assert forward == pytest.approx(vector @ own.adjoint(measured), rel=1e-12)


def test_a_stream_is_one_projection() -> None:
    one, same, other = projection(5, 20), projection(5, 20), projection(5, 20, seed=1)
    vector = np.arange(20.0)
    assert (one.forward(vector) == same.forward(vector)).all()
    assert (one.forward(vector) != other.forward(vector)).any()


@pytest.mark.parametrize("entries", [20, 100, 200])  # at most a tenth, with half the measurements
def test_a_sparse_vector_is_found_exactly_without_noise(entries: int) -> None:
    vector, own = sparse(2000, entries, 5), projection(1000, 2000)
    found = recover(own, own.forward(vector), 1.4, 100)
    assert np.linalg.norm(found - vector) < 1e-6 * np.linalg.norm(vector)


def test_too_many_entries_are_not_found_but_the_answer_stays_finite() -> None:
    """Beyond the phase transition, at about 0.19 q entries for s = q / 2."""
    vector, own = sparse(2000, 700, 5), projection(1000, 2000)
    error = np.linalg.norm(recover(own, own.forward(vector), 1.4, 200) - vector)
    assert 0.05 < error / np.linalg.norm(vector) < 1


def predicted_error(entries: int, rows: int, columns: int, noise: float, c: float) -> float:
    """The error per measurement at the fixed point of state evolution, nonzeros N(0, 1)."""
    of_zero = 2 * ((1 + c**2) * norm.sf(c) - c * norm.pdf(c))  # E soft(Z, c)^2

    def of_one(tau: float) -> float:
        # Given r ~ N(0, 1 + tau^2), x is normal with mean r / (1 + tau^2).
        spread, left = np.sqrt(1 + tau**2), tau**2 / (1 + tau**2)

        def error(r: float) -> float:
            soft = float(soft_threshold(np.array([r]), c * tau)[0])
            return ((soft - r / spread**2) ** 2 + left) * norm.pdf(r / spread) / spread

        return 2 * quad(error, 0, 10, points=[c * tau])[0]

    tau, found = np.sqrt(noise**2 + entries / rows), 0.0
    for _ in range(60):
        found = (entries * of_one(tau) + (columns - entries) * of_zero * tau**2) / rows
        tau = np.sqrt(noise**2 + found)
    return found


def measured_errors(matrices: Iterable[LinearMap], noise: float) -> Float64:
    errors = []
    for seed, own in enumerate(matrices):
        vector, draw = sparse(2000, 100, seed), np.random.default_rng(100 + seed)
        measured = own.forward(vector) + noise * draw.standard_normal(1000)
        errors.append(np.square(recover(own, measured, 1.4, 20) - vector).sum() / 1000)
    return np.array(errors)


@pytest.mark.slow
def test_the_error_with_noise_is_that_of_state_evolution() -> None:
    """Exactly for normal matrices, in the limit; the projection is a little better."""
    expected, draw = predicted_error(100, 1000, 2000, 0.05, 1.4), np.random.default_rng(0)
    assert expected == pytest.approx(0.00156, rel=0.02)
    normal = (Dense(draw.normal(0, 1000**-0.5, (1000, 2000))) for _ in range(8))
    theirs = measured_errors(normal, 0.05)
    ours = measured_errors((projection(1000, 2000, seed) for seed in range(20)), 0.05)
    assert theirs.mean() == pytest.approx(expected, abs=4 * theirs.std(ddof=1) / np.sqrt(8))
    assert 0.85 * expected < ours.mean() < expected


def test_as_many_measurements_as_entries_lose_nothing() -> None:
    own, vector = projection(300, 300), np.random.default_rng(0).standard_normal(300)
    assert recover(own, own.forward(vector), 1.4, 1) == pytest.approx(vector, abs=1e-12)


def test_nothing_measured_is_nothing_found() -> None:
    assert (recover(projection(20, 50), np.zeros(20), 1.4, 30) == 0).all()


def test_measurements_that_are_not_finite_give_no_finite_answer() -> None:
    measured = np.zeros(20)
    measured[3] = np.nan
    assert np.isnan(recover(projection(20, 50), measured, 1.4, 30)).any()


def test_what_is_sent_and_what_is_kept_is_the_update_and_what_was_kept() -> None:
    draw, memory = np.random.default_rng(0), None
    for _ in range(4):
        update = draw.standard_normal(200).astype(np.float32)
        sent, kept = Sparse(0.1).encode(update, memory, derive(0, "own-test"))
        assert kept is not None
        whole = update if memory is None else update + memory
        assert (sent + kept == whole).all()
        assert np.count_nonzero(sent) == 20
        assert np.abs(sent[sent != 0]).min() >= np.abs(kept).max()
        memory = kept
