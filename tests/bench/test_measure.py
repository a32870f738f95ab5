"""`camu measure`: a profile that fleets take, and predictions against sums by hand."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import camu as library
from camu.bench import probes
from camu.bench.measure import Step, profile_text, time_step
from camu.bench.predict import PARTS, fitted, parts_of_step
from camu.bench.probes import PROBES
from camu.config import load_config
from camu.learning.flops import training_flops
from camu.world.boards import find_board

MODEL = """
from torch import nn


class Plain(nn.Sequential):
    def __init__(self, shape, outputs):
        super().__init__(nn.Flatten(), nn.Linear(64, outputs))


class Mixed(nn.Sequential):
    def __init__(self, shape, outputs):
        super().__init__(
            nn.Conv2d(1, 6, 3, padding=1),
            nn.Conv2d(6, 6, 3, padding=1, groups=6),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )


class Text(nn.Sequential):
    def __init__(self, shape, outputs, vocabulary):
        super().__init__(nn.Embedding(vocabulary, 4), nn.Linear(4, outputs))
"""


def step_of(flops: float, seconds: float) -> Step:
    return Step("m", "d", 10, flops, seconds, 0.0, "torch")


@pytest.mark.parametrize(
    ("model", "dataset"),
    [
        ("logistic", "digits"),
        ("cnn", "digits"),
        ("logistic", "japanese-vowels"),
        ("linear", "diabetes"),
        ("Text", "shakespeare"),
    ],
)
def test_a_step_of_any_data_is_timed(model: str, dataset: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    name = f"{tmp_path}/mine.py:Text" if model == "Text" else model
    config = load_config(overrides={"training.model": name, "data.dataset": dataset})
    step = time_step(config, samples=8, repetitions=3)
    assert (step.samples, step.flops) == (8, training_flops(config))
    assert 1e-6 < step.seconds < 5
    assert step.flops_per_second * step.sample_seconds == pytest.approx(step.flops)


def test_the_profile_is_a_board(tmp_path: Path) -> None:
    """A device with it takes as long for its samples as was measured."""
    step = Step("logistic", "digits", 32, training_flops(config_of()), 1e-3, 0.1, "torch")
    path = tmp_path / "profile.toml"
    path.write_text(profile_text(step, 2e9, (1.0, 5.0)))
    board = find_board(str(path), "fleet.board")
    assert (board.cpu_hz, board.idle_watts, board.busy_watts) == (2e9, 1.0, 5.0)
    config = config_of().replace({"fleet.board": str(path), "training.batch_samples": 32})
    world = library.build_world(config)
    seconds = library.world.update_seconds(world.devices, config.training)
    assert seconds == pytest.approx(np.full(20, 1e-3))
    readings, training = config.readings, config.training
    joules = library.world.update_joules(world.devices, readings, training, 650)
    assert joules == pytest.approx(np.full(20, 4e-3))


def config_of() -> Any:
    return load_config(overrides={"training.model": "logistic"})


def test_one_reference_predicts_by_its_flops_per_second() -> None:
    assert step_of(2e6, 0.5).predicted_seconds(6e6) == pytest.approx(1.5)


def test_costs_are_those_that_add_up_to_the_seconds() -> None:
    """Where seconds are sums of parts the costs are found again; none is negative."""
    work = np.random.default_rng(0).uniform(0, 1, (12, 3)) * [1e8, 1e6, 5]
    costs = np.array([2e-11, 5e-10, 3e-4])
    assert fitted(work, work @ costs) == pytest.approx(costs, rel=1e-6)
    assert fitted(work, work @ (costs * [1, 1, 0])) == pytest.approx(costs * [1, 1, 0], abs=1e-12)
    assert (fitted(work, work @ (costs * [1, -1e-3, 1])) >= 0).all()


def parts(config: Any, samples: int) -> dict[str, float]:
    return dict(zip(PARTS, parts_of_step(config, samples).tolist(), strict=True))


def test_parts_of_a_linear_layer(tmp_path: Path) -> None:
    """A product reads 5x64, 64x10 and a bias and writes 5x10, and so on; views move nothing."""
    (tmp_path / "mine.py").write_text(MODEL)
    found = parts(load_config(overrides={"training.model": f"{tmp_path}/mine.py:Plain"}), 5)
    product = 10 + 5 * 64 + 64 * 10 + 5 * 10
    total = 5 * 10 + 1  # the sum of outputs
    ones = 2  # its gradient
    weights = 5 * 10 + 5 * 64 + 10 * 64
    bias = 5 * 10 + 10
    prepared = 4 * 5 * 64 + 6 * 650
    assert found["moved"] == product + total + ones + weights + bias + prepared
    assert found["products"] == 2 * 2 * 5 * 64 * 10
    assert found["operations"] == 5
    assert found["steps"] == 1
    assert not any(found[part] for part in ("convolutions", "convolved", "alone", "pooled"))


def test_parts_of_convolutions_and_pooling(tmp_path: Path) -> None:
    """Channels are filled up to 16; those of a convolution by channel are not."""
    (tmp_path / "mine.py").write_text(MODEL)
    found = parts(load_config(overrides={"training.model": f"{tmp_path}/mine.py:Mixed"}), 2)
    first = 2 * 2 * 64 * 9 * 1 * 16  # one channel of inputs, and 16 in place of 6 channels
    apart = 3 * 2 * 2 * 64 * 9 * 6  # forward, and backward for inputs and weights
    assert found["convolutions"] == 4
    assert found["convolved"] == pytest.approx(2 * first)
    assert found["alone"] == apart
    values, pooled = 2 * 6 * 64, 2 * 6 * 16
    assert found["pooled"] == (values + 2 * pooled) + (2 * pooled + 2 * values)


def test_the_command(camu: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    done = camu(
        *("measure", "logistic", "--dataset", "digits", "--samples", "4", "--cpu-hz", "2e9"),
        *("--out", str(out), "--json"),
    )
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)
    assert found["flops"] == 4 * 64 * 10
    profile = tomllib.loads(out.read_text())
    assert profile["flops_per_second"] == pytest.approx(found["flops_per_second"])
    assert profile["measured"]["seconds_per_sample"] == pytest.approx(found["sample_seconds"])
    assert "no watts were given" in done.err
    done = camu("plan", "--set", f"fleet.board={out}")
    assert done.code == 0, done.err
    assert f"20 {out}" in done.out.replace("\n", " ")
    done = camu("measure", "logistic", "--idle-watts", "1")
    assert done.code == 2
    assert "--idle-watts, --busy-watts: give both or neither" in done.err
    done = camu("measure", "logistik")
    assert done.code == 2
    assert "training.model" in done.err


def test_other_models_are_predicted(
    camu: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camu.bench.predict.PROBES", ("dense_small", "few_channels"))
    words = ("measure", "logistic", "--dataset", "digits", "--samples", "4")
    done = camu(*words, "--predict", "cnn")
    assert done.code == 0, done.err
    assert "by FLOPs: at the FLOP/s of logistic; median error" in done.out
    assert "by parts: the operations of a step, at costs fitted to other networks" in done.out
    done = camu(*words, "--predict", "cnn", "--json")
    assert all(step["seconds_by_parts"] > 0 for step in json.loads(done.out))


@pytest.mark.parametrize("name", PROBES)
def test_a_network_that_is_timed_can_be_trained(name: str) -> None:
    model = getattr(probes, name)((1, 28, 28), 10)
    outputs = model(torch.rand(3, 1, 28, 28))
    assert outputs.shape == (3, 10)
    outputs.sum().backward()
    assert all(own.grad is not None for own in model.parameters())
