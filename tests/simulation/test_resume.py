"""A run that is killed at any moment and resumed gives the bits of the undisturbed one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from camu.errors import CamuError
from camu.schemes import FedAvg, make_scheme
from camu.simulation import simulate
from camu.simulation.checkpoint import load_checkpoint, save_checkpoint
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.result import build_engine
from camu.simulation.run import Run
from camu.world import World
from helpers import killed_runs
from helpers.killed_runs import PROCESSES, in_own_process

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
HERE = Path(killed_runs.__file__)
SCHEMES: dict[str, dict[str, Any]] = {
    "state": {"scheme__name": f"{EXAMPLES / 'scaffold.py'}:Scaffold"},
    "asynchronous": {
        "scheme__name": f"{EXAMPLES / 'fedbuff.py'}:FedBuff",
        "scheme__parameters": {"buffer": 2, "server_rate": 0.7},
        "radio__access": "ofdma",
    },
    "asynchronous with faults": {
        "scheme__name": f"{EXAMPLES / 'fedbuff.py'}:FedBuff",
        "scheme__parameters": {"buffer": 2},
        "radio__access": "ofdma",
        "radio__fading": "rayleigh",
        "radio__outage_snr_db": 23.0,
        "faults__corrupt_probability": 0.3,
        "fleet__idle_watts": 0.1,
    },
    "kept momentum": {
        "scheme__name": "clustered",
        "training__momentum": 0.9,
        "training__clip_norm": 1.0,
        "training__optimiser_state": "keep",
        "training__schedule": "cosine",
        "training__schedule_rounds": 10,
        "training__schedule_by": "step",
        "faults__dropout_probability": 0.2,
    },
    "kept means of adam": {
        "scheme__name": "local-sgd",
        "training__optimiser": "adam",
        "training__optimiser_state": "keep",
    },
    "codec with memory": {"scheme__name": f"{HERE}:Sparsified"},
    "oracle": {
        "scheme__name": "adaptive-tau",
        "scheme__parameters": {"max_updates": 4},
        "run__max_joules": 10.0,
    },
    "everything": {"scheme__name": f"{HERE}:Everything", "radio__fading": "rayleigh"},
    "moving": {
        "scheme__name": "camu",
        "clustering__leader": "rotating",
        "clustering__replan_every": 3,
        "fleet__speed_mps": (20.0, 60.0),
        "fleet__battery_joules": 0.2,
        "radio__fading": "rayleigh",
        "radio__fading_correlation": 0.5,
    },
    "cells": {
        "scheme__name": f"{EXAMPLES / 'fedbuff.py'}:FedBuff",
        "scheme__parameters": {"buffer": 2},
        "fleet__base_station_file": str(HERE.parents[1] / "schemes" / "two_stations.csv"),
        "fleet__speed_mps": (20.0, 60.0),
        "clustering__replan_every": 3,
        "radio__cells": "interfering",
    },
    "fading between devices, estimated uplinks": {
        "scheme__name": "clustered",
        "radio__fading": "rayleigh",
        "radio__fading_correlation": 0.7,
        "radio__d2d_fading": True,
        "radio__pilot_symbols": 8,
        "radio__csi_correlation": 0.8,
    },
    "precoding by the last norm, phase errors": {
        "scheme__name": "cotaf",
        "scheme__parameters": {"norm": "last"},
        "radio__noise_dbm": -85.0,
        "radio__fading": "rayleigh",
        "radio__pilot_symbols": 4,
        "radio__phase_error_rad": 0.2,
        "radio__time_offset_symbols": 0.3,
    },
    "gathers over the air": {
        "scheme__name": "cluster-air",
        "radio__noise_dbm": -85.0,
        "radio__phase_error_rad": 0.2,
        "faults__dropout_probability": 0.2,
    },
    "server": {"training__server_momentum": 0.5, "run__server_average": 0.8},
}
Tiny = Callable[..., World]


def story(out: Path) -> tuple[str, dict[str, bytes], dict[str, Any]]:
    """Everything that a run leaves, without the time that it took."""
    summary = RunDirectory(out).read_summary()
    del summary["wall_seconds"]
    tensors = load_file(out / "model.safetensors")
    model = {name: array.tobytes() for name, array in tensors.items()}
    return (out / "rounds.jsonl").read_text(), model, summary


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEMES)
def test_kill_and_resume_at_seven_moments(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    world = tiny(run__rounds=12, machine__checkpoint_every=2, run__eval_every=3, **SCHEMES[kind])
    config = world.config.to_toml()
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert in_own_process(config, whole, None) == 0
    for moment in killed_runs.MOMENTS:
        assert in_own_process(config, killed, moment) == -signal.SIGKILL, moment
        assert not (killed / "summary.json").exists()
    assert in_own_process(config, killed, None) == 0
    assert story(killed) == story(whole)
    assert [record.round for record in RunDirectory(killed).read_records()] == list(range(13))


@pytest.mark.parametrize("kind", SCHEMES)
def test_a_checkpoint_holds_the_whole_run(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    """Going on from a file gives the bits of going on from memory, from every second round."""
    config = tiny(run__rounds=8, machine__checkpoint_every=2, **SCHEMES[kind]).config
    whole = RunDirectory(tmp_path / "whole")
    run_in_directory(config, whole)
    for last in (2, 4, 6):
        part = RunDirectory(tmp_path / f"to-{last}")
        run_in_directory(config.replace({"run.rounds": last}), part)
        # eval_every is 10: only the last round of a run is evaluated, so accuracies are left out.
        history = run_in_directory(config, part, resume=True)
        assert history.weights_sha256 == whole.read_history().weights_sha256
        assert history.average_score == whole.read_history().average_score
        costs = [(r.joules, r.virtual_seconds, r.waiting_seconds) for r in history.records]
        expected = whole.read_history().records
        assert costs == [(r.joules, r.virtual_seconds, r.waiting_seconds) for r in expected]


@pytest.mark.slow
def test_a_plan_with_a_codec_of_ones_own_is_read_in_another_process(
    tiny: Tiny, tmp_path: Path
) -> None:
    """`camu report` reads the plan without the scheme that made it."""
    world = tiny(run__rounds=1, **SCHEMES["everything"])
    out = RunDirectory(tmp_path / "run")
    run_in_directory(world.config, out)
    assert f"{HERE}:Signs" in out.plan.read_text()
    process = PROCESSES.Process(target=killed_runs.read_plan, args=(str(out.path),))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_the_state_comes_back_as_it_was(tiny: Tiny, tmp_path: Path) -> None:
    world = tiny()
    state = {
        "b": np.arange(6, dtype=np.int16).reshape(2, 3).T,
        "number": 1 / 3,
        "single": np.float32(1) / np.float32(3),
        "double": np.float64(0.1),
        "whole": np.int64(2**60),
        "yes": True,
        "numpy yes": np.bool_(True),
        "text": "ä.b",
        "a.dotted.name": np.array([True, False]),
        "empty": np.zeros((0, 4), np.float32),
        "far": float("inf"),
    }
    with build_engine(world) as engine:
        plan = FedAvg().plan(world)
        run = Run.new(world, plan, engine.initial)
        run.state.update(state)
        save_checkpoint(run, tmp_path / "state", 1.5)
        again, wall = load_checkpoint(tmp_path / "state", world, plan, engine.initial, [])
    assert wall == 1.5
    assert list(again.state) == list(state)
    for name, value in state.items():
        found = again.state[name]
        assert type(found) is type(value)
        if isinstance(value, np.ndarray | np.generic):
            assert found.dtype == value.dtype
        assert np.array_equal(found, value)
    again.state["empty"] += 1  # arrays may be changed in place, as before
    again.state["b"][0] = 7


def test_a_run_that_fails_while_it_rewrites_its_rounds_loses_nothing(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(run__rounds=4, machine__checkpoint_every=2).config
    out = RunDirectory(tmp_path / "run")
    run_in_directory(config, out)
    before = out.rounds.read_bytes()
    whole_write, written = os.fsync, []

    def full(descriptor: int) -> None:
        written.append(descriptor)
        # config.toml and manifest.json come before rounds.jsonl, each with its directory.
        if len(written) <= 4:
            return whole_write(descriptor)
        os.ftruncate(descriptor, 100)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CamuError, match=r"rounds\.jsonl: cannot be written \(No space"):
            run_in_directory(config.replace({"run.rounds": 6}), out, resume=True)
    assert out.rounds.read_bytes() == before
    assert [path.name for path in out.path.glob(".*")] == [".lock"]
    again = run_in_directory(config.replace({"run.rounds": 6}), out, resume=True)
    whole = simulate(tiny(run__rounds=6), make_scheme(config)).history
    assert again.weights_sha256 == whole.weights_sha256
    assert again.final == whole.final


def test_lines_of_another_version_are_named_and_a_cut_last_line_is_left_out(
    tiny: Tiny, tmp_path: Path
) -> None:
    out = RunDirectory(tmp_path / "run")
    run_in_directory(tiny(run__rounds=3).config, out)
    lines = out.rounds.read_text().splitlines()
    for number in (2, 4):  # also in the last line
        odd = dict(json.loads(lines[number - 1]), mood="good")
        changed = [*lines[: number - 1], json.dumps(odd), *lines[number:]]
        out.rounds.write_text("\n".join(changed) + "\n")
        with pytest.raises(CamuError, match=rf"rounds\.jsonl, line {number}: .*'mood'"):
            out.read_records()
    out.rounds.write_text("\n".join([*lines[:1], lines[1][:30], *lines[2:]]) + "\n")
    with pytest.raises(CamuError, match=r"rounds\.jsonl, line 2: cannot be read"):
        out.read_records()
    for rest in (1, 30, len(lines[-1]) - 1):
        out.rounds.write_text("\n".join([*lines[:3], lines[3][:rest]]))
        assert [record.round for record in out.read_records()] == [0, 1, 2]
