"""Reading files and guessing words: errors that name the file, the reason and the fix."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from camu.errors import InputError, suggest
from camu.files import from_cell, read_json, read_text, to_csv, write_json


def test_text_without_its_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfgr\xc3\xbcn\n")
    assert read_text(path, "a text") == "grün\n"
    assert read_text(str(path), "a text") == "grün\n"


def test_json_that_was_written(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": [1, None]})
    assert read_json(tmp_path / "a.json", "a list") == {"a": [1, None]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "a.json: cannot be read (No such file or directory); give a list"),
        (b"[\xff]", "a.json: cannot be read (it is not UTF-8 text, byte 1); give a list"),
        (b"[\n1,]", "a.json, line 2: cannot be read (it is not valid JSON: "),
        (b'[{"b": 1, "a": 1, "a": 2}]', "a.json: cannot be read (the key a appears twice in an"),
        (b"1" * 5000, "a.json: cannot be read (it is not valid JSON: a number is too long)"),
        (b"[" * 100_000, "a.json: cannot be read (it is not valid JSON: it is nested too deeply)"),
    ],
)
def test_json_that_is_none(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_json(tmp_path / "a.json", "a list")
    assert str(refused.value).startswith(f"{tmp_path}/{message}")


def test_suggestions() -> None:
    assert suggest("petrol", ["camu", "petrel"]) == "; did you mean `petrel`?"
    assert suggest("ID", ["id", "x"]) == "; did you mean `id`?"
    assert suggest("zzz", ["camu", "petrel"]) == ""
    assert suggest("camu", []) == ""


def test_long_lists_are_the_same_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "short": [{"text": "a\nb", "grün": [1.5, None]}],
        "long": [{"k": k, "text": "x\n"} for k in range(5)],
        "number": 0.1,
        "nested": {"list": [[1], []]},
    }
    monkeypatch.setattr("camu.files._LONG_LIST", 3)
    write_json(tmp_path / "a.json", document)
    assert read_json(tmp_path / "a.json", "an object") == document
    assert list(read_json(tmp_path / "a.json", "an object")) == list(document)
    lines = (tmp_path / "a.json").read_text("utf-8").splitlines()
    assert sum(line.startswith('    {"k": ') for line in lines) == 5
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "b.json", document | {"number": float("nan")})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "b.json", document | {"long": [float("nan")] * 5})
    assert not (tmp_path / "b.json").exists()


def test_short_documents_are_indented_as_json_dumps_does(tmp_path: Path) -> None:
    document = {"a": [1, {"b": None}], "c": "d"}
    write_json(tmp_path / "a.json", document)
    assert (tmp_path / "a.json").read_text("utf-8") == json.dumps(document, indent=2) + "\n"


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=cmd|'/c calc'!A0", "'=cmd|'/c calc'!A0"),
        ("+x", "'+x"),
        ("-x", "'-x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("'=x", "''=x"),  # so that it reads back as it was
        ("-82.5", "-82.5"),
        ("'quoted'", "'quoted'"),
        ("plain", "plain"),
        (-1.5, "-1.5"),
        (float("nan"), ""),
        (None, ""),
    ],
)
def test_no_text_in_a_csv_file_is_a_formula(cell: object, written: str) -> None:
    (row,) = csv.reader(to_csv([[cell, "end"]]).splitlines())
    assert row == [written, "end"]
    if isinstance(cell, str):
        assert from_cell(row[0]) == cell
