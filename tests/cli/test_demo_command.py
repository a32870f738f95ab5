"""`camu demo` through the command, with fewer rounds; and that it removes nothing of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.cli.demo import DEMO_SCHEMES, DEMO_SEEDS
from camu.config import Config

Camu = Callable[..., Any]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    import camu.config

    whole = camu.config.load_config

    def load(**given: Any) -> Config:
        return whole(**given).replace({"run.rounds": 2, "machine.workers": 1})

    monkeypatch.setattr(camu.config, "load_config", load)


@pytest.mark.slow
def test_a_demo_replaces_an_earlier_one_and_nothing_else(camu: Camu, tmp_path: Path) -> None:
    out, notes = tmp_path / "demo", tmp_path / "demo" / "fedsgd" / "notes.txt"
    _demo(camu, out)
    written = _summaries(out)
    notes.write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text("precious")
    mark = out / "camu.json"
    known = json.loads(mark.read_text())
    mark.write_text(json.dumps({**known, "runs": [*known["runs"], "../elsewhere"]}))
    _demo(camu, out)
    assert _summaries(out).isdisjoint(written)
    assert notes.read_text() == "mine"
    assert (elsewhere / "config.toml").read_text() == "precious"


def _demo(camu: Camu, out: Path) -> None:
    done = camu("demo", "--out", out)
    assert done.code == 0, done.err
    for name in DEMO_SCHEMES:
        assert name in done.out
    assert str(out / "report.html") in done.out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"{DEMO_SEEDS * len(DEMO_SCHEMES)} runs" in page
    found = [line for line in done.out.splitlines() if line.startswith("At equal ")]
    assert len(found) == 2
    assert all(line in page for line in found)  # the same words and numbers
    assert at_least_spent(out)


def at_least_spent(out: Path) -> bool:
    """Every run has spent the energy and the time at which the schemes are compared."""
    document = json.loads((out / "comparison.json").read_text())
    return all(
        run["joules"] >= document["equal_joules"]
        and run["virtual_seconds"] >= document["equal_seconds"]
        for run in document["runs"]
    )


def _summaries(out: Path) -> set[int]:
    """When the results of all schemes were written."""
    found = list(out.glob("*/seed-*/summary.json"))
    assert len(found) == DEMO_SEEDS * len(DEMO_SCHEMES)
    return {path.stat().st_mtime_ns for path in found}


@pytest.mark.parametrize("mark", [None, "[]"])
def test_the_demo_refuses_a_directory_of_others(
    camu: Camu, tmp_path: Path, mark: str | None
) -> None:
    """Results of `camu compare --out X` survive `camu demo --out X`."""
    mine = tmp_path / "fedsgd"
    mine.mkdir()
    (mine / "config.toml").write_text("precious")
    if mark is not None:
        (tmp_path / "demo.json").write_text(mark)
    done = camu("demo", "--out", tmp_path)
    assert done.code == 2
    assert "give an empty directory" in done.err
    assert (mine / "config.toml").read_text() == "precious"


def test_a_demo_that_is_stopped_does_not_promise_to_continue(
    camu: Camu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("camu.experiments.scheduler.run_all", stop)
    done = camu("demo", "--out", tmp_path / "demo")
    assert done.code == 130
    assert "stopped; the same command starts again" in done.err
