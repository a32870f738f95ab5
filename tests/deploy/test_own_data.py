"""A node's own data: from files or a function, checked with one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.config import load_config
from camu.data import CATALOG, DatasetSpec, dataset_spec, load
from camu.deploy.array_records import Refusal
from camu.deploy.deployment import Deployment
from camu.deploy.messages import check_report, write_report
from camu.deploy.node_app import UNFIT, Node
from camu.deploy.node_data import read_own
from camu.deploy.server.app import serve
from camu.errors import InputError
from helpers.configs import small
from helpers.nodes import report_of, result_of, wait_without_time

SPEC = CATALOG["digits"]
IMAGES = np.arange(3 * 64, dtype=np.uint8).reshape(3, 8, 8)
LABELS = np.array([0, 9, 4])


def write(folder: Path, images: Any = IMAGES, labels: Any = LABELS) -> None:
    np.save(folder / "a-images.npy", images)
    np.save(folder / "a-labels.npy", labels)


def test_a_directory_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    images, labels = read_own(str(tmp_path), "a", SPEC)
    assert np.array_equal(images, IMAGES)
    assert labels.tolist() == LABELS.tolist()


def test_colours_of_any_data_set_are_read(tmp_path: Path) -> None:
    """The shape is that of data.dataset, whatever it is."""
    spec = DatasetSpec("mine", "mine", (3, 5, 4), 12, 1, 1)
    images = np.arange(2 * 3 * 5 * 4, dtype=np.uint8).reshape(2, 3, 5, 4)
    write(tmp_path, images.transpose(0, 2, 3, 1), np.array([[0], [11]]))
    pictures, labels = read_own(str(tmp_path), "a", spec)
    assert np.array_equal(pictures, images)
    assert labels.tolist() == [0, 11]
    write(tmp_path, images, np.array([0, 12]))
    with pytest.raises(InputError, match="labels must lie between 0 and 11"):
        read_own(str(tmp_path), "a", spec)
    grey = DatasetSpec("mine", "mine", (5, 4), 12, 1, 1)
    write(tmp_path, images[:, :1], np.array([0, 1]))
    assert read_own(str(tmp_path), "a", grey)[0].shape == (2, 5, 4)


def test_a_function_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_data.py").write_text(
        "import numpy as np\n"
        "def of(device):\n"
        "    return np.full((2, 8, 8), len(device), np.uint8), [1, 2]\n"
    )
    monkeypatch.chdir(tmp_path)
    images, labels = read_own("my_own_data:of", "abc", SPEC)
    assert images[0, 0, 0] == 3
    assert labels.tolist() == [1, 2]
    for source in ("my_own_data:other", "no_such_module:of", "nowhere"):
        with pytest.raises(InputError, match="data = "):
            read_own(source, "abc", SPEC)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (IMAGES.astype(float), LABELS),
        (IMAGES[:, :7], LABELS),
        (IMAGES[:0], LABELS[:0]),
        (IMAGES, LABELS[:2]),
        (IMAGES, LABELS / 2),
        (IMAGES, LABELS + 1),
        (IMAGES, -LABELS),
        (IMAGES, np.array([{}, {}, {}])),
    ],
)
def test_wrong_data_is_refused(tmp_path: Path, images: Any, labels: Any) -> None:
    write(tmp_path, images, labels)
    with pytest.raises(InputError):
        read_own(str(tmp_path), "a", SPEC)


def test_an_id_is_no_way_out_of_the_directory(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    write(tmp_path)
    with pytest.raises(InputError, match="plain file name"):
        read_own(str(inside), "../a", SPEC)
    with pytest.raises(InputError, match="cannot be read"):
        read_own(str(inside), "a", SPEC)


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"partition-id": 2, "num-partitions": 2},
        {"data": "x"},
        {"data": "x", "devices": "a,a"},
        {"data": "x", "devices": "a,b", "snr-db": "1,2,3"},
        {"data": "x", "devices": "a,b", "snr-db": "loud"},
    ],
)
def test_a_wrong_node_configuration_is_refused(node: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="node config"):
        Node.of(load_config(preset="demo"), node)


def test_a_node_checks_its_data_before_it_connects(
    camu: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    started: list[list[str]] = []
    monkeypatch.setattr("os.execve", lambda path, command, environment: started.append(command))
    write(tmp_path)
    np.save(tmp_path / "b-images.npy", IMAGES[:, :7])
    np.save(tmp_path / "b-labels.npy", LABELS)
    (tmp_path / "mine.py").write_text("def read(device):\n    return 1 / 0\ndef one(device): ...\n")
    base = ["deploy", "node", "--superlink", "x:1", "--insecure"]
    for options, words in {
        ("--devices", "nothere", "--data", "."): "the data of nothere cannot be read",
        (
            "--devices",
            "a,b",
            "--data",
            ".",
        ): "the inputs of a are images of (1, 8, 8) each and those of b",
        ("--devices", "a,a", "--data", "."): "each once",
        ("--devices", "a\x1b", "--data", "."): "can be printed",
        ("--devices", "a", "--data", "nowhere"): "no such directory",
        ("--devices", "a", "--data", ".", "--snr-db", "1,2"): "snr-db = 1,2",
        ("--devices", "a", "--data", ".", "--snr-db", "nan"): "snr-db = nan",
        ("--devices", "a", "--data", ".", "--joules", "mine:read"): "joules = mine:read",
        ("--devices", "a", "--data", "mine:read"): "mine.py, line 2, in read: ZeroDivisionError",
        ("--devices", "a", "--data", "mine:one"): "it must return inputs and targets",
    }.items():
        outcome = camu(*base, *options)
        assert outcome.code == (1 if "ZeroDivision" in words else 2), outcome.err
        assert words in outcome.err
    assert not started
    assert camu(*base, "--devices", "a", "--data", ".").code == 0
    assert len(started) == 1


def test_the_server_learns_nothing_of_data_that_do_not_fit_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, IMAGES[:, :7])
    config = load_config(preset="demo")
    context = SimpleNamespace(
        run_config=Deployment(config, "x").to_run_config(),
        node_config={"devices": "a", "data": str(tmp_path)},
    )
    report = report_of(cast(Any, context))
    # The number of samples is one of those that noise hides.
    assert "images are of shape (3, 7, 8); data.dataset = digits needs (n, 8, 8)" in caplog.text
    assert not any(letter.isdigit() for letter in report.problem)
    assert str(tmp_path) not in report.problem
    with pytest.raises(Refusal, match="it cannot take part: its data do not fit the run"):
        check_report(report, 10)


def test_a_run_with_too_few_classes_and_a_file_that_is_not_there_get_the_same_answer(
    tmp_path: Path,
) -> None:
    write(tmp_path, IMAGES, np.array([0, 1, 9]))
    few = Deployment(load_config(preset="demo"), "x", shape="shape:8x8x9").to_run_config()
    own = {"devices": "a", "data": str(tmp_path)}
    probe = load_config(preset="demo", overrides={"data.dataset": str(tmp_path / "none.npz")})
    trial = {"partition-id": 0, "num-partitions": 1}
    answers = [
        report_of(cast(Any, SimpleNamespace(run_config=run, node_config=node))).problem
        for run, node in ((few, own), (Deployment(probe, "x").to_run_config(), trial))
    ]
    assert answers == [UNFIT] * 2


def test_nodes_need_no_data_set_for_colour_images_of_any_size(
    fake_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server knows the shape; nodes have their own data, and nobody has a data set."""
    wait_without_time(monkeypatch)
    draw = np.random.default_rng(0)
    data = tmp_path / "data"
    data.mkdir()
    for name in ("pump", "fan", "test"):
        np.save(data / f"{name}-images.npy", draw.integers(0, 256, (24, 3, 11, 9), dtype=np.uint8))
        np.save(data / f"{name}-labels.npy", np.arange(24) % 12)
    (tmp_path / "fleet.csv").write_text("id,x,y,samples\npump,0,0,24\nfan,5,5,24\n")
    config = small(
        data__dataset="shape:3x11x9x12", fleet__file=str(tmp_path / "fleet.csv"),
        training__model="logistic", scheme__name="fedavg",
    )  # fmt: skip
    deployment = Deployment(config, str(tmp_path / "run"), "device", test_data=str(data))
    assert deployment.with_shape().shape == "shape:3x11x9x12"
    table = deployment.with_shape().to_run_config()

    def answer(node: int, message: Any) -> Any:
        own = {"devices": "pump" if node == 1 else "fan", "data": str(data)}
        context: Any = SimpleNamespace(run_config=table, node_config=own)
        if message.metadata.message_type == "query":
            return write_report(report_of(context))
        return result_of(message.content, context)

    history = serve(fake_grid([1, 2], answer), deployment)
    assert history.final.units == 2
    assert sum(record.faults["refused"] for record in history.records) == 0
    assert len(history.final.label_accuracy) == 12
    with pytest.raises(InputError, match="it names no samples"):
        load(config.data.dataset)


