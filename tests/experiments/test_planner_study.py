"""The tables of docs/notes/auto-results.md are what the study prints from the kept runs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "docs" / "results" / "planner.json"
PAGE = ROOT / "docs" / "notes" / "auto-results.md"
COMMANDS = (
    "board --world two-labels --world dirichlet-umi",
    "worlds --axis seconds --world dirichlet-umi --world sixty",
    "worlds --axis joules --world dirichlet-umi --world sixty",
    "levers --axis seconds --world two-labels",
)


@pytest.fixture
def study() -> Any:
    spec = importlib.util.spec_from_file_location("planner_study", ROOT / "benchmarks/planner.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("arguments", COMMANDS)
def test_the_page_shows_what_the_study_prints(
    arguments: str,
    study: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object) -> float:
        raise AssertionError("a run is missing")

    monkeypatch.setattr(study.Study, "_run", refuse)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["planner.py", *arguments.split(), "--out", str(RUNS)])
    before = json.loads(RUNS.read_text("utf-8"))
    study.main()
    page = PAGE.read_text("utf-8")
    assert f"python benchmarks/planner.py {arguments} --out docs/results/planner.json" in page
    assert capsys.readouterr().out in page
    assert json.loads(RUNS.read_text("utf-8")) == before
