"""A node's own data: images and labels of its devices, from a directory or a function.

A directory holds, for each device, `ID.safetensors`, or `ID-images.npy` and `ID-labels.npy`. A
function is named as `module:function` and called with a device's id; it returns images and labels.
Images are uint8, or floats from 0 to 1, in the shape of the configured data set; labels are whole
numbers from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file

from camu.arrays import Labels, UInt8
from camu.data import DatasetSpec
from camu.data.array_files import read_npy_file
from camu.data.samples import Samples, check_samples
from camu.errors import InputError
from camu.plugins import import_object, is_plugin, user_code

Reader = Callable[[str], tuple[Any, Any]]


def read_own(source: str, name: str, spec: DatasetSpec) -> tuple[UInt8, Labels]:
    """Images and labels of one device (or of the test set), checked."""
    images, labels = _reader(source)(name)
    where = f"data of {name} from {source}"
    return _checked(Samples(images, labels, f"{where}: images", f"{where}: labels"), spec)


def check_own(source: str, names: Sequence[str]) -> None:
    """Refuse data that no run could use, before a node connects.

    The shape and the classes of a run are not known here; all devices must have the same shape.
    """
    shapes: dict[tuple[int, ...], str] = {}
    reader = _reader(source)
    for name in names:
        where = f"data of {name} from {source}"
        images, labels = reader(name)
        pictures, _ = check_samples(Samples(images, labels, f"{where}: images", f"{where}: labels"))
        shapes.setdefault(_full(pictures.shape[1:]), name)
    if len(shapes) > 1:
        (one, first), (two, second) = list(shapes.items())[:2]
        raise InputError(
            f"data from {source}: the images of {first} are {one} each and those of {second} {two};"
            " give all images the same size and channels"
        )


def device_names(text: str) -> tuple[str, ...]:
    """The devices of a node, `a,b`, each once."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or len(set(names)) < len(names):
        raise InputError(
            'node config: name the node\'s devices, each once: devices="a,b" data="DIR"'
        )
    if wrong := [name for name in names if not name.isprintable()]:
        raise InputError(f"node config: device {wrong[0]!a}: use letters that can be printed")
    return names


def numbers_of(text: str, names: Sequence[str]) -> dict[str, float]:
    """One number for all devices, or one for each."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in (1, len(names)) or not all(-300 <= value <= 300 for value in values):
        raise InputError(
            f"node config: snr-db = {text}: give one number of dB, or one for each of the "
            f"{len(names)} devices"
        )
    return dict(zip(names, values * (len(names) // len(values)), strict=True))


def _reader(source: str) -> Reader:
    if is_plugin(source) and not Path(source).exists():
        reader = import_object(source, "data")
        if not callable(reader):
            raise InputError(f"data = {source}: this is not a function")
        return partial(_from_function, reader, source)
    folder = Path(source)
    if not folder.is_dir():
        raise InputError(
            f"data = {source}: no such directory; give a directory or a function module:function"
        )
    return lambda name: _from_directory(folder, name)


def _from_function(reader: Callable[[str], Any], source: str, name: str) -> tuple[Any, Any]:
    with user_code(f"data = {source}", reader, "the id of a device"):
        answer = reader(name)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise InputError(
            f"data = {source}: for {name} it returned a value of type {type(answer).__name__}; it "
            "must return images and labels"
        )
    return answer[0], answer[1]


def _from_directory(folder: Path, name: str) -> tuple[Any, Any]:
    if Path(name).name != name:
        raise InputError(f"{name}: a device's id must be a plain file name to read its data")
    whole = folder / f"{name}.safetensors"
    try:
        if whole.exists():
            arrays = load_file(whole)
            return arrays["images"], arrays["labels"]
        images, labels = (
            read_npy_file(folder / f"{name}-{part}.npy") for part in ("images", "labels")
        )
        return images, labels
    except (OSError, ValueError, KeyError, SafetensorError, InputError) as error:
        raise InputError(
            f"{folder}: the data of {name} cannot be read ({error}); write {whole.name} with the "
            f"arrays images and labels, or {name}-images.npy and {name}-labels.npy"
        ) from None


def _checked(samples: Samples, spec: DatasetSpec) -> tuple[UInt8, Labels]:
    pictures, numbers = check_samples(samples)
    if _full(pictures.shape[1:]) != _full(spec.image_shape):
        wanted = ", ".join(map(str, spec.image_shape))
        raise InputError(
            f"{samples.images_name} are of shape {pictures.shape}; data.dataset = {spec.name} "
            f"needs (n, {wanted})"
        )
    if numbers.max() >= spec.classes:
        raise InputError(f"{samples.labels_name} must lie between 0 and {spec.classes - 1}")
    return pictures.reshape(-1, *spec.image_shape), numbers


def _full(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with its channels."""
    return shape if len(shape) == 3 else (1, *shape)
