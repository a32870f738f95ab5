"""Reads pictures: PNG files in folders `train/CLASS` and `test/CLASS`, as grey or colour arrays."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from camu.arrays import UInt8
from camu.data.samples import Samples
from camu.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

_GREY, _COLOUR = ("1", "L", "LA"), ("RGB", "RGBA", "P")


def read_image_folder(folder: Path) -> tuple[Samples, Samples]:
    """Training and test samples; the classes are numbered by name, names of digits by number."""
    classes = _names(folder / "train")
    extra = [name for name in _names(folder / "test") if name not in classes]
    if extra:
        raise InputError(
            f"{folder / 'test' / extra[0]}: there is no {folder / 'train' / extra[0]}; a class to "
            "test needs pictures to train on"
        )
    train, test = (
        [_files(folder / split / name) for name in classes] for split in ("train", "test")
    )
    for name, files in zip(classes, train, strict=True):
        if not files:
            raise InputError(
                f"{folder / 'train' / name}: there is no PNG file; add some, or "
                "remove the directory"
            )
    if not any(test):
        raise InputError(f"{folder / 'test'}: there is no PNG file in any class; add some")
    flat = [[file for files in split for file in files] for split in (train, test)]
    images = stack((open_png(file), str(file)) for split in flat for file in split)
    found = []
    for name, split, start in (("train", train, 0), ("test", test, len(flat[0]))):
        labels = np.repeat(np.arange(len(classes)), [len(files) for files in split])
        where = f"{folder / name}:"
        own = images[start : start + len(labels)]
        found.append(Samples(own, labels, f"{where} images", f"{where} labels"))
    return found[0], found[1]


def open_png(path: Path) -> UInt8:
    """The picture of a PNG file: (height, width), or (3, height, width) if it has colours."""
    from PIL import Image  # deferred: only pictures need Pillow

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a size that would fill the memory
            with Image.open(path, formats=("PNG",)) as image:
                image.load()
                return as_array(image, str(path))
    except InputError:
        raise
    except Exception as error:  # damaged pictures raise errors of many kinds
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{path}: cannot be read as a PNG picture ({said}); replace or remove it"
        ) from None


def as_array(image: Image, where: str) -> UInt8:
    """A picture's pixels; transparency is dropped."""
    if image.mode in _GREY:
        return np.array(image.convert("L"))
    if image.mode not in _COLOUR:
        raise InputError(
            f"{where}: pictures of mode {image.mode} are not read; save it with 8 bits per channel"
        )
    return np.ascontiguousarray(np.array(image.convert("RGB")).transpose(2, 0, 1))


def stack(pictures: Iterable[tuple[UInt8, str]]) -> UInt8:
    """All pictures as one array, in colour if any of them is; each comes with its name."""
    read: list[UInt8] = []
    first = ""
    for pixels, name in pictures:
        first = first or name
        if read and pixels.shape[-2:] != read[0].shape[-2:]:
            sizes = " and ".join(f"{p.shape[-1]}x{p.shape[-2]}" for p in (pixels, read[0]))
            raise InputError(
                f"{name}: pictures of {sizes} pixels, the latter {first}; give all the same size"
            )
        read.append(pixels)
    if not read:
        raise InputError("there are no pictures")
    if any(pixels.ndim == 3 for pixels in read):
        read = [pixels if pixels.ndim == 3 else np.stack([pixels] * 3) for pixels in read]
    return np.stack(read)


def _names(folder: Path) -> list[str]:
    """The classes: the directories of a folder."""
    try:
        names = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be read ({error.strerror}); an image folder has train/CLASS/*.png "
            "and test/CLASS/*.png"
        ) from None
    for name in names:
        _check_name(folder, name)
        if not (folder / name).is_dir():
            raise InputError(
                f"{folder / name}: not a directory; an image folder has a directory per class, "
                "with PNG files in it"
            )
    numbers = all(re.fullmatch("[0-9]{1,9}", name) for name in names)
    return sorted(names, key=lambda name: (int(name) if numbers else 0, name))


def _files(folder: Path) -> list[Path]:
    if not folder.exists():
        return []  # a class without test pictures
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for file in files:
        _check_name(folder, file.name)
        if file.suffix.lower() != ".png" or not file.is_file():
            raise InputError(f"{file}: not a PNG file; convert it, or remove it")
    return files


def _check_name(folder: Path, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{folder}: the name {name!r} is not UTF-8; rename it") from None
