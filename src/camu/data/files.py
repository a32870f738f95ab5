"""Reads data of the user's: `.npz`, `.npy` and IDX files, and folders of PNG pictures.

No pickle is ever loaded, and an array is read only if the file holds all of it.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import warnings
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from camu.arrays import UInt8
from camu.data.samples import Samples
from camu.errors import InputError
from camu.files import open_regular

if TYPE_CHECKING:
    from PIL.Image import Image

ARRAYS = ("train_inputs", "train_targets", "test_inputs", "test_targets")
_IMAGES = ("train_images", "train_labels", "test_images", "test_labels")  # the same, of images
IDX_NAME = re.compile(r"(?:.*[-_])?(train|test|t10k)[-_](images|labels)[-.]idx\d-ubyte(?:\.gz)?")

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GREY, _COLOUR = ("1", "L", "LA"), ("RGB", "RGBA", "P")
_DEFLATE_RATIO = 1032  # the most that deflate can compress anything


def load_arrays(path: Path, names: Sequence[str], what: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of numbers with these names in an `.npz` file; those that it has not are left out.

    An `.npy` file has one array, with the name "". `what` says what to write instead of a file that
    cannot be read.
    """
    name = ""
    try:
        with open_regular(path) as file:
            content = np.load(file, allow_pickle=False)
            found = {name: content} if isinstance(content, np.ndarray) else {}
            for name in [name for name in names if not found and name in content.files]:
                found[name] = content[name]
                if not isinstance(found[name], np.ndarray):
                    raise ValueError("this is no array")
    except Exception as error:  # wrong headers and damaged archives raise errors of many kinds
        if isinstance(error, OSError):
            raise InputError(f"{path}: cannot be read ({_said(error)}); {what}") from None
        where = f"{path}: {name}: it" if name else f"{path}:"
        raise InputError(
            f"{where} cannot be read as numbers in numpy's format ({_said(error)}); pickles are "
            f"never read: {what}"
        ) from None
    for name, array in found.items():
        if array.dtype.kind not in "biufc":
            where = f"{path}: {name}" if name else str(path)
            raise InputError(f"{where}: an array of {array.dtype}; make it an array of numbers")
        found[name] = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return found


def read_npz(path: Path, label: str | None, device: str | None) -> tuple[Samples, Samples]:
    """The arrays of an `.npz` file; it may hold others too."""
    how = "write it with np.savez(path, train_inputs=..., train_targets=..., test_inputs=..., ...)"
    found = load_arrays(path, _wanted(label, device), how)
    return _pair(found, f"{path}: {{}}", label, device)


def read_npy_file(path: Path) -> npt.NDArray[Any]:
    """The array of an `.npy` file."""
    how = "write it again with np.save"
    if "" not in (found := load_arrays(path, (), how)):
        raise InputError(f"{path}: an archive of several arrays; {how}")
    return found[""]


def read_npy_directory(
    folder: Path, label: str | None, device: str | None
) -> tuple[Samples, Samples]:
    """The arrays of a directory of `.npy` files; it may hold others too."""
    files = {name: folder / f"{name}.npy" for name in _wanted(label, device)}
    found = {name: read_npy_file(file) for name, file in files.items() if file.exists()}
    return _pair(found, f"{folder}/{{}}.npy", label, device)


def has_arrays(names: set[str]) -> bool:
    """Whether a directory with files of these names holds arrays."""
    return bool({f"{name}.npy" for name in (*ARRAYS, *_IMAGES)} & names)


def _wanted(label: str | None, device: str | None) -> list[str]:
    more = [f"{split}_{name}" for name in (label, device) if name for split in ("train", "test")]
    return [*ARRAYS, *_IMAGES, *more]


