"""`camu tune` through the command: its answer, its files, and what a kill leaves."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.cli.tune import _Bar
from camu.config import load_config
from camu.schemes import make_scheme

Camu = Callable[..., Any]
OWN = """
from dataclasses import dataclass

from camu.schemes import LocalSgd


@dataclass(frozen=True)
class Mine(LocalSgd):
    pull: float = 0.5
    tunable = {"pull": (0.1, 0.9)}
"""
TINY = (
    *("--preset", "demo", "--set", "data.samples_per_device=20"),
    *("--budget", "joules=3", "--trials", 6, "--seeds", 2),
)


def trials(out: Path) -> list[Any]:
    return [one["trials"] for one in json.loads((out / "tune.json").read_text())["schemes"]]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a search of two schemes, one of them the user's own, and what it said."""
    place = tmp_path_factory.mktemp("tune")
    (place / "own_mine.py").write_text(OWN, encoding="utf-8")
    schemes = "clustered,own_mine:Mine@training.server_momentum=0.5"
    words = ["--schemes", schemes, "--range", "own_mine:Mine@local_updates=1,3", "--out", "out"]
    done = subprocess.run(
        [sys.executable, "-m", "camu.cli", "tune", *map(str, TINY), *words],
        cwd=place, capture_output=True, text=True, env={**os.environ, "COLUMNS": "300"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (place / "said").write_text(done.stdout, encoding="utf-8")
    return place


@pytest.mark.slow
def test_the_answer_says_which_scheme_with_which_numbers_at_what_cost(answered: Path) -> None:
    said = (answered / "said").read_text(encoding="utf-8")
    schemes = json.loads((answered / "out" / "tune.json").read_text())["schemes"]
    assert [one["score"] for one in schemes] == sorted((o["score"] for o in schemes), reverse=True)
    assert {one["scheme"].split()[0] for one in schemes} == {"clustered", "own_mine:Mine"}
    [own] = [one for one in schemes if one["scheme"] != "clustered"]
    assert set(own["settings"]) == {"training.learning_rate", "local_updates", "pull"}
    assert own["settings"]["local_updates"] in {1, 2, 3}
    for one in schemes:
        best = one["trials"][one["best"]]
        mean = sum(row[0] for row in best["scores"]) / 2
        assert one["score"] == pytest.approx(mean)
        assert f"{100 * mean:.1f}" in said
        assert f"{best['costs']['joules']:.4g}" in said
        assert one["word"] in said
    assert "Validation accuracy in % at 3 joules (seeds 1000, 1001)" in said


@pytest.mark.slow
def test_every_scheme_gets_a_file_that_other_commands_take(
    answered: Path, camu: Camu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(answered)
    out = Path("out")
    schemes = json.loads((out / "tune.json").read_text())["schemes"]
    files = ["clustered.toml", "own_mine.Mine.training.server_momentum=0.5.toml"]
    for one, name in zip(sorted(schemes, key=lambda one: one["scheme"]), files, strict=True):
        config = load_config(out / name)
        assert tomllib.loads((out / name).read_text()) == tomllib.loads(config.to_toml())
        assert config.training.learning_rate == one["settings"]["training.learning_rate"]
        assert (config.run.min_joules, config.data.validation_share) == (3.0, 0.0)
        assert make_scheme(config).name == one["scheme"].split()[0]
    done = camu("run", "-c", out / "clustered.toml", "--out", "ran", "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary["seed"] == 0
    assert summary["joules"] >= 3.0
    _, *words = shlex.split((out / "compare.sh").read_text(encoding="utf-8"))
    done = camu(*words, "--out", "compared", "--seeds", 1)
    assert done.code == 0, done.err
    assert "clustered training.learning_rate=" in done.out


@pytest.mark.slow
def test_after_a_kill_the_same_command_gives_the_same_trials(
    answered: Path, camu: Camu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(answered)
    words = [*map(str, TINY), "--schemes", "clustered", "--out", "killed"]
    process = subprocess.Popen([sys.executable, "-m", "camu.cli", "tune", *words])
    deadline = time.monotonic() + 240
    while len(list(Path("killed").glob("runs/clustered/*/summary.json"))) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {p: p.stat().st_mtime_ns for p in Path("killed").glob("runs/clustered/*/summary.json")}
    assert not Path("killed/tune.json").exists()
    done = camu("tune", *words, "--json")
    assert done.code == 0, done.err
    [again] = trials(Path("killed"))
    assert again in trials(Path("out"))
    assert json.loads(done.out)["schemes"][0]["trials"] == again
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--schemes", "clustered"), "say at what schemes are judged"),
        (("--budget", "watts=3"), "write joules, seconds, megabytes = a number above 0"),
        (("--budget", "joules=3", "--range", "x=1:2"), "has no parameter x"),
        (("--budget", "joules=3", "--set", "run.seed=1000"), "are for tuning"),
        (("--budget", "joules=3", "--set", "run.target=0.9"), "--set run.target=none"),
        (("--budget", "joules=3", "--schemes", "clusteredg"), "did you mean"),
        (("--budget", "joules=3", "--address", "here:1"), "machine.engine=ray"),
    ],
)
def test_wrong_use_is_refused_before_work_starts(
    words: tuple[str, ...], why: str, camu: Camu, tmp_path: Path
) -> None:
    done = camu("tune", *words, "--out", tmp_path / "out")
    assert done.code == 2
    assert why in done.err
    assert not list((tmp_path / "out").glob("runs/*"))


def test_results_are_never_written_over_what_the_command_reads(camu: Camu, tmp_path: Path) -> None:
    file = tmp_path / "camu.toml"
    file.write_text('extends = "demo"\n', encoding="utf-8")
    done = camu("tune", "-c", file, "--budget", "joules=3", "--out", tmp_path)
    assert done.code == 2
    assert "the command reads this file; write to another one" in done.err


def test_the_estimate_of_the_time_counts_only_runs_of_this_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, said = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bar = _Bar(100)
    monkeypatch.setattr(bar, "work", lambda *given: said.append(given))
    for seconds, done in ((0, 40), (10, 45), (20, 50), (600, 90), (700, 100)):
        now[0] = 100.0 + seconds
        bar("tuning", done, 100)
    lefts = [left for *_, left in said]
    assert lefts == ["", "about 2 min left", "about 2 min left", "about 2 min left", ""]
    assert bar.done == "100 of 100 runs"
