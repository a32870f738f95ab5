"""The user's own data set: a function that returns images and labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Labels, UInt8
from camu.data.catalog import Dataset, DatasetSpec
from camu.errors import InputError
from camu.plugins import import_object, user_code

_WANTED = "return (train_images, train_labels), (test_images, test_labels)"


def load_own(path: str) -> Dataset:
    """The data set behind ``module:function``; the function is called once per process."""
    function = import_object(path, "data.dataset")
    if not callable(function):
        raise InputError(
            f"data.dataset = {path}: this is not a function; write one that takes "
            f"nothing and returns data: {_WANTED}"
        )
    return _load(function, path)


@lru_cache(maxsize=4)
def _load(function: Callable[[], Any], path: str) -> Dataset:
    what = f"data.dataset = {path}"
    with user_code(what):
        returned = function()
    try:
        (train, train_labels), (test, test_labels) = returned
    except (TypeError, ValueError):
        raise InputError(f"{what}: returned {type(returned).__name__}; {_WANTED}") from None
    images, labels = check_samples(train, train_labels, f"{what}: train")
    others, other_labels = check_samples(test, test_labels, f"{what}: test")
    shape = images.shape[1:]
    if others.shape[1:] != shape:
        raise InputError(f"{what}: training images are {shape}, test images {others.shape[1:]}")
    classes = 1 + int(max(labels.max(), other_labels.max()))
    if classes < 2:
        raise InputError(f"{what}: all labels are 0; a model needs at least two classes")
    spec = DatasetSpec(path, f"your own, {path}", shape, classes, len(images), len(others))
    return Dataset(spec, images, labels, others, other_labels)


def check_samples(images: npt.ArrayLike, labels: npt.ArrayLike, where: str) -> tuple[UInt8, Labels]:
    """Images as uint8 (n, height, width) or (n, channels, height, width), and n labels from 0.

    `where` begins the message of an InputError.
    """
    pictures, numbers = np.asarray(images), np.asarray(labels)
    if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4) or not pictures.size:
        raise InputError(
            f"{where} images are {pictures.dtype} of shape {pictures.shape}; give uint8 from 0 to "
            "255 of shape (n, height, width) or (n, channels, height, width), n > 0"
        )
    whole = np.issubdtype(numbers.dtype, np.integer)
    if numbers.shape != (len(pictures),) or not whole or numbers.min() < 0:
        raise InputError(
            f"{where} labels are {numbers.dtype} of shape {numbers.shape}; give one whole number "
            "from 0 per image"
        )
    return pictures, numbers.astype(np.int64)
