"""Built-in models are refused where they do not fit the data, the targets or the loss."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import camu
from camu.config import Config, load_config
from camu.config.training_section import MODELS as NAMES
from camu.learning.catalog import MODELS
from camu.learning.networks import GRU, MLP, CNN1d, Linear
from camu.planning.codecs import parameter_count
from camu.schemes import FedAvg
from camu.world import build_world

DATA = """
import numpy as np


def draw():
    return np.random.default_rng(0)


def make(inputs, targets):
    return (inputs[:90], targets[:90]), (inputs[90:], targets[90:])


def table():
    inputs = draw().normal(size=(120, 6))
    return make(inputs, (inputs[:, 0] > 0).astype(int))


def numbers():
    inputs = draw().normal(size=(120, 6))
    return make(inputs, inputs[:, :1])


def series():
    inputs = draw().normal(size=(120, 3, 20))
    return make(inputs, np.arange(120) % 4)


def volumes():
    return make(draw().normal(size=(120, 2, 3, 4, 5)), np.arange(120) % 4)


def pictures():
    return make(draw().normal(size=(120, 3, 8, 8)), np.arange(120) % 4)


def text():
    tokens = draw().integers(0, 9, (120, 12))
    return (tokens[:90], None), (tokens[90:], None)


def sentences():
    tokens = draw().integers(0, 9, (120, 12))
    return make(tokens, tokens[:, 0] % 2)
