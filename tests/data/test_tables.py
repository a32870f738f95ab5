"""Tables of the user's: CSV and Parquet, against Python's csv module and by hand."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.data import federate, load, load_configured
from camu.data.reading import Reading
from camu.errors import InputError
from helpers.configs import small

DRAW = np.random.default_rng(3)


def write(path: Path, columns: dict[str, Any]) -> str:
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow", reason="the extra `hf` is not installed")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table(columns), path)
        return str(path)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


def meters(rows: int = 60) -> dict[str, Any]:
    return {
        "hour": np.arange(rows) % 24,
        "house": [f"house {k % 6}" for k in range(rows)],
        "watts": DRAW.normal(size=rows) * 100,
        "load": DRAW.normal(size=rows),
        "state": np.array(["on", "off", "idle"])[np.arange(rows) // 7 % 3].tolist(),
    }


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_is_read_as_it_is(tmp_path: Path, suffix: str) -> None:
    columns = meters()
    path = write(tmp_path / f"meters.{suffix}", columns)
    reading = Reading(target_column="load", label_column="state", device_column="house")
    data = load(path, reading=reading)
    assert (data.spec.shape, data.spec.target, data.spec.classes) == ((2,), "numbers", 3)
    assert data.parts is not None
    assert data.test_parts is not None
    assert [len(part) for part in data.parts] == [8] * 6
    assert [len(part) for part in data.test_parts] == [2] * 6
    # Every row is there once, with its own target, label and house.
    with (tmp_path / "again.csv").open("w"):
        write(tmp_path / "again.csv", columns)
    with (tmp_path / "again.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    expected = {
        (float(row["hour"]), float(row["watts"])): (
            np.float32(row["load"]),
            sorted({"on", "off", "idle"}).index(row["state"]),
            int(row["house"].split()[1]),
        )
        for row in rows
    }
    found = {}
    for split, parts in (("train", data.parts), ("test", data.test_parts)):
        inputs, targets = getattr(data, f"{split}_inputs"), getattr(data, f"{split}_targets")
        labels = getattr(data, f"{split}_labels")
        for house, part in enumerate(parts):
            for k in part:
                found[tuple(inputs[k].tolist())] = (targets[k, 0], labels[k], house)
    assert found == expected
    assert "a fifth of the rows of each device" in data.notes[0]
    assert load(path, reading=reading) is data


def test_classes_are_numbered_by_name_and_that_is_said(tmp_path: Path) -> None:
    columns = meters()
    path = write(tmp_path / "meters.csv", {k: columns[k] for k in ("hour", "watts", "state")})
    data = load(path, reading=Reading(target_column="state"))
    assert data.spec.outputs == 3
    assert any("the classes are numbered 0 = idle, 1 = off, 2 = on" in n for n in data.notes)
    grades = {"x": DRAW.normal(size=30), "target": [3, 5, 9] * 10}
    data = load(write(tmp_path / "grades.csv", grades))  # the usual name of the column
    assert data.spec.classes == 3
    assert any("0 = 3, 1 = 5, 2 = 9" in note for note in data.notes)
    numbers = load(str(tmp_path / "grades.csv"), reading=Reading("numbers"))
    assert set(numbers.train_targets.ravel().tolist()) == {3, 5, 9}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_two_tables_are_training_and_test(tmp_path: Path, suffix: str) -> None:
    train = {"user": [1, 2, 10, 2], "x": [0.5, 1.5, 2.5, 3.5], "label": [0, 1, 1, 0]}
    test = {"label": [1, 0], "x": [7.0, 8.0], "user": [10, 1]}
    write(tmp_path / f"train.{suffix}", train)
    write(tmp_path / f"test.{suffix}", test)
    config = small(data__dataset=str(tmp_path), data__device_column="user", data__partition="given")
    data = load_configured(config.data)
    assert data.train_inputs.tolist() == [[0.5], [1.5], [2.5], [3.5]]
    assert data.test_inputs.tolist() == [[7.0], [8.0]]
    assert data.test_targets.tolist() == [1, 0]
    federation = federate(config.data, devices=3, seed=0)
    assert [part.tolist() for part in federation.indices] == [[0], [1, 3], [2]]
    assert not [note for note in federation.notes if "device_column" in note]
    ignored = config.replace({"data.partition": "iid", "data.samples_per_device": 1})
    notes = federate(ignored.data, devices=3, seed=0).notes
    (note,) = [note for note in notes if note.startswith("data.device_column = user: ")]
    assert note.endswith(
        'by data.partition = "iid", not by this column; set data.partition = "given"'
    )


def test_single_precision_columns_stay_so(tmp_path: Path) -> None:
    columns = {"a": DRAW.normal(size=20).astype(np.float32), "label": np.arange(20) % 2}
    data = load(write(tmp_path / "t.parquet", columns))
    assert data.train_inputs.dtype == np.float32
    assert set(data.train_inputs.ravel()) | set(data.test_inputs.ravel()) == set(columns["a"])


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no target": ("a,b\n1,2\n", {}, "which column is the target? There are a, b; name one in"),
    "other target": ("a,load\n1,2\n", {"target_column": "lod"}, "no such column; did you mean `l"),
    "other device": ("a,label\n1,2\n", {"device_column": "u"}, "data.device_column = u: "),
    "twice": ("a,label\n1,2\n", {"device_column": "label"}, "name one column twice"),
    "only a target": ("label\n1\n", {}, "no column is left for the inputs"),
    "empty": ("", {}, "is empty; write a header line and a line per sample"),
    "no rows": ("a,label\n", {}, "there is no row below the header"),
    "word": ("a,label\n1,0\nred,1\n", {}, "mine.csv, line 3, column a: 'red' is not a number"),
    "hole": ("a,label\n1,0\n,1\n", {}, "mine.csv, line 3, column a: the cell is empty"),
    "nan": ("a,label\n1,0\nnan,1\n", {}, "line 3, column a: nan is not a finite number"),
    "no class": ("a,label\n1,0\n2,\n", {}, "line 3, column label: the cell is empty"),
    "no number": ("a,label\n1,0\n2,x\n", {"target": "numbers"}, "line 3, column label: 'x' is"),
    "short row": ("a,label\n1\n", {}, "line 2: 1 cells for the 2 columns"),
    "semicolons": ("a;label\n1;2\n", {}, "columns must be separated by commas"),
    "tokens": ("a,label\n1,0\n", {"target": "next-token"}, "is a table, and tokens are"),
    "few": ("a,label\n1,0\n2,1\n", {}, "no device has 5 rows"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_tables_are_a_sentence(tmp_path: Path, case: str) -> None:
    text, keys, words = WRONG[case]
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        load(str(tmp_path / "mine.csv"), reading=Reading(**keys))
    assert words in str(refused.value)
    assert str(tmp_path / "mine.csv") in str(refused.value)


def test_test_rows_need_the_same_columns_and_classes(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a,label\n1,x\n2,y\n")
    (tmp_path / "test.csv").write_text("a,b,label\n1,1,x\n")
    with pytest.raises(InputError, match="column b is in one of them only"):
        load(str(tmp_path))
    (tmp_path / "test.csv").write_text("a,label\n1,x\n3,z\n")
    with pytest.raises(InputError, match=r"test\.csv, line 3, column label: no training row has"):
        load(str(tmp_path))


def test_wrong_parquet_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.parquet"
    write(path, {"a": [1.0, None, 3.0], "label": [0, 1, 0]})
    with pytest.raises(InputError, match=r"mine\.parquet, row 2, column a: the cell is empty"):
        load(str(path))
    write(path, {"a": [[1.0], [2.0]], "label": [0, 1]})
    with pytest.raises(InputError, match=r"column a: list<.*> is not one value per row"):
        load(str(path))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        load(str(path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"install it with pip install 'camu-fl\[hf\]'"):
        load(str(path.rename(tmp_path / "other.parquet")))


def test_a_name_that_ends_as_a_table_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "grades.csv", {"x": DRAW.normal(size=30), "target": [3, 5, 9] * 10})
    config = small(data__dataset="grades.csv", data__partition="iid")
    assert load_configured(config.data).spec.classes == 3
