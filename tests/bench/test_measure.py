"""`camu measure`: a profile that fleets take, and predictions against sums by hand."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu as library
from camu.bench.measure import Step, profile_text, time_step
from camu.bench.predict import leave_one_out, moved_numbers
from camu.config import load_config
from camu.learning.flops import training_flops
from camu.world.boards import find_board

MODEL = """
from torch import nn


class Plain(nn.Sequential):
    def __init__(self, shape, outputs):
        super().__init__(nn.Flatten(), nn.Linear(64, outputs))


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


def test_a_step_is_predicted_by_the_others() -> None:
    """Where seconds are a sum of the three parts, the others give it exactly; else not its own."""
    draw = np.random.default_rng(0)
    flops, moved = draw.uniform(1e5, 1e8, 8), draw.integers(10**4, 10**7, 8)
    seconds = 10 * flops * 2e-11 + moved * 5e-10 + 3e-4
    steps = [step_of(*pair) for pair in zip(flops.tolist(), seconds.tolist(), strict=True)]
    assert leave_one_out(steps, moved.tolist()) == pytest.approx(seconds, rel=1e-6)
    wrong = [step_of(flops[0], 9.0), *steps[1:]]
    assert leave_one_out(wrong, moved.tolist())[0] == pytest.approx(seconds[0], rel=1e-6)


def test_numbers_that_a_linear_layer_moves(tmp_path: Path) -> None:
    """A product reads 5x64, 64x10 and a bias and writes 5x10, and so on; views move nothing."""
    (tmp_path / "mine.py").write_text(MODEL)
    config = load_config(overrides={"training.model": f"{tmp_path}/mine.py:Plain"})
    product = 10 + 5 * 64 + 64 * 10 + 5 * 10
    total = 5 * 10 + 1  # the sum of outputs
    ones = 2  # its gradient
    weights = 5 * 10 + 5 * 64 + 10 * 64
    bias = 5 * 10 + 10
    assert moved_numbers(config, 5) == product + total + ones + weights + bias


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


def test_other_models_are_predicted(camu: Callable[..., Any]) -> None:
    words = ("measure", "logistic", "--dataset", "digits", "--samples", "4")
    done = camu(*words, "--predict", "cnn")
    assert done.code == 0, done.err
    assert "by FLOPs: at the FLOP/s of logistic; median error" in done.out
    assert "by others:" not in done.out
