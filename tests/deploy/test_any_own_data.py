"""Nodes with series, tables and text of their own: read as they are, trained, and simulated."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.data import CATALOG, DatasetSpec, dataset_spec, federate
from camu.data.own import shape_name, shape_spec
from camu.deploy.deployment import Deployment
from camu.deploy.messages import check_report, write_report
from camu.deploy.node_data import read_own
from camu.deploy.server import app
from camu.deploy.server.app import serve
from camu.errors import InputError
from camu.schemes import make_scheme
from camu.simulation import simulate
from camu.world import build_world
from helpers.configs import small
from helpers.nodes import report_of, result_of, wait_without_time

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
    report = check_report(report_of(context), dataset_spec(config.data).classes)
    assert report.devices[0].label_counts == (6, *[0] * 9)
    context.run_config = (
        Deployment(config.replace({"data.standardise": True}), "x").with_shape().to_run_config()
    )
    assert "data.standardise = true: nodes have data of their own" in report_of(context).problem


def sequences(draw: np.random.Generator) -> dict[str, Any]:
    return {"inputs": (draw.integers(0, 3, (24, 1)) + np.arange(9)) % 9}


def meters(draw: np.random.Generator) -> dict[str, Any]:
    inputs = draw.normal(size=(24, 4)).astype(np.float32)
    return {"inputs": inputs, "targets": inputs @ [[1.0], [-2.0], [0.0], [3.0]]}


def movements(draw: np.random.Generator) -> dict[str, Any]:
    labels = np.arange(24) % 3
    return {"inputs": draw.normal(size=(24, 2, 16)) + labels[:, None, None], "targets": labels}


def patients(draw: np.random.Generator) -> dict[str, Any]:
    labels = np.arange(24) % 2
    return {"inputs": draw.normal(size=(24, 5)) + labels[:, None], "targets": labels}


def pictures(draw: np.random.Generator) -> dict[str, Any]:
    labels = np.arange(24) % 3
    images = draw.integers(0, 100, (24, 8, 8), dtype=np.uint8)
    images += (50 * labels[:, None, None]).astype(np.uint8)
    return {"images": images, "labels": labels}


@pytest.mark.parametrize(
    ("shape", "model", "make"),
    [
        ("shape:tokens9:8:next-token", "gru", sequences),
        ("shape:numbers:4:numbers1", "linear", meters),
        ("shape:numbers:2x16:3", "cnn1d", movements),
        ("shape:numbers:5:2", "mlp", patients),
        ("shape:8x8x3", "cnn", pictures),
        ("shape:8x8x3", "svm", pictures),
    ],
)
def test_nodes_train_on_own_data_of_every_family(
    fake_grid: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: str,
    model: str,
    make: Any,
) -> None:
    wait_without_time(monkeypatch)
    draw = np.random.default_rng(0)
    for name in ("pump", "fan", "test"):
        for kind, array in make(draw).items():
            np.save(tmp_path / f"{name}-{kind}.npy", array)
    (tmp_path / "fleet.csv").write_text("id,x,y,samples\npump,0,0,24\nfan,5,5,24\n")
    config = small(
        data__dataset=shape, fleet__file=str(tmp_path / "fleet.csv"), training__model=model,
        scheme__name="fedavg", training__local_update="epoch", training__batch_samples=6,
        training__learning_rate=0.1, radio__uplink="digital", run__rounds=5,
    )  # fmt: skip
    deployment = Deployment(config, str(tmp_path / "run"), "device", test_data=str(tmp_path))
    table = deployment.with_shape().to_run_config()

    def answer(node: int, message: Any) -> Any:
        own = {"devices": "pump" if node == 1 else "fan", "data": str(tmp_path)}
        context: Any = SimpleNamespace(run_config=table, node_config=own)
        if message.metadata.message_type == "query":
            return write_report(report_of(context))
        return result_of(message.content, context)

    history = serve(fake_grid([1, 2], answer), deployment)
    assert sum(record.faults["refused"] for record in history.records) == 0
    assert history.final.loss < 0.9 * history.records[0].loss


def test_a_trial_is_evaluated_on_what_its_devices_train_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(app.Engine, "from_config", lambda config, **named: seen.update(named))
    config = small(data__standardise=True)
    app._evaluator(config, "")
    data = federate(config.data, devices=config.fleet.devices, seed=config.run.seed).dataset
    assert seen["test"][0].dtype == np.float32
    assert (seen["test"][0] == data.test_inputs).all()
    assert (seen["test"][1] == data.test_targets).all()


def test_a_trial_on_standardised_numbers_is_the_simulation(
    fake_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_without_time(monkeypatch)
    config = small(
        data__dataset="diabetes", data__standardise=True, data__partition="dirichlet",
        data__samples_per_device=15, training__model="linear", scheme__name="fedavg",
        training__learning_rate=0.05, radio__uplink="digital", run__rounds=3,
    )  # fmt: skip
    deployment = Deployment(config, str(tmp_path / "run"), "device", nodes=2)
    table = deployment.with_shape().to_run_config()

    def answer(node: int, message: Any) -> Any:
        own = {"partition-id": node - 1, "num-partitions": 2}
        context: Any = SimpleNamespace(run_config=table, node_config=own)
        if message.metadata.message_type == "query":
            return write_report(report_of(context))
        return result_of(message.content, context)

    served = serve(fake_grid([1, 2], answer), deployment)
    simulated = simulate(build_world(config), make_scheme(config, "fedavg")).history
    assert served.final.loss == pytest.approx(simulated.final.loss, rel=1e-5)
    # Nodes train alone, and say so: the bits are those of a simulation that does the same.
    alone = build_world(config.replace({"machine.kernel": "torch"}))
    apart = simulate(alone, make_scheme(config, "fedavg")).history
    assert served.weights_sha256 == apart.weights_sha256
    own: Any = SimpleNamespace(
        run_config=table, node_config={"partition-id": 0, "num-partitions": 2}
    )
    assert report_of(own).provenance["kernel"] == "torch"
    assert served.final.loss < 0.95 * served.records[0].loss
