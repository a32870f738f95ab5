"""`camu export`: the file predicts as the run did, in every format."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import camu as package
from camu.simulation.export import load_model

Camu = Callable[..., Any]
SMALL = ["--preset", "demo", "--set", "data.samples_per_device=30", "--set", "run.rounds=2"]
SMALL += ["--set", "machine.workers=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run."""
    from camu.config import load_config
    from camu.simulation.directory import RunDirectory, run_in_directory

    path = tmp_path_factory.mktemp("export") / "run"
    config = load_config(preset="demo", settings=SMALL[3::2])
    run_in_directory(config, RunDirectory(path))
    return path


@pytest.fixture(scope="module")
def test_set(run: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels that the run was evaluated on."""
    config = package.load_config(file=run / "config.toml")
    federation = package.build_world(config).federation
    assert federation is not None
    data = federation.dataset
    images = torch.from_numpy(data.test_inputs[:, None]).float() / 255
    return images, torch.from_numpy(np.asarray(data.test_labels))


def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return float((logits.argmax(1) == labels).double().mean())


def test_model_file_holds_named_tensors_and_says_what_it_is(run: Path) -> None:
    config = package.load_config(file=run / "config.toml")
    result = package.simulate(package.build_world(config), package.make_scheme(config))
    tensors = load_file(run / "model.safetensors")
    state = result.state_dict()
    assert set(tensors) == set(state)
    for name, tensor in state.items():
        assert torch.equal(tensors[name], tensor)
    assert tensors["conv1.weight"].shape == (10, 1, 3, 3)
    assert tensors["output.bias"].shape == (10,)
    with safe_open(run / "model.safetensors", "pt") as stored:
        metadata = stored.metadata()
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert len(metadata.pop("sha256")) == 64
    assert metadata == {
        "camu": package.__version__,
        "model": "cnn",
        "samples": "shape:8x8x10",
        "weights_sha256": summary["weights_sha256"],
    }


def test_loaded_model_predicts_as_the_run_did(
    run: Path, test_set: tuple[torch.Tensor, torch.Tensor]
) -> None:
    module = load_model(run)
    kinds = [type(layer) for layer in module.modules()]
    assert torch.nn.Conv2d in kinds
    assert torch.nn.MaxPool2d in kinds
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert accuracy(module(test_set[0]), test_set[1]) == summary["final_score"]


def test_safetensors(camu: Camu, run: Path, tmp_path: Path) -> None:
    done = camu("export", run, "--to", tmp_path / "sub" / "my.safetensors")
    assert done.code == 0, done.err
    assert "my.safetensors" in done.out
    written = (tmp_path / "sub" / "my.safetensors").read_bytes()
    assert written == (run / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_pt2(
    camu: Camu, run: Path, tmp_path: Path, test_set: tuple[torch.Tensor, torch.Tensor]
) -> None:
    path = tmp_path / "model.pt2"
    path.write_text("an older file is replaced")
    done = camu("export", run, "--to", path)
    assert done.code == 0, done.err
    program = torch.export.load(path).module()
    expected = load_model(run)(test_set[0])
    for images, logits in ((test_set[0], expected), (test_set[0][:1], expected[:1])):
        assert torch.allclose(program(images), logits, atol=1e-5)


@pytest.mark.slow
def test_onnx(
    camu: Camu, run: Path, tmp_path: Path, test_set: tuple[torch.Tensor, torch.Tensor]
) -> None:
    path = tmp_path / "model.onnx"
    done = camu("export", run, "--to", path)
    assert done.code == 0, done.err
    assert done.out == f"model: {path}, its card: {path}.md\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "model.onnx.md"]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = load_model(run)(test_set[0]).detach().numpy()
    for count in (1, 3, len(test_set[0])):
        (logits,) = session.run(["logits"], {"images": test_set[0][:count].numpy()})
        assert np.allclose(logits, expected[:count], atol=1e-4)


def test_missing_extra_says_how_to_get_it(
    camu: Camu, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    done = camu("export", run, "--to", tmp_path / "model.onnx")
    assert done.code == 2
    assert "camu-fl[onnx]" in done.err


def test_what_cannot_be_exported(camu: Camu, run: Path, tmp_path: Path) -> None:
    unknown = camu("export", run, "--to", tmp_path / "model.h5")
    assert unknown.code == 2
    assert "must end with .safetensors, .pt2 or .onnx" in unknown.err
    nothing = camu("export", tmp_path, "--to", tmp_path / "model.pt2")
    assert nothing.code == 2
    assert "no run is here" in nothing.err
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.toml").write_bytes((run / "config.toml").read_bytes())
    early = camu("export", unfinished, "--to", tmp_path / "model.pt2")
    assert early.code == 1
    assert f"camu run --resume --out {unfinished}" in early.err
    (unfinished / "status.json").touch()
    on_nodes = camu("export", unfinished, "--to", tmp_path / "model.pt2")
    assert f"camu deploy run --resume --out {unfinished}" in on_nodes.err
    (unfinished / "summary.json").write_bytes((run / "summary.json").read_bytes())
    missing = camu("export", unfinished, "--to", tmp_path / "model.pt2")
    assert missing.code == 1
    assert "model.safetensors: the file is missing" in missing.err
    (unfinished / "model.safetensors").write_bytes(b"no tensors")
    damaged = camu("export", unfinished, "--to", tmp_path / "model.pt2")
    assert damaged.code == 1
    assert "model.safetensors: is damaged" in damaged.err
    other = (run / "config.toml").read_text().replace('model = "cnn"', 'model = "logistic"')
    (unfinished / "config.toml").write_text(other)
    (unfinished / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes())
    changed = camu("export", unfinished, "--to", tmp_path / "model.pt2")
    assert changed.code == 1
    assert "the tensors do not fit the model logistic" in changed.err
    assert not (tmp_path / "model.pt2").exists()


@pytest.mark.slow
def test_a_module_that_torch_cannot_trace_is_named(
    camu: Camu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("choosy.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, image_shape, classes):\n"
        "        super().__init__()\n"
        "        self.linear = nn.Linear(64, classes)\n"
        "    def forward(self, images):\n"
        "        if images.sum() > -1:\n"
        "            return self.linear(images.flatten(1))\n"
        "        return self.linear(-images.flatten(1))\n"
    )
    done = camu("run", *SMALL, "--set", "training.model=./choosy.py:Net", "--out", "run")
    assert done.code == 0, done.err
    assert camu("export", "run", "--to", "model.safetensors").code == 0
    failed = camu("export", "run", "--to", "model.pt2")
    assert failed.code == 1
    assert "torch cannot export the model ./choosy.py:Net" in failed.err


def test_the_model_card_says_what_the_run_says(camu: Camu, run: Path, tmp_path: Path) -> None:
    done = camu("export", run, "--to", tmp_path / "m.safetensors")
    assert done.code == 0, done.err
    card = (tmp_path / "m.safetensors.md").read_text(encoding="utf-8")
    summary = json.loads((run / "summary.json").read_text())
    for text in (
        "# Model card of m.safetensors",
        f"scheme `{summary['scheme']}`, {summary['rounds']} rounds, seed {summary['seed']}",
        f"accuracy {summary['final_score']:.2%}",
        "images of 8 x 8",
        "a logit for each of 10 classes",
        "over 20 simulated devices",
        f"{summary['joules']:.4g} J",
        summary["weights_sha256"],
        summary["kernel"],
    ):
        assert text in card
