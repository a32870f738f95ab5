"""Reading files and guessing words: errors that name the file, the reason and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from camu.errors import InputError, suggest
from camu.files import read_json, read_text, write_json


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
