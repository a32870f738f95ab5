"""Built-in data sets that are no IDX files: series, text, and the tables of scikit-learn."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
from pathlib import Path

import numpy as np

from camu.arrays import Float32, Float64, Int64, UInt8
from camu.data.catalog import Dataset, DatasetSpec, PlainFile
from camu.data.samples import quantile_bins
from camu.data.shakespeare import read_shakespeare
from camu.seeding import derive


def decoded(spec: DatasetSpec, arrays: list[UInt8]) -> Dataset:
    """The data set of the content of its files, in the order of the catalogue."""
    if spec.inputs == "images":
        return Dataset(spec, *arrays)
    if spec.inputs == "tokens":
        return read_shakespeare(spec, arrays[0])
    return _series(spec, arrays[0], arrays[1])


def embedded(spec: DatasetSpec) -> Dataset:
    """A table of scikit-learn, with a fixed split (they come without one).

    Digits are 8x8 pixels, scaled to 0..255. The classes of breast-cancer are malignant and benign;
    the target of diabetes is its progression a year after ten measures were taken.
    """
    inputs, targets = _columns(spec)
    images = spec.inputs == "images"
    stream = derive(0, "digits-split") if images else derive(0, "table-split")
    order = stream.numpy().permutation(len(targets))
    train, test = order[: spec.train_samples], order[spec.train_samples :]
    if images:
        pixels = np.rint(inputs.reshape(-1, *spec.shape) * (255 / 16)).astype(np.uint8)
        digits = targets.astype(np.uint8)
        return Dataset(spec, pixels[train], digits[train], pixels[test], digits[test])
    rows = inputs.astype(np.float32)
    if spec.target == "classes":
        classes = targets.astype(np.int64)
        return Dataset(spec, rows[train], classes[train], rows[test], classes[test])
    numbers = targets.astype(np.float32)[:, None]
    *labels, bins = quantile_bins(numbers[train, 0], numbers[test, 0])
    assert bins == spec.classes
    arrays = (rows[train], numbers[train], rows[test], numbers[test])
    return Dataset(spec, *arrays, labels=(labels[0], labels[1]))


def _columns(spec: DatasetSpec) -> tuple[Float64, Float64]:
    """Inputs and targets of a table.

    The files are read without importing scikit-learn, which takes a second. Where another version
    of scikit-learn keeps them elsewhere or otherwise, scikit-learn is asked.
    """
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        tables = [
            _table(Path(folder) / "datasets" / "data" / file.name, file) for file in spec.embedded
        ]
        found = [table for table in tables if table is not None]
        if len(found) == len(spec.embedded) == 2:
            return found[0], found[1]
        if len(found) == len(spec.embedded):
            return found[0][:, :-1], found[0][:, -1]
    import sklearn.datasets

    raw = {"scaled": False} if spec.target == "numbers" else {}
    ask = getattr(sklearn.datasets, f"load_{spec.name.replace('-', '_')}")
    inputs, targets = ask(return_X_y=True, **raw)
    return inputs, targets


def _table(path: Path, file: PlainFile) -> Float64 | None:
    """The numbers of a text file, plain or gzipped; None if it is not the one that is known."""
    content = path.read_bytes() if path.is_file() else b""
    if path.suffix == ".gz" and content:
        content = gzip.decompress(content)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        return None
    head = content.partition(b"\n")[0]
    return np.loadtxt(
        io.BytesIO(content),
        delimiter="," if b"," in head else None,
        skiprows=int(path.name == "breast_cancer.csv"),  # the names of its classes
    )


def _series(spec: DatasetSpec, train: UInt8, test: UInt8) -> Dataset:
    """Series (channels, length) and their classes; shorter ones are padded with zeros."""
    parts = [_read_ts(content.tobytes().decode("utf-8"), spec) for content in (train, test)]
    inputs = [np.zeros((len(series), *spec.shape), np.float32) for series, _ in parts]
    lengths = set[int]()
    for array, (series, _) in zip(inputs, parts, strict=True):
        for row, own in zip(array, series, strict=True):
            row[:, : own.shape[1]] = own
            lengths.add(own.shape[1])
    notes: tuple[str, ...] = ()
    if len(lengths) > 1:
        notes = (
            f"data.dataset = {spec.name}: series of {min(lengths)} to {max(lengths)} steps are "
            f"padded with zeros to {spec.shape[1]}",
        )
    return Dataset(spec, inputs[0], parts[0][1], inputs[1], parts[1][1], notes=notes)


def _read_ts(text: str, spec: DatasetSpec) -> tuple[list[Float32], Int64]:
    """The series and classes of a file of the format `.ts`: a line per series, with its class."""
    head, _, body = text.partition("@data")
    (classes,) = (line.split()[2:] for line in head.splitlines() if line.startswith("@classLabel"))
    series, labels = [], []
    for line in body.split("\n"):
        if line.strip():
            *channels, label = line.strip().split(":")
            series.append(np.array([each.split(",") for each in channels], np.float32))
            labels.append(classes.index(label))
    return series, np.array(labels, np.int64)
