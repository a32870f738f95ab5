"""A state survives every conversion, cannot be changed, and is known by its fingerprint."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from camu.errors import InputError
from camu.learning.job import Job
from camu.learning.models import build_model
from camu.learning.weights import Weights, weighted_mean
from camu.seeding import derive
from helpers.toys import Toy


@pytest.fixture
def weights() -> Weights:
    return Weights.of(build_model("cnn", (28, 28), 10, "batch", derive(0, "model")))


def test_sizes_and_immutability(weights: Weights) -> None:
    assert weights.parameters.shape == (21_880,)
    assert weights.buffers.shape == (40,)
    assert weights.layout.parameter_count == 21_880
    with pytest.raises(ValueError, match="read-only"):
        weights.parameters[0] = 1
    source = np.zeros(21_880, dtype=np.float32)
    changed = weights.with_parameters(source)
    source[0] = 1
    assert changed.parameters[0] == 0


def test_a_module_and_its_state_are_the_same(weights: Weights) -> None:
    other = build_model("cnn", (28, 28), 10, "batch", derive(1, "model"))
    weights.load_into(other)
    assert Weights.of(other).sha256() == weights.sha256()
    for name, array in weights.tensors().items():
        torch.testing.assert_close(other.state_dict()[name], torch.tensor(array), rtol=0, atol=0)


def test_safetensors_keep_every_bit(weights: Weights) -> None:
    loaded = Weights.from_tensors(load(save(weights.tensors())), weights.layout)
    assert loaded.sha256() == weights.sha256()


def test_the_fingerprint_sees_parameters_and_buffers(weights: Weights) -> None:
    parameters = weights.parameters.copy()
    parameters[-1] = np.nextafter(parameters[-1], np.float32(9))
    moved = Weights(weights.parameters, weights.buffers + 1, weights.layout)
    assert (
        len({weights.sha256(), weights.with_parameters(parameters).sha256(), moved.sha256()}) == 3
    )


def test_the_weighted_mean(weights: Weights) -> None:
    other = Weights(weights.parameters + 1, weights.buffers + 2, weights.layout)
    mean = weighted_mean([(1.0, weights), (3.0, other)])
    np.testing.assert_allclose(mean.parameters, weights.parameters + 0.75, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(mean.buffers, weights.buffers + 1.5, rtol=1e-6)
    with pytest.raises(InputError, match="positive"):
        weighted_mean([])


def test_what_does_not_fit_is_refused(weights: Weights) -> None:
    with pytest.raises(InputError, match="parameters"):
        weights.with_parameters([1.0])
    with pytest.raises(InputError, match="missing"):
        Weights.from_tensors({}, weights.layout)
    tensors = {**weights.tensors(), "output.bias": np.zeros(3)}
    with pytest.raises(InputError, match="shape"):
        Weights.from_tensors(tensors, weights.layout)
    with pytest.raises(InputError, match="no array"):
        weights.load_into(build_model("logistic", (28, 28), 10, "none", derive(0, "model")))


def test_a_result_keeps_no_others_in_memory(small_toy: Toy, kernel: str) -> None:
    """A worker writes the models of many units into one block of memory."""
    with small_toy.engine(kernel=kernel, workers=1) as engine:
        results = engine.train(engine.initial, [Job((n % 5,), (1.0,)) for n in range(8)], 0)
    for own in results:
        for array in (own.parameters, own.buffers):
            base = array if array.base is None else array.base
            assert base.nbytes == array.nbytes
