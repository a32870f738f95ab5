"""Data of the user's in files: every format gives the same arrays, and wrong files are named."""

from __future__ import annotations

import io
import itertools
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from camu.config import load_config
from camu.data import load
from camu.errors import InputError
from helpers.own_data import (
    Arrays,
    bars,
    idx,
    picture,
    write_idx,
    write_npy,
    write_npz,
    write_pictures,
)

GREY, COLOUR = (6, 7), (3, 6, 7)
WRITERS: dict[str, Callable[[Path, Arrays], str]] = {
    "npz": write_npz,
    "npy": write_npy,
    "idx": write_idx,
    "idx.gz": partial(write_idx, packed=True),
    "pictures": write_pictures,
}


def few(shape: tuple[int, ...] = GREY) -> Arrays:
    return bars(shape, classes=3, train=12)


def by_class(images: Any, labels: Any) -> list[bytes]:
    """The images in an order that does not depend on the format."""
    order = np.argsort(labels, kind="stable")
    return [bytes([int(labels[k])]) + np.ascontiguousarray(images[k]).tobytes() for k in order]


@pytest.mark.parametrize("shape", [GREY, COLOUR])
@pytest.mark.parametrize("form", WRITERS)
def test_every_format_gives_the_same_data(
    tmp_path: Path, form: str, shape: tuple[int, ...]
) -> None:
    arrays = few(shape)
    data = load(WRITERS[form](tmp_path, arrays))
    assert data.spec.shape == shape
    assert data.spec.classes == 3
    for split in ("train", "test"):
        found = getattr(data, f"{split}_inputs"), getattr(data, f"{split}_labels")
        assert found[0].dtype == np.uint8
        assert by_class(*found) == by_class(arrays[f"{split}_images"], arrays[f"{split}_labels"])


def test_other_ways_to_write_the_same_arrays(tmp_path: Path) -> None:
    """Other names, channels last, a column of labels, Fortran order, big-endian, more arrays."""
    arrays = few(COLOUR)
    expected = load(write_npz(tmp_path, arrays))
    other = {
        "train_inputs": np.asfortranarray(arrays["train_images"].transpose(0, 2, 3, 1)),
        "train_targets": arrays["train_labels"].astype(">i2")[:, None],
        "test_images": arrays["test_images"].transpose(0, 2, 3, 1),
        "test_labels": arrays["test_labels"].astype(np.uint64),
        "val_images": np.zeros(3),
    }
    (tmp_path / "other").mkdir()
    data = load(write_npz(tmp_path / "other", other))
    assert data.sha256 == expected.sha256


