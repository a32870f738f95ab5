"""A warm start from an earlier run's model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.manifest import Manifest
from camu.simulation.result import read_start
from helpers.configs import small

CHEAP = {"training__model": "logistic", "data__samples_per_device": 20}


def test_a_run_begins_with_the_model_of_another_and_its_manifest_says_so(
    camu: Callable[..., Any], tmp_path: Path
) -> None:
    config = small(**CHEAP)
    first = run_in_directory(config, RunDirectory(tmp_path / "first"))
    model = tmp_path / "first" / "model.safetensors"
    (tmp_path / "run.toml").write_text(small(run__seed=5, **CHEAP).to_toml())
    options = ["-c", tmp_path / "run.toml", "--out", tmp_path / "second", "--start", model]
    outcome = camu("run", *options, "--json")
    assert outcome.code == 0, outcome.err
    second = RunDirectory(tmp_path / "second").read_history()
    # The test samples are those of the data set, whatever the seed.
    assert second.records[0].accuracy == first.final_score
    manifest = json.loads((tmp_path / "second" / "manifest.json").read_text())
    assert manifest["sources"]["start"] == first.weights_sha256
    more = ["--set", "run.rounds=3", "--resume", "--out", tmp_path / "second"]
    assert camu("run", *more).code == 0  # without --start: what it began with is known
    again = json.loads((tmp_path / "second" / "manifest.json").read_text())
    assert again["sources"]["start"] == first.weights_sha256
    trained = shutil.copy(tmp_path / "second" / "model.safetensors", tmp_path / "copy.safetensors")
    other = camu("run", *more, "--start", trained)
    assert other.code == 2
    assert "the model of --start has changed" in other.err
    cold, warm = Manifest.of(small(**CHEAP)), Manifest.of(small(**CHEAP), first.weights_sha256)
    assert cold.changes_since(warm) == warm.changes_since(cold) == ["the model that it starts from"]
    late = ["run", "--resume", "--out", tmp_path / "first", "--start", model]
    assert camu(*late, "--set", "run.rounds=3").code == 2  # it began with random weights


def test_a_warm_start_resumes_to_the_same_bits(tmp_path: Path) -> None:
    config = small(machine__checkpoint_every=1, **CHEAP)
    run_in_directory(config, RunDirectory(tmp_path / "first"))
    start = read_start(tmp_path / "first" / "model.safetensors", config)
    other = config.replace({"run.seed": 3})
    whole = run_in_directory(other, RunDirectory(tmp_path / "whole"), start=start)
    cut = other.replace({"run.rounds": 1})
    run_in_directory(cut, RunDirectory(tmp_path / "cut"), start=start)
    resumed = run_in_directory(other, RunDirectory(tmp_path / "cut"), resume=True)
    assert resumed.weights_sha256 == whole.weights_sha256
    cold = run_in_directory(other, RunDirectory(tmp_path / "cold"))
    assert cold.weights_sha256 != whole.weights_sha256


@pytest.mark.parametrize("damage", ["missing", "another model", "a flipped bit", "a folder"])
def test_a_wrong_start_is_refused_and_nothing_is_left(
    camu: Callable[..., Any], tmp_path: Path, damage: str
) -> None:
    run_in_directory(small(run__rounds=1, **CHEAP), RunDirectory(tmp_path / "first"))
    model = tmp_path / "first" / "model.safetensors"
    if damage == "missing":
        model.unlink()
    if damage == "a folder":
        model = tmp_path / "first"
    if damage == "a flipped bit":
        data = bytearray(model.read_bytes())
        data[-3] ^= 4
        model.write_bytes(data)
    kind = "cnn" if damage == "another model" else "logistic"
    (tmp_path / "run.toml").write_text(small(**CHEAP | {"training__model": kind}).to_toml())
    out = tmp_path / "second"
    outcome = camu("run", "-c", tmp_path / "run.toml", "--out", out, "--start", model)
    assert outcome.code in (1, 2)
    assert str(model) in outcome.err
    assert "bug in camu" not in outcome.err
    assert not out.exists()
