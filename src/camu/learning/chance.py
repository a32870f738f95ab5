"""Accuracy at chance: what always naming one class gives, and accuracy with all classes alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

DOMINATING = 0.5  # share of the samples from which on a class dominates
LOPSIDED = 0.02  # from this difference on, accuracy and balanced accuracy are both shown
_NEARLY = 0.02  # a balanced accuracy so little above that of naming one class is chance

LabelAccuracy = Sequence[float | None]  # of each class; None: no test sample has it


def largest_class(counts: npt.ArrayLike) -> tuple[int, float] | None:
    """The class with most samples and its share, from the counts of all; None for one class."""
    numbers = np.asarray(counts, dtype=np.float64)
    if len(numbers) < 2 or not numbers.sum():
        return None
    first = int(numbers.argmax())
    return first, float(numbers[first] / numbers.sum())


def balanced_accuracy(accuracies: LabelAccuracy) -> float | None:
    """The mean over the classes of the accuracy on each; None if it is not known."""
    known = [one for one in accuracies if one is not None]
    return float(np.mean(known)) if known else None


def is_lopsided(accuracy: float, balanced: float) -> bool:
    """Whether an accuracy says something else than the balanced one, which belongs beside it."""
    return abs(accuracy - balanced) > LOPSIDED


def one_class(accuracies: LabelAccuracy) -> int | None:
    """The class that a model always names, as far as tests show; None: it tells classes apart.

    Always naming one class is right on all of its samples and wrong on all others, which is a
    balanced accuracy of one by the number of classes.
    """
    known = {label: one for label, one in enumerate(accuracies) if one is not None}
    mean = balanced_accuracy(accuracies)
    if mean is None or len(known) < 2 or mean > 1 / len(known) + _NEARLY:
        return None
    best = max(known, key=lambda label: known[label])
    return best if known[best] >= 1 - _NEARLY else None


def chance_words(accuracy: float | None, accuracies: LabelAccuracy) -> str | None:
    """A sentence on an accuracy that always naming one class gives; None if it is better."""
    label, mean = one_class(accuracies), balanced_accuracy(accuracies)
    if accuracy is None or label is None or mean is None:
        return None
    return (
        f"accuracy {accuracy:.2%} is chance: {accuracy:.0%} of the test samples are of class "
        f"{label}, and the model always says so; the balanced accuracy is {mean:.2%}"
    )
