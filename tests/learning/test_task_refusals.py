"""Metrics and options of a task that would mislead are refused, or said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
from camu.errors import InputError
from camu.learning.metrics import compute, find_metric
from camu.learning.task import task_of
from camu.world import build_world


def test_a_single_metric_needs_no_list() -> None:
    config = load_config(preset="demo", settings=["training.metrics=f1"])
    assert config.training.metrics == ("f1",)
    assert task_of(config).score.name == "f1"


@pytest.mark.parametrize("top", [10, 11])
def test_a_metric_that_every_model_wins_is_refused(top: int) -> None:
    config = load_config(preset="demo", settings=[f"training.metrics=top-{top}"])
    with pytest.raises(InputError, match=rf"top-{top}: .* digits are 10 classes.* always be 100 %"):
        task_of(config)
    assert task_of(load_config(preset="demo", settings=["training.metrics=top-9"])).score.top == 9


@pytest.mark.parametrize("name", ["rmse", "mae"])
def test_errors_are_added_in_double_precision(name: str) -> None:
    outputs, zeros = np.full((3, 1), 1e25, np.float32), np.zeros((3, 1), np.float32)
    assert compute(find_metric(name), outputs, zeros) == pytest.approx(1e25)
    assert compute(find_metric("r2"), outputs, zeros + np.arange(3, dtype=np.float32)[:, None]) < -1


def test_an_own_metric_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "judge.py"
    path.write_text("def judge(outputs, targets):\n    return float('nan')\n")
    ones = np.ones((3, 1), np.float32)
    with pytest.raises(InputError, match=r"judge.py:judge: it returned nan for finite outputs"):
        compute(find_metric(f"{path}:judge"), ones, ones)


@pytest.mark.parametrize("setting", ["dp_noise=4", "dp_clip=0.5", "dp_delta=1e-6"])
def test_noise_without_a_unit_is_refused(setting: str) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(InputError, match=rf"training\.{name} does nothing without .*dp_unit"):
        load_config(preset="demo", settings=[f"training.{setting}"])
    load_config(preset="demo", settings=[f"training.{setting}", "training.dp_unit=update"])


def test_a_run_says_that_its_cycles_are_far_off(camu: Callable[..., Any], tmp_path: Path) -> None:
    settings = ["--set", "run.rounds=1", "--set", "training.model=logistic"]
    done = camu("run", "--preset", "demo", *settings, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "needs on digits" in done.err
    assert 'set it to "auto"' in done.err


def test_a_model_without_products_keeps_its_fixed_cycles(tmp_path: Path) -> None:
    path = tmp_path / "scale.py"
    path.write_text(
        "import torch\n"
        "class Scale(torch.nn.Module):\n"
        "    def __init__(self, shape, outputs):\n"
        "        super().__init__()\n"
        "        self.bias = torch.nn.Parameter(torch.zeros(outputs))\n"
        "    def forward(self, images):\n"
        "        return images.flatten(1).sum(1, keepdim=True) + self.bias\n"
    )
    config = load_config(preset="demo", settings=[f"training.model={path}:Scale"])
    assert build_world(config).cycles_warnings() == []