def test_a_servers_own_data_set_is_not_needed_on_nodes(tmp_path: Path) -> None:
    images = np.zeros((4, 3, 5, 5), np.uint8)
    labels = np.array([0, 1, 2, 3])
    np.savez(
        tmp_path / "mine.npz", train_images=images, train_labels=labels, test_images=images,
        test_labels=labels,
    )  # fmt: skip
    config = small(data__dataset=str(tmp_path / "mine.npz"), training__model="logistic")
    table = Deployment(config, "x").with_shape().to_run_config()
    assert table["shape"] == "shape:3x5x5x4"
    (tmp_path / "mine.npz").unlink()  # as on a node
    write(tmp_path, images, labels)
    own = {"devices": "a", "data": str(tmp_path)}
    context: Any = SimpleNamespace(run_config=table, node_config=own)
    report = report_of(context)
    assert report.problem == ""
    assert report.devices[0].label_counts == (1, 1, 1, 1)


@pytest.mark.parametrize(
    "name",
    [
        "shape:8x8", "shape:0x8x8x2", "shape:1x2x3x4x5", "shape:axb", "shape:numbers:4",
        "shape:tokens:4:2", "shape:numbers9:4:2", "shape:numbers:4:next-token",
        "shape:numbers:0:2", "shape:numbers:4:2:3", "shape:floats:4:2",
    ],
)  # fmt: skip
def test_a_wrong_shape_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="shape"):
        dataset_spec(small(data__dataset=name).data)
