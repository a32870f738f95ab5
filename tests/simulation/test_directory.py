"""Run directories: complete, resumable to the bit after any kill, never mixed up."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.simulation.directory import RunDirectory

SMALL = ["--preset", "demo", "--set", "data.samples_per_device=30", "--set", "run.eval_every=2"]
SMALL += ["--set", "radio.fading=rayleigh", "--set", "radio.fading_correlation=0.5"]
Camu = Callable[..., Any]


def test_a_run_leaves_what_it_promises(camu: Camu, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = camu("run", *SMALL, "--set", "run.rounds=6", "--out", out, "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    for key in ("scheme", "dataset", "seed", "rounds", "final_score", "best_score"):
        assert key in summary
    for key in ("virtual_seconds", "joules", "wall_seconds", "weights_sha256", "version"):
        assert key in summary
    rows = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(7))
    kinds = ("compute", "transmit", "receive", "idle")
    assert sum(rows[-1]["joules"][kind] for kind in kinds) == summary["joules"]
    assert rows[-1]["virtual_seconds"] == summary["virtual_seconds"]
    assert (out / "plan.json").exists()
    assert RunDirectory(out).read_config().run.rounds == 6
    # A second run does not overwrite the first.
    again = camu("run", *SMALL, "--out", out)
    assert again.code == 2
    assert "--resume" in again.err


def reference(camu: Camu, out: Path, rounds: int) -> str:
    done = camu("run", *SMALL, "--set", f"run.rounds={rounds}", "--out", out, "--json")
    assert done.code == 0, done.err
    digest: str = json.loads(done.out)["weights_sha256"]
    return digest


def start(out: Path, rounds: int, *extra: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "camu.cli", "run", *SMALL, "--set", f"run.rounds={rounds}"]
    return subprocess.Popen(
        [*command, "--set", "machine.checkpoint_every=2", "--out", str(out), *extra],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_round(out: Path, number: int) -> None:
    path = out / "rounds.jsonl"
    for _ in range(6000):
        if path.exists() and path.read_text().count("\n") > number:
            return
        time.sleep(0.01)
    raise AssertionError("the run does not get on")


@pytest.mark.slow
def test_kill_at_any_moment_and_resume_gives_the_same_bits(camu: Camu, tmp_path: Path) -> None:
    rounds = 40
    expected = reference(camu, tmp_path / "whole", rounds)
    out = tmp_path / "killed"
    dice = random.Random(5)
    for kill in range(5):
        process = start(out, rounds, *(["--resume"] if RunDirectory(out).exists() else []))
        if kill:  # the first one dies before or just as it begins
            done = len((out / "rounds.jsonl").read_text().splitlines())
            wait_for_round(out, min(done + dice.randrange(6), rounds - 4))
        time.sleep(dice.random() * 0.2)
        process.kill()
        process.communicate()
        if not kill:
            wait_for_or_make(out, rounds)
    done = camu("run", "--resume", "--out", out, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["weights_sha256"] == expected
    rows = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    whole = (tmp_path / "whole" / "rounds.jsonl").read_text().splitlines()
    assert rows == [json.loads(line) for line in whole]


def wait_for_or_make(out: Path, rounds: int) -> None:
    """A run killed before it wrote anything is simply begun again."""
    if not (out / "rounds.jsonl").exists():
        process = start(out, rounds, *(["--resume"] if RunDirectory(out).exists() else []))
        wait_for_round(out, 1)
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_ctrl_c_stops_after_the_round_and_says_how_to_go_on(camu: Camu, tmp_path: Path) -> None:
    expected = reference(camu, tmp_path / "whole", 60)
    out = tmp_path / "stopped"
    process = start(out, 60)
    wait_for_round(out, 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "--resume" in err
    assert not (out / "summary.json").exists()
    stopped_at = len((out / "rounds.jsonl").read_text().splitlines()) - 1
    assert stopped_at < 60
    done = camu("run", "--resume", "--out", out, "--json")
    assert json.loads(done.out)["weights_sha256"] == expected


def test_checkpoint_of_another_config_is_refused_with_the_keys(camu: Camu, tmp_path: Path) -> None:
    out = tmp_path / "run"
    reference(camu, out, 2)
    done = camu(
        "run", *SMALL, "--set", "run.rounds=2", "--set", "training.learning_rate=0.3",
        "--out", out, "--resume",
    )  # fmt: skip
    assert done.code == 2
    assert "training.learning_rate (was 0.1, now 0.3)" in done.err


@pytest.mark.slow
def test_more_rounds_may_be_added(camu: Camu, tmp_path: Path) -> None:
    expected = reference(camu, tmp_path / "whole", 6)
    reference(camu, tmp_path / "part", 4)
    done = camu(
        "run", *SMALL, "--set", "run.rounds=6", "--out", tmp_path / "part", "--resume", "--json"
    )
    assert json.loads(done.out)["weights_sha256"] == expected


@pytest.mark.slow
def test_finished_run_resumes_to_itself(camu: Camu, tmp_path: Path) -> None:
    out = tmp_path / "run"
    expected = reference(camu, out, 4)
    before = (out / "rounds.jsonl").read_text()
    done = camu("run", "--resume", "--out", out, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["weights_sha256"] == expected
    assert (out / "rounds.jsonl").read_text() == before


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "noise"])
def test_damaged_checkpoint_is_named(camu: Camu, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "run"
    reference(camu, out, 4)
    path = RunDirectory(out).checkpoint
    data = path.read_bytes()
    path.write_bytes(data[:-100] if damage == "cut" else os.urandom(len(data)))
    done = camu("run", "--resume", "--out", out)
    assert done.code == 1
    assert str(path) in done.err.replace("\n", "")
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_line_cut_short_by_a_crash_is_passed_over(camu: Camu, tmp_path: Path) -> None:
    out = tmp_path / "run"
    expected = reference(camu, out, 4)
    (out / "summary.json").unlink()  # as while a run goes on
    with (out / "rounds.jsonl").open("a") as stream:
        stream.write('{"round": 5, "accu')
    done = camu("run", "--resume", "--out", out, "--json")
    assert json.loads(done.out)["weights_sha256"] == expected
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 5


@pytest.mark.slow
def test_trackers_write_their_files(camu: Camu, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    out = tmp_path / "run"
    done = camu(
        "run",
        *SMALL,
        "--set",
        "run.rounds=2",
        "--set",
        "machine.callbacks=tensorboard",
        "--out",
        out,
    )
    assert done.code == 0, done.err
    assert list((out / "tensorboard").iterdir())


def test_missing_extra_says_how_to_get_it(
    camu: Camu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    done = camu(
        "run",
        *SMALL,
        "--set",
        "run.rounds=2",
        "--set",
        "machine.callbacks=mlflow",
        "--out",
        tmp_path / "r",
    )
    assert done.code == 2
    assert "camu-fl[tracking]" in done.err
    assert not (tmp_path / "r").exists()
