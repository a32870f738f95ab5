"""Around every command: one sentence, one JSON document, and streams that may be anything."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.cli import console
from camu.cli.console import LINE_SECONDS, Warnings, WorkBar, stage
from camu.cli.progress_bar import ProgressBar
from camu.config import load_config
from camu.errors import UserCodeError
from camu.schemes import make_scheme, plans
from camu.simulation import simulate
from camu.simulation.callbacks import StopOnInterrupt
from camu.world import World

Camu = Callable[..., Any]
Tiny = Callable[..., World]
PRINTS = """
import os
import camu
print("on import")
class Mine(camu.schemes.FedAvg):
    def plan(self, world):
        print("while planning")
        os.system("echo from a child")
        return super().plan(world)
"""


@pytest.mark.slow
def test_own_code_may_print_and_stdout_is_still_one_document(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PRINTS)
    command = [sys.executable, "-m", "camu.cli", "plan", "--json", "--scheme", "./mine.py:Mine"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["units"]
    for words in ("on import", "while planning", "from a child"):
        assert words in done.stderr


def test_a_warning_is_one_line_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    words = "device [/x] is left out; " * 5
    Warnings().handle(logging.makeLogRecord({"msg": words, "levelname": "WARNING"}))
    assert capsys.readouterr().err == f"warning: {words}\n"


def test_own_schemes_that_exit_are_named(tmp_path: Path, tiny: Tiny) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import sys, camu\nclass Mine(camu.Scheme):\n    def plan(self, world): sys.exit(0)"
    )
    config = load_config(preset="demo", overrides={"scheme.name": f"{path}:Mine"})
    with pytest.raises(UserCodeError, match=r"mine\.py, line 3, in plan: SystemExit"):
        plans.plan(make_scheme(config), tiny())


def test_lines_in_place_of_a_bar_where_there_is_no_terminal(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    world = tiny(run__rounds=6)
    seconds = iter(range(0, 1000, int(LINE_SECONDS / 2)))
    bar = ProgressBar("fedavg", lambda: float(next(seconds)))
    simulate(world, make_scheme(world.config), [bar])
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert 1 <= len(lines) < 6
    assert all(line.startswith("fedavg: round ") and "of 6, accuracy" in line for line in lines)


def test_a_run_that_has_to_spend_more_is_never_beyond_its_last_round(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter(range(0, 10000, int(LINE_SECONDS)))
    world = tiny(run__rounds=2)
    spent = simulate(world, make_scheme(world.config)).history.final.total_joules
    world = tiny(run__rounds=2, run__min_joules=5 * spent)  # ten rounds
    bar = ProgressBar("fedavg", lambda: float(next(seconds)))
    result = simulate(world, make_scheme(world.config), [bar])
    lines = [line for line in capsys.readouterr().err.splitlines() if "round" in line]
    places = [tuple(map(int, re.findall(r"round (\d+) of (\d+)", line)[0])) for line in lines]
    last = result.history.final.round
    assert last > 2
    assert places[-1] == (last, last)
    assert all(done < total for done, total in places[:-1])
    middle = [total for done, total in places if done > last / 2]
    assert all(abs(total - last) <= 2 for total in middle)  # rounds differ in fading


def test_long_work_says_how_far_it_is_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seconds = iter([0.0, LINE_SECONDS / 2, LINE_SECONDS, LINE_SECONDS])
    with WorkBar(clock=lambda: next(seconds)) as show:
        show("runs", 0, 9)
        show("runs", 4, 9)
    assert capsys.readouterr().err.split("\n") == ["runs: 4 of 9", ""]


def test_work_of_unknown_length_says_that_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage("planning with [mine]"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(console, "LINE_SECONDS", 0.01)
    with stage("planning with [mine]"):
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert set(lines) == {"planning with [mine]: 0 s"}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_stop_a_run_after_its_round(tiny: Tiny, name: str) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with StopOnInterrupt() as interrupt:
        os.kill(os.getpid(), number)
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before
    world = tiny(run__rounds=3)
    assert simulate(world, make_scheme(world.config), [interrupt]).history.final.round == 1


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopOnInterrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt.asked
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "error: there is not enough memory"),
        (OSError(28, "No space left on device", "a/b"), "error: a/b: No space left on device"),
        (OSError(24, "Too many open files"), "error: the system: Too many open files"),
        (ImportError("libx.so: failed to map segment"), "error: a library cannot be loaded"),
        (AttributeError("x"), "This is a bug in camu"),
    ],
)
def test_errors_of_the_system_are_no_bugs(
    camu: Camu, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("camu.config.load_config", fail)
    done = camu("config", "show")
    assert done.code == 1
    assert said in done.err
    assert ("bug in camu" in done.err) == isinstance(error, AttributeError)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["schemes"], ["schemes", "--json"]])
def test_a_reader_that_has_gone_is_no_failure(command: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "camu.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
