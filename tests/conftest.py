"""What all tests share: hypothesis without a clock, and a command line that runs in-process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings

from camu.cli import main

# Machines differ in speed and CI runs several things at once: a deadline would test the machine.
settings.register_profile("camu", deadline=None)
settings.load_profile("camu")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def camu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run `camu ARGUMENTS` and return exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["camu", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return run