def test_classes_named_by_numbers_keep_their_order(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in ("0", "2", "10"):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            picture(np.full(GREY, int(name), np.uint8)).save(folder / "a.png")
    assert load(str(tmp_path)).train_inputs[:, 0, 0].tolist() == [0, 2, 10]


def test_grey_and_colour_pictures_mix_and_transparency_is_dropped(tmp_path: Path) -> None:
    path = Path(write_pictures(tmp_path, few(GREY)))
    file = sorted((path / "train" / "class 0").iterdir())[0]
    Image.fromarray(np.full((6, 7, 4), 9, np.uint8), "RGBA").save(file)
    data = load(str(path))
    assert data.spec.shape == (3, 6, 7)
    assert (data.train_inputs[0] == 9).all()
    assert (data.train_inputs[1, 0] == data.train_inputs[1, 2]).all()


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    arrays = few()
    path = write_npz(tmp_path, arrays)
    first = load(path)
    assert load(path) is first
    write_npz(tmp_path, arrays | {"train_images": 255 - arrays["train_images"]})
    assert (load(path).train_inputs == 255 - first.train_inputs).all()


def npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def npy_header(text: str, rest: bytes = b"") -> bytes:
    head = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + rest


class Trap:
    """A pickle of this creates a file when it is loaded."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("sprung",)


HUGE = npy_header("{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776, 6, 7)}")
NOT_WHOLE = "cannot be read as numbers in numpy's format"
ARRAY_FILES: dict[str, tuple[bytes, str]] = {
    "cut short": (npy(few()["train_images"])[:-1], NOT_WHOLE),
    "empty": (b"", NOT_WHOLE),
    "text": (b"label,pixel\n1,2\n", NOT_WHOLE),
    "huge": (HUGE, NOT_WHOLE),
    "negative": (HUGE.replace(b"1099511627776", b"          -10"), NOT_WHOLE),
    "code in the header": (npy_header("__import__('os').mkdir('sprung')"), NOT_WHOLE),
    "long header": (npy_header("{" + " " * 30_000 + "}"), NOT_WHOLE),
    "pickle": (npy(np.array([Trap()]), allow_pickle=True), "pickles are never read"),
    "names": (npy(np.array(["a", "b"])), "make it an array of numbers"),
    "nan": (npy(np.full((12, *GREY), np.nan)), "train_images"),
    "floats": (npy(np.full((12, *GREY), 0.1)), "are images (uint8), training inputs numbers"),
    "whole numbers": (npy(np.zeros((12, *GREY), int)), "int64 of shape (12, 6, 7); give uint8"),
    "complex": (npy(np.zeros((12, *GREY), complex)), "complex128 of shape (12, 6, 7); give uint8"),
    "flat": (npy(np.zeros((12, 42), np.uint8)), "give uint8 from 0 to 255"),
    "few": (npy(np.zeros((3, *GREY), np.uint8)), "per image, and there are 3 images"),
    "other size": (npy(np.zeros((12, 7, 7), np.uint8)), "(6, 7) each, training images (7, 7)"),
}


@pytest.mark.parametrize("form", ["npy", "npz"])
@pytest.mark.parametrize("case", ARRAY_FILES)
def test_wrong_arrays_are_refused_by_file_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, camu: Any, form: str, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    content, words = ARRAY_FILES[case]
    folder = tmp_path / "data"
    folder.mkdir()
    path = Path(WRITERS[form](folder, few()))
    if form == "npy":
        (path / "train_images.npy").write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("train_images.npy", content)
            for name, array in list(few().items())[1:]:
                archive.writestr(f"{name}.npy", npy(array))
    done = camu("run", "--set", f"data.dataset={path}", "--set", "run.rounds=1")
    assert done.code == 2, done.err
    assert words in done.err
    assert str(path) in done.err
    assert [made.name for made in tmp_path.iterdir()] == ["data"]


def test_wrong_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    with pytest.raises(InputError, match="no such file or directory"):
        load(str(path))
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"mine\.npz: cannot be read as numbers"):
        load(str(path))
    whole = Path(write_npz(tmp_path, few())).read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(InputError, match="cannot be read"):
        load(str(path))
    np.savez(path, images=np.zeros(3))
    with pytest.raises(
        InputError, match=r"train_inputs: there is no such array; give train_inputs, tr"
    ):
        load(str(path))


IDX_FILES: dict[str, tuple[bytes, str]] = {
    "cut short": (idx(few()["train_images"])[:-1], "504 bytes, and 503 follow"),
    "longer": (idx(few()["train_images"]) + b"x", "504 bytes, and more follow"),
    "empty": (b"", "not an IDX file (it begins with nothing)"),
    "magic": (b"\x00\x01\x08\x03" + bytes(99), "it begins with 00 01 08 03"),
    "no such type": (b"\x00\x00\x0a\x01\x00\x00\x00\x01x", "it begins with 00 00 0a 01"),
    "header": (b"\x00\x00\x08\x03\x00\x00", "cut short within its header"),
    "huge": (b"\x00\x00\x0e\x03" + b"\xff" * 12, "(4294967295, 4294967295, 4294967295)"),
    "many dimensions": (b"\x00\x00\x08\xff" + b"\x00\x00\x00\x01" * 255, "and 0 follow"),
    "flat": (idx(np.zeros((12, 42))), "give uint8 from 0 to 255"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", IDX_FILES)
def test_wrong_idx_files_are_refused_by_file(tmp_path: Path, case: str, packed: bool) -> None:
    content, words = IDX_FILES[case]
    write_idx(tmp_path, few(), packed)
    file = next(tmp_path.glob("train-images*"))
    if packed:
        packer = zlib.compressobj(wbits=31)
        content = packer.compress(content) + packer.flush()
    file.write_bytes(content)
    with pytest.raises(InputError) as refused:
        load(str(tmp_path))
    assert words in str(refused.value)
    assert str(file) in str(refused.value)


def test_missing_and_double_idx_files_are_named(tmp_path: Path) -> None:
    write_idx(tmp_path, few())
    (tmp_path / "kept").mkdir()
    labels = tmp_path / "t10k-labels-idx1-ubyte"
    labels.rename(tmp_path / "emnist-letters-test-labels-idx1-ubyte")
    assert load(str(tmp_path)).spec.classes == 3
    write_idx(tmp_path, few(), packed=True)
    with pytest.raises(InputError, match="are there; keep one"):
        load(str(tmp_path))
    for file in tmp_path.glob("*labels*"):
        file.unlink()
    for file in tmp_path.glob("*.gz"):
        file.unlink()
    with pytest.raises(InputError, match="train labels are missing; add train-labels-idx1-ubyte"):
        load(str(tmp_path))


def chunk(kind: bytes, content: bytes) -> bytes:
    checked = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))


def png_bytes(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


GOOD_PNG = png_bytes(picture(few()["train_images"][0]))
BOMB = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0))
PNG_FILES: dict[str, tuple[bytes, str]] = {
    "cut short": (GOOD_PNG[:-40], "cannot be read as a PNG picture"),
    "flipped": (GOOD_PNG[:60] + bytes([GOOD_PNG[60] ^ 1]) + GOOD_PNG[61:], "cannot be read as"),
    "empty": (b"", "cannot be read as a PNG picture"),
    "a GIF": (b"GIF89a" + bytes(40), "cannot be read as a PNG picture"),
    "huge": (BOMB, "cannot be read as a PNG picture"),
    "other size": (png_bytes(Image.new("L", (7, 7))), "pictures of 7x7 and 7x6 pixels"),
    "sixteen bits": (
        png_bytes(Image.fromarray(np.zeros(GREY, np.uint16))),
        "save it with 8 bits per channel",
    ),
}


@pytest.mark.parametrize("case", PNG_FILES)
def test_wrong_pictures_are_refused_by_file(tmp_path: Path, case: str) -> None:
    content, words = PNG_FILES[case]
    write_pictures(tmp_path, few())
    file = sorted((tmp_path / "train" / "class 1").iterdir())[1]
    file.write_bytes(content)
    with pytest.raises(InputError) as refused:
        load(str(tmp_path))
    assert str(refused.value).startswith(str(file))
    assert words in str(refused.value)


def test_wrong_folders_of_pictures_are_named(tmp_path: Path) -> None:
    def refused(words: str) -> None:
        with pytest.raises(InputError, match=words):
            load(str(tmp_path))

    refused("no data are there; give an .npz file")
    (tmp_path / "train").mkdir()
    refused("test: cannot be read")
    write_pictures(tmp_path, few())
    (tmp_path / "train" / "empty").mkdir()
    refused("train/empty: there is no PNG file")
    (tmp_path / "train" / "empty").rmdir()
    (tmp_path / "test" / "new").mkdir()
    refused("test/new: there is no .*train/new")
    (tmp_path / "test" / "new").rmdir()
    (tmp_path / "train" / "class 0" / "a.jpg").write_bytes(b"")
    refused(r"a\.jpg: not a PNG file; convert it")
    (tmp_path / "train" / "class 0" / "a.jpg").unlink()
    (tmp_path / "train" / "list.txt").write_text("")
    refused(r"list\.txt: not a directory")
    (tmp_path / "train" / "list.txt").unlink()
    os.mkdir(os.fsencode(tmp_path / "train") + b"/\xff")
    refused(r"the name '\\udcff' is not UTF-8; rename it")
    os.rmdir(os.fsencode(tmp_path / "train") + b"/\xff")
    write_npy(tmp_path, few())
    refused("both arrays and pictures are there")


# One file of each format, as a place in what its writer wrote.
FUZZED = {
    "npz": "mine.npz",
    "npy": "train_images.npy",
    "idx": "train-images-idx3-ubyte",
    "idx.gz": "train-images-idx3-ubyte.gz",
    "pictures": "train/class 0/00000.png",
}


@pytest.mark.parametrize("form", FUZZED)
def test_damaged_bytes_are_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, form: str
) -> None:
    """Whatever happens to a file's bytes, it is read or refused by name, and no other error."""
    folder = tmp_path_factory.mktemp("fuzz")
    path = WRITERS[form](folder, few())
    file = folder / FUZZED[form]
    whole, times = file.read_bytes(), itertools.count(1)

    @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def damage(data: st.DataObject) -> None:
        content = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, min(len(content), 400)))
            kind = data.draw(st.sampled_from(["cut", "put", "drop", "again"]))
            if kind == "cut":
                del content[place:]
            elif kind == "put":
                new = data.draw(st.binary(min_size=1, max_size=8))
                content[place : place + len(new)] = new
            elif kind == "drop":
                del content[place : place + 3]
            else:
                content += content[place : place + 50]
        file.write_bytes(content)
        os.utime(file, ns=(next(times), next(times)))  # a clock is too coarse to tell them apart
        said = ""
        try:
            load(path)
        except InputError as refused:
            said = str(refused)
        assert not said or str(folder) in said

    damage()


def test_names_that_are_neither_data_nor_code_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match=r"for the path, write \./mine"):
        load_config(overrides={"data.dataset": "mine"})
    with pytest.raises(InputError, match="did you mean"):
        load_config(overrides={"data.dataset": "cifar10"})
    (tmp_path / "mine" / "digits.csv").write_text("")
    with pytest.raises(InputError, match=r"digits\.csv: is empty; write a header line"):
        load("./mine/digits.csv")
    with pytest.raises(InputError, match="name a data set after the colon"):
        load("hf:")
    with pytest.raises(InputError, match="the name is not UTF-8; rename the file"):
        load_config(overrides={"data.dataset": os.fsdecode(b"./\xff.npz")})
    os.symlink("nowhere", tmp_path / "mine" / "lost")
    with pytest.raises(InputError, match=r"mine/lost: cannot be read"):
        load("./mine")
    with pytest.raises(InputError, match=r"data\.directory = x: only the built-in data sets"):
        load("./mine", "x")
