"""`camu export` to ONNX of runs that are no images: it predicts as the trained model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open

from camu.simulation.export import load_model

Camu = Callable[..., Any]
SMALL = ["--preset", "demo", "--set", "data.samples_per_device=none", "--set", "run.rounds=1"]
SMALL += ["--set", "machine.workers=1", "--set", "data.partition=iid"]
DATA = Path("data.npz")


def write_tokens() -> None:
    texts = np.random.default_rng(0).integers(0, 9, (120, 6))
    np.savez(DATA, train_inputs=texts[:80], test_inputs=texts[80:])


def write_rows() -> None:
    rows = np.random.default_rng(0).normal(size=(120, 5)).astype(np.float32)
    sums = rows @ np.ones((5, 2), np.float32)
    parts = {"train": slice(80), "test": slice(80, None)}
    arrays = {f"{name}_inputs": rows[part] for name, part in parts.items()}
    np.savez(DATA, **arrays, **{f"{name}_targets": sums[part] for name, part in parts.items()})


def write_series() -> None:
    series = np.random.default_rng(0).normal(size=(120, 3, 16)).astype(np.float32)
    labels = np.arange(120) % 3
    parts = {"train": slice(80), "test": slice(80, None)}
    arrays = {f"{name}_inputs": series[part] for name, part in parts.items()}
    np.savez(DATA, **arrays, **{f"{name}_targets": labels[part] for name, part in parts.items()})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "model", "outputs", "shape"),
    [
        (write_rows, "linear", "outputs", (3, 2)),
        (write_tokens, "gru", "logits", (3, 5, 9)),
        (write_series, "cnn1d", "logits", (3, 3)),
    ],
)
def test_programs_take_the_data_of_their_run(
    camu: Camu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[], None],
    model: str,
    outputs: str,
    shape: tuple[int, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    write()
    settings = ["--set", f"data.dataset=./{DATA}", "--set", f"training.model={model}"]
    done = camu("run", *SMALL, *settings, "--out", "run")
    assert done.code == 0, done.err
    inputs = torch.from_numpy(np.load(DATA)["test_inputs"][:3])
    if model == "gru":
        inputs = inputs[:, :-1]  # the last character is only a target
    expected = load_model("run")(inputs).detach()
    assert tuple(expected.shape) == shape
    done = camu("export", "run", "--to", "model.onnx")
    assert done.code == 0, done.err
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run([outputs], {"inputs": inputs.numpy()})
    assert np.allclose(found, expected, atol=1e-4)


@pytest.mark.slow
def test_exports_say_how_samples_are_scaled(
    camu: Camu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The score of the run, in the target's own units, from the file and the raw data alone."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    rows = draw.normal(50, 20, (120, 5)).astype(np.float32)
    sums = 1000 + rows @ draw.normal(size=(5, 1)).astype(np.float32)
    parts = {"train": slice(80), "test": slice(80, None)}
    arrays = {f"{name}_inputs": rows[part] for name, part in parts.items()}
    np.savez(DATA, **arrays, **{f"{name}_targets": sums[part] for name, part in parts.items()})
    settings = ["--set", f"data.dataset=./{DATA}", "--set", "training.model=linear"]
    settings += ["--set", "data.standardise=true"]
    assert camu("run", *SMALL, *settings, "--out", "run").code == 0
    score = json.loads(Path("run/summary.json").read_text())["final_score"]
    DATA.unlink()  # the world cannot be built again
    for name in ("model.pt2", "model.onnx", "model.safetensors"):
        done = camu("export", "run", "--to", name)
        assert done.code == 0, done.err
    files = {"camu.json": ""}
    program = torch.export.load("model.pt2", extra_files=files).module()
    scaling = json.loads(json.loads(files["camu.json"])["scaling"])
    found = {one.key: one.value for one in onnx.load("model.onnx").metadata_props}
    with safe_open("model.safetensors", "np") as tensors:
        texts = tensors.metadata()["scaling"], found["scaling"]
    assert [json.loads(text) for text in texts] == [scaling, scaling]

    def column(which: str, what: str) -> Any:
        return np.array(scaling[which][what], np.float64)

    inputs = (rows[80:] - column("inputs", "mean")) / column("inputs", "deviation")
    said = program(torch.from_numpy(inputs.astype(np.float32))).detach().numpy()
    said = said * column("targets", "deviation") + column("targets", "mean")
    assert np.sqrt(np.square(said - sums[80:]).mean()) == pytest.approx(score, rel=1e-4)
