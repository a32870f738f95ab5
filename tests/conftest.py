"""What all tests share: hypothesis without a clock, a command line in-process, and a browser."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings

from camu.cli import main
from camu.world import World, build_world
from helpers.browser import open_browser
from helpers.configs import small

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for one module: two at once cannot share a process, nor with an event loop."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def tiny() -> Callable[..., World]:
    """Build a world of six devices whose linear model trains in milliseconds; __ for dots."""

    def build(**changes: Any) -> World:
        regions = [
            {"name": name, "devices": 3, "x": [x, x + 10.0], "y": [-5.0, 5.0]}
            for name, x in (("I", -10.0), ("II", 10.0))
        ]
        base: dict[str, Any] = {"fleet__regions": regions, "training__model": "logistic"}
        base |= {"run__rounds": 3, "run__eval_every": 10}
        base |= {"data__samples_per_device": 20, "data__noniid_devices": 4}
        return build_world(small(**base | changes))

    return build
