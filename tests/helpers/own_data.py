"""Small data sets that a model can learn, written in each format that users have."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Arrays = dict[str, np.ndarray[Any, Any]]


def bars(shape: tuple[int, ...] = (12, 12), classes: int = 4, train: int = 240) -> Arrays:
    """Noise with a bright bar whose place is the class; a third as many test images."""
    generator = np.random.default_rng(0)
    arrays: Arrays = {}
    for split, count in (("train", train), ("test", train // 3)):
        labels = np.arange(count) % classes
        images = generator.integers(0, 120, (count, *shape), dtype=np.uint8)
        width = shape[-1] // classes
        for image, label in zip(images, labels, strict=True):
            image[..., width * label : width * (label + 1)] += 120
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = images, labels
    return arrays


def write_npz(path: Path, arrays: Arrays) -> str:
    file = path / "mine.npz"
    np.savez_compressed(file, **arrays)
    return str(file)


def write_npy(path: Path, arrays: Arrays) -> str:
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return str(path)


def idx(array: np.ndarray[Any, Any]) -> bytes:
    content = array.astype(np.uint8).tobytes()
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + content


def write_idx(path: Path, arrays: Arrays, packed: bool = False) -> str:
    for name, array in arrays.items():
        split, kind = name.split("_")
        file = f"{'train' if split == 'train' else 't10k'}-{kind}-idx{array.ndim}-ubyte"
        if packed:
            (path / f"{file}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (path / file).write_bytes(idx(array))
    return str(path)


def write_pictures(path: Path, arrays: Arrays) -> str:
    for split in ("train", "test"):
        for row, label in enumerate(arrays[f"{split}_labels"]):
            folder = path / split / f"class {label}"
            folder.mkdir(parents=True, exist_ok=True)
            picture(arrays[f"{split}_images"][row]).save(folder / f"{row:05}.png")
    return str(path)


def picture(image: np.ndarray[Any, Any]) -> Image.Image:
    return Image.fromarray(image if image.ndim == 2 else image.transpose(1, 2, 0))
