"""Tasks other than images, on nodes: the weights of `camu run`, and the user's own data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from safetensors.numpy import load_file

from camu.config import Config, load_config
from camu.simulation.directory import RunDirectory, run_in_directory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("deployment"),
    pytest.mark.timeout(900),
    # Flower's bundle builder uses a name that pathspec has deprecated.
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),
]

TASKS = Path(__file__).parents[2] / "docs" / "examples" / "tasks"
FEW = {
    "fleet.regions": [{"name": "A", "devices": 4, "x": [0, 9], "y": [0, 9]}],
    "data.samples_per_device": 15,
    "run.rounds": 3,
    "machine.workers": 1,
}
MINE = """
import numpy as np


def series():
    draw = np.random.default_rng(0)
    labels = np.arange(160) % 4
    inputs = draw.normal(size=(160, 3, 20)) + labels[:, None, None] * [[[0.5], [-0.5], [0]]]
    return (inputs[:80], labels[:80]), (inputs[80:], labels[80:])
"""


def deployed(camu: Callable[..., Any], config: Config, folder: Path) -> dict[str, Any]:
    """The summary of a deployment whose model is that of `camu run`."""
    (folder / "task.toml").write_text(config.to_toml())
    out = folder / "out"
    outcome = camu("deploy", "local", "--nodes", 2, "-c", folder / "task.toml", "--out", out)
    assert outcome.code == 0, outcome.err
    run_in_directory(config, RunDirectory(folder / "here"))
    one, other = (load_file(path / "model.safetensors") for path in (out, folder / "here"))
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=0, atol=1e-6)
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return summary


def test_a_regression_on_nodes(camu: Callable[..., Any], tmp_path: Path) -> None:
    config = load_config(file=TASKS / "regression.toml", overrides=FEW)
    summary = deployed(camu, config, tmp_path)
    assert summary["final_score"] < 95  # of the mean: 81


def test_series_of_one_s_own_on_nodes(
    camu: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    own = {"data.dataset": f"{tmp_path}/mine.py:series", "training.model": "cnn1d"}
    config = load_config(
        preset="devices", overrides={**FEW, **own, "data.partition": "iid", "run.rounds": 15}
    )
    summary = deployed(camu, config, tmp_path)
    assert summary["final_score"] > 0.5  # chance: 0.25
