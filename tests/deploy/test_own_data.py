"""A node's own data: from files or a function, checked with one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import save_file

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.config import load_config
from camu.data import CATALOG, DatasetSpec, dataset_spec, federate, load
from camu.data.own import shape_name, shape_spec
from camu.deploy.deployment import Deployment
from camu.deploy.messages import Refusal, check_report, write_report
from camu.deploy.node_app import Node, answer_query, train_content
from camu.deploy.node_data import read_own
from camu.deploy.server import app
from camu.deploy.server.app import serve
from camu.errors import InputError
from helpers.configs import small
from helpers.nodes import wait_without_time

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


def test_data_that_do_not_fit_the_run_are_a_sentence_without_the_place(tmp_path: Path) -> None:
    write(tmp_path, IMAGES[:, :7])
    config = load_config(preset="demo")
    context = SimpleNamespace(
        run_config=Deployment(config, "x").to_run_config(),
        node_config={"devices": "a", "data": str(tmp_path)},
    )
    report = answer_query(cast(Any, context))
    assert "images are of shape (3, 7, 8); data.dataset = digits needs (n, 8, 8)" in report.problem
    assert str(tmp_path) not in report.problem
    with pytest.raises(Refusal, match="it cannot take part: data of a from its data: images are"):
        check_report(report, 10)


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
            return write_report(answer_query(context))
        return train_content(message.content, context)

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
    report = answer_query(context)
    assert report.problem == ""
    assert report.devices[0].label_counts == (1, 1, 1, 1)


SERIES = DatasetSpec("mine", "mine", (2, 5), 3, 1, 1, inputs="numbers")
METERS = DatasetSpec("mine", "mine", (4,), 10, 1, 1, inputs="numbers", target="numbers", width=2)
TEXT = DatasetSpec(
    "mine", "mine", (6,), 1, 1, 1, inputs="tokens", target="next-token", vocabulary=9
)
MARKED = DatasetSpec("mine", "mine", (6,), 4, 1, 1, inputs="tokens", vocabulary=9)


@pytest.mark.parametrize("form", ["npy", "safetensors"])
def test_floats_and_tokens_are_read_bit_by_bit(tmp_path: Path, form: str) -> None:
    def read(spec: DatasetSpec, inputs: Any, targets: Any) -> tuple[Any, Any]:
        arrays = {"inputs": inputs} | ({} if targets is None else {"targets": targets})
        for file in tmp_path.glob("a*"):
            file.unlink()
        if form == "npy":
            for name, array in arrays.items():
                np.save(tmp_path / f"a-{name}.npy", array)
        else:
            whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            save_file(whole, tmp_path / "a.safetensors")
        return read_own(str(tmp_path), "a", spec)

    draw = np.random.default_rng(0)
    floats = draw.normal(size=(7, 2, 5)).astype(np.float32)
    found = read(SERIES, floats, np.arange(7) % 3)
    assert found[0].tobytes() == floats.tobytes()
    rows, numbers = draw.normal(size=(7, 4)), draw.normal(size=(7, 2))
    found = read(METERS, rows, numbers)
    assert found[0].tobytes() == rows.tobytes()
    assert (found[1] == numbers.astype(np.float32)).all()
    tokens = draw.integers(0, 9, (7, 7))
    found = read(TEXT, tokens, None)
    assert (found[0] == tokens[:, :-1]).all()
    assert (found[1] == tokens[:, 1:]).all()
    assert (read(MARKED, tokens[:, 1:], np.arange(7) % 4)[0] == tokens[:, 1:]).all()
    for spec, inputs, targets, words in (
        (SERIES, floats[:, :, 1:], np.arange(7) % 3, r"needs \(n, 2, 5\)"),
        (SERIES, floats, np.arange(7), "must lie between 0 and 2"),
        (SERIES, floats, numbers, "one whole number from 0 per sample"),
        (SERIES, tokens, np.arange(7) % 3, r"tokens \(whole numbers\); .* needs numbers"),
        (METERS, rows, numbers[:, :1], "are 1 numbers each; .* needs 2"),
        (METERS, rows * np.nan, numbers, "sample 0 contains nan"),
        (TEXT, tokens + 1, None, "must be tokens between 0 and 8"),
        (TEXT, tokens, np.arange(7), "leave the targets out"),
        (MARKED, tokens, None, "targets are missing; .* needs classes"),
        (METERS, rows, None, "targets are missing"),
    ):
        with pytest.raises(InputError, match=words):
            read(spec, inputs, targets)


@pytest.mark.parametrize("spec", [SERIES, METERS, TEXT, MARKED, CATALOG["digits"]])
def test_the_name_of_a_shape_says_all_of_it(spec: DatasetSpec) -> None:
    found = shape_spec(shape_name(spec))
    assert found is not None
    for name in ("shape", "classes", "inputs", "target", "width", "vocabulary", "outputs"):
        assert getattr(found, name) == getattr(spec, name), name
    assert shape_name(CATALOG["digits"]) == "shape:8x8x10"


def test_nodes_report_how_many_samples_where_targets_are_numbers(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays = {
        f"{split}_{name}": draw.normal(size=(20, *shape))
        for split in ("train", "test")
        for name, shape in (("inputs", (4,)), ("targets", (2,)))
    }
    np.savez(tmp_path / "mine.npz", **arrays)
    config = small(data__dataset=str(tmp_path / "mine.npz"), training__model="linear")
    table = Deployment(config, "x").with_shape().to_run_config()
    assert table["shape"] == "shape:numbers:4:numbers2:10"
    np.save(tmp_path / "a-inputs.npy", draw.normal(size=(6, 4)))
    np.save(tmp_path / "a-targets.npy", draw.normal(size=(6, 2)))
    context: Any = SimpleNamespace(
        run_config=table, node_config={"devices": "a", "data": str(tmp_path)}
    )
    report = check_report(answer_query(context), dataset_spec(config.data).classes)
    assert report.devices[0].label_counts == (6, *[0] * 9)
    context.run_config = (
        Deployment(config.replace({"data.standardise": True}), "x").with_shape().to_run_config()
    )
    assert "data.standardise = true: nodes have data of their own" in answer_query(context).problem


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


def test_a_trial_is_evaluated_on_what_its_devices_train_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(app.Engine, "from_config", lambda config, **named: seen.update(named))
    config = small(data__standardise=True)
    app._evaluator(config, "")
    data = federate(config.data, devices=config.fleet.devices, seed=config.run.seed).dataset
    assert seen["test"][0].dtype == np.float32
    assert (seen["test"][0] == data.test_inputs).all()
    assert (seen["test"][1] == data.test_targets).all()
