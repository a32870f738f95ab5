"""A run whose model names one class only is called that, on the command line and in its report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Camu = Callable[..., Any]


@pytest.fixture
def lopsided(tmp_path: Path) -> Path:
    """Images of noise, four fifths of which are of class 1."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (400, 8, 8), dtype=np.uint8)
    labels = np.where(np.arange(400) % 5 == 0, 2 * (np.arange(400) % 2), 1)
    path = tmp_path / "noise.npz"
    parts = {"train": slice(0, 300), "test": slice(300, 400)}
    np.savez(
        path,
        **{f"{name}_images": images[part] for name, part in parts.items()},
        **{f"{name}_labels": labels[part] for name, part in parts.items()},
    )
    return path


def test_a_model_that_names_one_class_is_at_chance(
    camu: Camu, lopsided: Path, tmp_path: Path
) -> None:
    keys = [f"data.dataset={lopsided}", "data.partition=iid", "training.model=logistic"]
    keys += [
        "run.rounds=12",
        "data.samples_per_device=15",
        "machine.workers=1",
        "training.learning_rate=0.01",
        "run.eval_every=1",
    ]
    settings = [word for key in keys for word in ("--set", key)]
    out = tmp_path / "run"
    done = camu("run", "--preset", "demo", "--scheme", "fedavg", *settings, "--out", out)
    assert done.code == 0, done.err
    said = "accuracy 80.00% is chance: 80% of the test samples are of class 1, and the model always"
    assert said in done.out
    assert "; balanced 33.33%)" in done.out
    summary = json.loads((out / "summary.json").read_text())
    assert summary["balanced_accuracy"] == pytest.approx(1 / 3)
    page = (out / "report.html").read_text()
    assert said in page
    assert "balanced accuracy (%)" in page