def _pair(
    found: dict[str, npt.NDArray[Any]], place: str, label: str | None, device: str | None
) -> tuple[Samples, Samples]:
    """Training and test samples of named arrays; both may lack targets. `place` is where one is."""
    names = []
    for usual, other in zip(ARRAYS, _IMAGES, strict=True):
        if usual in found and other in found:
            raise InputError(f"{place.format(usual)}: {other} is there too; keep one")
        names.append(other if other in found else usual)
    lacking = [name for name in names if name not in found]
    if lacking == [names[1], names[3]]:
        lacking = []  # tokens, of which the next is predicted
    for key, name in (("data.label_column", label), ("data.device_column", device)):
        for missing in (f"train_{name}", f"test_{name}"):
            if name is not None and missing not in found:
                raise InputError(
                    f"{key} = {name}: {place.format(missing)}: there is no such array; add it"
                )
    if lacking:
        wanted = ", ".join(_IMAGES if set(_IMAGES) & found.keys() else ARRAYS)
        raise InputError(f"{place.format(lacking[0])}: there is no such array; give {wanted}")
    pairs = []
    for split, (inputs, targets) in (("train", names[:2]), ("test", names[2:])):
        more = [None if name is None else found[f"{split}_{name}"] for name in (label, device)]
        values = found[inputs], found.get(targets)
        pairs.append(Samples(*values, place.format(inputs), place.format(targets), *more))
    return pairs[0], pairs[1]


def read_idx_directory(folder: Path) -> tuple[Samples, Samples]:
    """The four arrays of a directory of IDX files, plain or gzipped."""
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        if (match := IDX_NAME.fullmatch(path.name)) is None:
            continue
        split = "train" if match[1] == "train" else "test"
        if (other := found.setdefault((split, match[2]), path)) != path:
            raise InputError(f"{folder}: both {other.name} and {path.name} are there; keep one")
    for (split, kind), usual in (
        (("train", "images"), "train-images-idx3-ubyte"),
        (("train", "labels"), "train-labels-idx1-ubyte"),
        (("test", "images"), "t10k-images-idx3-ubyte"),
        (("test", "labels"), "t10k-labels-idx1-ubyte"),
    ):
        if (split, kind) not in found:
            raise InputError(f"{folder}: the {split} {kind} are missing; add {usual} or {usual}.gz")
    pairs = ((found[split, "images"], found[split, "labels"]) for split in ("train", "test"))
    train, test = (
        Samples(read_idx(images), read_idx(labels), f"{images}: images", f"{labels}: labels")
        for images, labels in pairs
    )
    return train, test


def read_idx(path: Path) -> npt.NDArray[Any]:
    """The array of an IDX file, plain or gzipped."""
    zipped = path.suffix == ".gz"
    try:
        with (
            open_regular(path) as file,
            cast(IO[bytes], gzip.open(file) if zipped else file) as stream,
        ):
            shape, dtype = _idx_header(stream, path)
            wanted = math.prod(shape) * dtype.itemsize
            most = path.stat().st_size * (_DEFLATE_RATIO if zipped else 1)
            content = stream.read(min(wanted, most) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({_said(error)}); write it again") from None
    if len(content) != wanted:
        raise InputError(
            f"{path}: its header announces shape {str(shape)[:60]}, {wanted} bytes, and "
            f"{'more' if len(content) > wanted else len(content)} follow; write it again"
        )
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _idx_header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES or not magic[3]:
        begin = magic.hex(" ") or "nothing"
        raise InputError(f"{path}: not an IDX file (it begins with {begin}); write it again")
    extents = stream.read(4 * magic[3])
    if len(extents) < 4 * magic[3]:
        raise InputError(f"{path}: the file is cut short within its header; write it again")
    return struct.unpack(f">{magic[3]}I", extents), np.dtype(_IDX_TYPES[magic[2]])


def _said(error: Exception) -> str:
    """The first line of an error, or its kind where it says nothing."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


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
        raise InputError(
            f"{path}: cannot be read as a PNG picture ({_said(error)}); replace or remove it"
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
