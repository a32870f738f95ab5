"""Accuracy that is no better than naming one class."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from camu.learning.chance import balanced_accuracy, chance_words, largest_class, one_class


def accuracies(labels: np.ndarray, said: np.ndarray, classes: int) -> list[float | None]:
    """The accuracy of each class; None where there is no sample of it."""
    own = [said[labels == label] == label for label in range(classes)]
    return [float(right.mean()) if len(right) else None for right in own]


def test_balanced_accuracy_is_scikit_learns() -> None:
    generator = np.random.default_rng(0)
    labels, said = generator.integers(0, 4, 200), generator.integers(0, 4, 200)
    found = balanced_accuracy(accuracies(labels, said, 5))
    assert found == pytest.approx(balanced_accuracy_score(labels, said))
    assert balanced_accuracy([]) is None


def test_naming_the_largest_class_is_called_chance() -> None:
    labels = np.array([2] * 79 + [0] * 11 + [1] * 10)
    known = accuracies(labels, np.full(100, 2), 3)
    assert one_class(known) == 2
    assert chance_words(0.79, known) == (
        "accuracy 79.00% is chance: 79% of the test samples are of class 2, and the model always "
        "says so; the balanced accuracy is 33.33%"
    )
    assert largest_class(np.bincount(labels)) == (2, 0.79)


def test_a_model_that_tells_classes_apart_is_not_at_chance() -> None:
    labels = np.array([2] * 79 + [0] * 11 + [1] * 10)
    said = labels.copy()
    said[-10:] = 2
    known = accuracies(labels, said, 3)
    assert one_class(known) is None
    assert chance_words(0.9, known) is None


def test_one_class_alone_is_no_chance() -> None:
    assert one_class([1.0, None]) is None
    assert largest_class([40]) is None
    assert largest_class([0, 0]) is None
