"""A node's own data: images and labels of its devices, from a directory or a function.

A directory holds, for each device, `ID.safetensors`, or `ID-images.npy` and `ID-labels.npy`. A
function is named as `module:function` and called with a device's id; it returns images and labels.
Images are uint8 in the shape of the configured data set, labels whole numbers from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from camu.arrays import Labels, UInt8
from camu.data import DatasetSpec
from camu.data.catalog import check_samples
from camu.errors import InputError
from camu.plugins import import_object, is_plugin

Reader = Callable[[str], tuple[Any, Any]]


def read_own(source: str, name: str, spec: DatasetSpec) -> tuple[UInt8, Labels]:
    """Images and labels of one device (or of the test set), checked."""
    images, labels = _reader(source)(name)
    return _checked(np.asarray(images), np.asarray(labels), f"data of {name} from {source}", spec)


def _reader(source: str) -> Reader:
    if is_plugin(source) and not Path(source).exists():
        reader = import_object(source, "data")
        if not callable(reader):
            raise InputError(f"data = {source}: this is not a function")
        return cast(Reader, reader)
    folder = Path(source)
    if not folder.is_dir():
        raise InputError(
            f"data = {source}: no such directory; give a directory or a function module:function"
        )
    return lambda name: _from_directory(folder, name)


def _from_directory(folder: Path, name: str) -> tuple[Any, Any]:
    if Path(name).name != name:
        raise InputError(f"{name}: a device's id must be a plain file name to read its data")
    whole = folder / f"{name}.safetensors"
    try:
        if whole.exists():
            arrays = load_file(whole)
            return arrays["images"], arrays["labels"]
        return tuple(
            np.load(folder / f"{name}-{part}.npy", allow_pickle=False)
            for part in ("images", "labels")
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(
            f"{folder}: the data of {name} cannot be read ({error}); write {whole.name} with the "
            f"arrays images and labels, or {name}-images.npy and {name}-labels.npy"
        ) from None


def _checked(
    images: npt.NDArray[Any], labels: npt.NDArray[Any], where: str, spec: DatasetSpec
) -> tuple[UInt8, Labels]:
    pictures, numbers = check_samples(images, labels, f"{where}:")
    if pictures.shape[1:] != spec.image_shape:
        wanted = ", ".join(map(str, spec.image_shape))
        raise InputError(
            f"{where}: images are of shape {pictures.shape}; data.dataset = {spec.name} needs "
            f"(n, {wanted})"
        )
    if numbers.max() >= spec.classes:
        raise InputError(f"{where}: labels must lie between 0 and {spec.classes - 1}")
    return pictures, numbers
