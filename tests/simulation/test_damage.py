"""Damaged files of a run are noticed; an earlier checkpoint takes the place of a damaged one."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.errors import CamuError, InputError
from camu.files import locked
from camu.schemes import FedAvg
from camu.sealed import DamagedError
from camu.simulation.checkpoint import load_checkpoint, previous_checkpoint, save_checkpoint
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.export import load_model
from camu.simulation.result import build_engine
from camu.simulation.run import Run
from camu.world import World

Tiny = Callable[..., World]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_the_checkpoint_before_a_damaged_one_is_used_and_the_history_says_so(
    tiny: Tiny, tmp_path: Path
) -> None:
    config = tiny(run__rounds=6, machine__checkpoint_every=2).config
    whole = run_in_directory(config, RunDirectory(tmp_path / "whole"))
    out = RunDirectory(tmp_path / "run")
    run_in_directory(config.replace({"run.rounds": 4}), out)
    flip(out.checkpoint, -3)
    again = run_in_directory(config, out, resume=True)
    assert again.weights_sha256 == whole.weights_sha256
    assert again.records == whole.records
    assert whole.notes == ()
    note = "went on from the checkpoint of round 2, because the newest checkpoint is damaged"
    assert again.notes == (note,)
    assert out.read_history().notes == (note,)
    assert (out.checkpoint.parent / "damaged.safetensors").exists()
    # The note is part of later checkpoints.
    longer = run_in_directory(config.replace({"run.rounds": 7}), out, resume=True)
    assert longer.notes == (note,)


def test_two_damaged_checkpoints_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(run__rounds=4, machine__checkpoint_every=2).config
    out = RunDirectory(tmp_path / "run")
    run_in_directory(config, out)
    flip(out.checkpoint, 300)
    flip(previous_checkpoint(out.checkpoint), -1)
    with pytest.raises(DamagedError, match=r"previous\.safetensors: is damaged"):
        run_in_directory(config, out, resume=True)


@pytest.mark.parametrize("change", ["missing", "twice", "swapped", "edited"])
def test_changed_rounds_are_refused(tiny: Tiny, tmp_path: Path, change: str) -> None:
    config = tiny(run__rounds=4, machine__checkpoint_every=2).config
    out = RunDirectory(tmp_path / "run")
    run_in_directory(config, out)
    lines = out.rounds.read_text().splitlines()
    edited = json.dumps(dict(json.loads(lines[1]), virtual_seconds=9.0))
    changed = {
        "missing": [lines[0], *lines[2:]],
        "twice": [*lines[:2], *lines[1:]],
        "swapped": [lines[0], lines[2], lines[1], *lines[3:]],
        "edited": [lines[0], edited, *lines[2:]],
    }[change]
    out.rounds.write_text("\n".join(changed) + "\n")
    with pytest.raises(DamagedError, match=r"rounds\.jsonl: is damaged"):
        out.read_history()
    out.summary.unlink()  # the same in a run that has not ended
    with pytest.raises(DamagedError, match=r"rounds\.jsonl"):
        run_in_directory(config, out, resume=True)


@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "summary.json"])
def test_flipped_documents_are_refused(tiny: Tiny, tmp_path: Path, name: str) -> None:
    config = tiny(run__rounds=2).config
    out = RunDirectory(tmp_path / "run")
    run_in_directory(config, out)
    flip(out.path / name, 40)
    with pytest.raises(DamagedError, match=name):
        out.finished()
    with pytest.raises(DamagedError, match=name):
        run_in_directory(config, out, resume=True)


def test_a_flipped_model_is_not_loaded(tiny: Tiny, tmp_path: Path) -> None:
    out = RunDirectory(tmp_path / "run")
    run_in_directory(tiny(run__rounds=2).config, out)
    load_model(out.path)
    flip(out.model, -2)
    with pytest.raises(DamagedError, match=r"model\.safetensors"):
        load_model(out.path)


def test_a_checkpoint_of_another_version_is_named(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, path, plain = tiny(run__rounds=2), tmp_path / "state.safetensors", json.dumps
    plan = FedAvg().plan(world)

    def older(state: dict[str, object], **options: Any) -> str:  # without a key of today
        return plain({key: value for key, value in state.items() if key != "clock"}, **options)

    with build_engine(world) as engine:
        with monkeypatch.context() as patch:
            patch.setattr("camu.simulation.checkpoint.json.dumps", older)
            patch.setattr("camu.simulation.checkpoint.__version__", "0.0.9")
            save_checkpoint(Run.new(world, plan, engine.initial), path, 0.0)
        with pytest.raises(CamuError, match=r"checkpoint of camu 0\.0\.9 does not fit"):
            load_checkpoint(path, world, plan, engine.initial, [])


def hold(folder: str, ready: object, release: object) -> None:
    """Keep a directory locked until told otherwise."""
    with locked(Path(folder)):
        ready.set()  # type: ignore[attr-defined]
        release.wait(60)  # type: ignore[attr-defined]


def test_a_second_process_is_refused_until_the_first_is_gone(tiny: Tiny, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    folder = tmp_path / "run"
    first = context.Process(target=hold, args=(str(folder), ready, release))
    first.start()
    assert ready.wait(60)
    config = tiny(run__rounds=1).config
    with pytest.raises(InputError, match="another process is working here"):
        run_in_directory(config, RunDirectory(folder))
    first.kill()
    first.join()
    assert (folder / ".lock").exists()
    assert run_in_directory(config, RunDirectory(folder)).final.round == 1


def test_a_refused_run_leaves_no_directory(tiny: Tiny, tmp_path: Path) -> None:
    out = RunDirectory(tmp_path / "deep" / "run")
    config = tiny(faults__dropout_trace=str(tmp_path / "none.csv")).config
    with pytest.raises(InputError):
        run_in_directory(config, out)
    assert list(tmp_path.iterdir()) == []