"""
FITTING = {
    "digits": ("cnn", "resnet8", "logistic", "svm", "mlp"),
    "table": ("logistic", "svm", "mlp"),
    "numbers": ("linear", "mlp"),
    "series": ("logistic", "svm", "mlp", "cnn1d", "gru"),
    "pictures": ("cnn", "resnet8", "logistic", "svm", "mlp"),
    "volumes": ("logistic", "svm", "mlp"),
    "text": ("gru",),
    "sentences": ("gru",),
}


FEW = {
    "fleet.regions": [{"name": "A", "devices": 3, "x": [0, 9], "y": [0, 9]}],
    "data.partition": "iid",
    "data.samples_per_device": 20,
    "run.rounds": 1,
    "machine.workers": 1,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(DATA)
    return tmp_path


def config_of(data: str, model: str, **changes: object) -> Config:
    name = data if data == "digits" else f"./mine.py:{data}"
    base = {"data.dataset": name, "training.model": model, **FEW, **changes}
    return load_config(preset="devices", overrides=base)


def test_the_names_are_the_same_everywhere() -> None:
    assert set(NAMES) == set(MODELS)
    assert set().union(*FITTING.values()) == set(MODELS)


@pytest.mark.parametrize("data", FITTING)
def test_a_model_trains_on_what_fits_it_and_is_refused_otherwise(folder: Path, data: str) -> None:
    for model in MODELS:
        config = config_of(data, model)
        if model in FITTING[data]:
            world = build_world(config)
            result = camu.simulate(world, FedAvg())
            assert result.history.final.loss is not None
            assert result.weights.parameters.size == parameter_count(world)
            continue
        with pytest.raises(camu.InputError) as refused:
            FedAvg().plan(build_world(config))
        words = str(refused.value)
        assert words.startswith(f"training.model = {model}: ")
        assert config.data.dataset in words
        assert all(f"{name}," in words for name in FITTING[data])


@pytest.mark.parametrize(
    ("data", "model", "words"),
    [
        ("series", "cnn", "has series, 3 channels of 20 numbers (images have three axes); use"),
        ("digits", "gru", "data.dataset = digits has images of shape (8, 8); use cnn, resnet8, "),
        ("table", "cnn1d", "has rows of 6 numbers; use logistic, svm, mlp, or your own"),
        ("text", "mlp", "has tokens, 11 per sample; use gru, or your own module:Class"),
        ("numbers", "logistic", "are numbers; use linear, mlp, or your own"),
        ("table", "linear", "are 2 classes; use logistic, svm, mlp, or your own"),
    ],
)
def test_the_sentence_names_what_the_data_are_and_what_fits(
    folder: Path, data: str, model: str, words: str
) -> None:
    with pytest.raises(camu.InputError) as refused:
        parameter_count(build_world(config_of(data, model)))
    assert words in str(refused.value)


def test_svm_and_hinge_go_together(folder: Path) -> None:
    for loss in ("cross-entropy", "binary", "./mine.py:table"):
        config = config_of("table", "svm", **{"training.loss": loss})
        with pytest.raises(camu.InputError, match=r"training\.model = svm: .*leave training\.loss"):
            parameter_count(build_world(config))
    with pytest.raises(camu.InputError, match=r"use training\.model = svm"):
        parameter_count(build_world(config_of("table", "logistic", **{"training.loss": "hinge"})))
    assert parameter_count(build_world(config_of("table", "svm"))) == 7  # one output for two
    assert parameter_count(build_world(config_of("digits", "svm"))) == 65 * 10


def test_a_linear_svm_takes_the_step_of_its_formula(folder: Path) -> None:
    """Half the squared hinge and half of l2 times |w|^2, as Wang et al. (2019) have them."""
    changes = {"training.l2": 0.3, "training.learning_rate": 0.2, "training.batch_fraction": 1.0}
    config = config_of("table", "svm", **changes, **{"data.samples_per_device": 30})
    world = build_world(config)
    federation = world.federation
    assert federation is not None
    own = federation.indices[0]
    inputs = federation.dataset.train_inputs[own].astype(np.float32)
    signs = 2.0 * federation.dataset.train_targets[own] - 1
    engine = camu.learning.engine.Engine.from_config(
        config,
        (federation.dataset.train_inputs, federation.dataset.train_targets),
        federation.indices,
    )
    with engine:
        start = engine.initial
        (after,) = engine.train(start, [camu.learning.job.Job((0,), (1.0,))], 0)
    weights, bias = start.parameters[:6].astype(float), float(start.parameters[6])
    short = np.maximum(0.0, 1 - signs * (inputs @ weights + bias))
    slope = np.r_[-(short * signs) @ inputs, -(short * signs).sum()] / len(own)
    expected = start.parameters - 0.2 * (slope + 0.3 * start.parameters)
    np.testing.assert_allclose(after.parameters, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", ["(28, 28)", "(3, 32, 32)"])
def test_standardised_images_stay_images(folder: Path, shape: str) -> None:
    (folder / "grey.py").write_text(
        "import numpy as np\ndef data():\n"
        f"    images = np.random.default_rng(0).integers(0, 256, (90, *{shape}), dtype=np.uint8)\n"
        "    return (images[:60], np.arange(60) % 3), (images[60:], np.arange(30) % 3)\n"
    )
    for model in ("cnn", "resnet8", "mlp"):
        config = config_of("digits", model).replace(
            {"data.dataset": "./grey.py:data", "data.standardise": True}
        )
        world = build_world(config)
        assert camu.simulate(world, FedAvg()).history.final.loss is not None


def test_a_plan_with_a_built_in_model_loads_no_torch(folder: Path) -> None:
    code = (
        "import json, sys, camu\n"
        "from camu.simulation.dry_run import dry_run\n"
        "for changes in json.loads(sys.argv[1]):\n"
        "    world = camu.build_world(camu.load_config(preset='devices', overrides=changes))\n"
        "    dry_run(world, camu.schemes.FedAvg(), 1)\n"
        "print('torch' in sys.modules)"
    )
    pairs = [("./mine.py:series", "cnn1d"), ("./mine.py:numbers", "linear"), ("digits", "mlp")]
    pairs += [("./mine.py:table", "svm"), ("digits", "resnet8")]
    changes = [{"data.dataset": data, "training.model": model, **FEW} for data, model in pairs]
    command = [sys.executable, "-c", code, json.dumps(changes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_docstrings_say_how_large_the_models_are() -> None:
    assert "199 210" in inspect.getdoc(MLP)
    assert "11 556" in inspect.getdoc(CNN1d)
    assert "14 084" in inspect.getdoc(GRU)
    assert "18 880" in inspect.getdoc(GRU)
    assert Linear.__doc__
