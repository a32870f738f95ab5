"""Sealed files: as they were written, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from camu.sealed import (
    SEAL,
    UNSEALED,
    DamagedError,
    check_files,
    check_tensors,
    file_digest,
    read_sealed_json,
    seal_tensors,
    write_sealed_json,
)

DOCUMENTS = [
    {"a": 1},
    {"a": {"b": [1, 2, {"c": None}]}, "long": list(range(1500)), "text": "ü\u2028"},
    {"long": [{"x": n} for n in range(1001)]},
]


def write_tensors(path: Path) -> None:
    arrays = {"weights": np.arange(40, dtype=np.float32), "none": np.zeros(0)}
    metadata = {"camu": '{"sha256": "' + "1" * 64 + '"}', SEAL: UNSEALED}
    save_file(arrays, path, metadata=metadata)
    seal_tensors(path)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_comes_back_and_is_plain_json(tmp_path: Path, document: dict) -> None:
    path = tmp_path / "a.json"
    write_sealed_json(path, document)
    assert read_sealed_json(path, "a document", "write it again") == document
    plain = json.loads(path.read_text())
    assert list(plain) == [*document, SEAL]


@given(data=st.data())
def test_every_flipped_bit_of_a_document_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("sealed") / "a.json"
    write_sealed_json(path, data.draw(st.sampled_from(DOCUMENTS)))
    flip(path, data.draw(st.integers(0, 8 * path.stat().st_size - 1)))
    with pytest.raises(DamagedError, match=r"a\.json: is damaged .*; write it again"):
        read_sealed_json(path, "a document", "write it again")


@given(data=st.data())
def test_every_flipped_bit_of_tensors_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("sealed") / "a.safetensors"
    write_tensors(path)
    check_tensors(path, "write it again")
    flip(path, data.draw(st.integers(0, 8 * path.stat().st_size - 1)))
    with pytest.raises(DamagedError, match=r"a\.safetensors: is damaged .*; write it again"):
        check_tensors(path, "write it again")


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("change", ["empty", "cut", "longer", "zeros at the end", "of others"])
def test_tensors_that_were_changed_are_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path)
    assert load_file(path)["weights"][3] == 3
    data = path.read_bytes()
    changed = {
        "empty": b"",
        "cut": data[:-5],
        "longer": data + b"\0",
        "zeros at the end": data[:-8] + bytes(8),
    }
    if change == "of others":
        save_file({"weights": np.zeros(3)}, path)
    else:
        path.write_bytes(changed[change])
    with pytest.raises(DamagedError):
        check_tensors(path, "write it again")


def test_files_of_a_directory_are_compared(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    digests = {"a": file_digest(tmp_path / "a")}
    assert digests["a"] == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    check_files(tmp_path, digests, "run it again")
    (tmp_path / "a").write_text("y")
    with pytest.raises(DamagedError, match=r"a: is damaged .*; run it again"):
        check_files(tmp_path, digests, "run it again")
    (tmp_path / "a").unlink()
    with pytest.raises(DamagedError, match=r"a: .*it is missing"):
        check_files(tmp_path, digests, "run it again")
