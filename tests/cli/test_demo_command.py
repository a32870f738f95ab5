"""`camu demo` through the command, with fewer rounds; and that it removes nothing of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.config import Config
from camu.schemes import SCHEMES

Camu = Callable[..., Any]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    import camu.config

    whole = camu.config.load_config

    def load(**given: Any) -> Config:
        return whole(**given).replace({"run.rounds": 2, "run.workers": 1})

    monkeypatch.setattr(camu.config, "load_config", load)


def test_the_demo_runs_every_scheme_and_can_be_run_again(camu: Camu, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    for _ in range(2):
        done = camu("demo", "--out", out)
        assert done.code == 0, done.err
        summaries = list(out.glob("*/seed-0-*/summary.json"))
        assert len(summaries) == len(SCHEMES)
        written = {path.stat().st_mtime_ns for path in summaries}
        for name in SCHEMES:
            assert name in done.out
        assert str(out / "report.html") in done.out.replace("\n", "")
        assert f"{len(SCHEMES)} runs" in (out / "report.html").read_text(encoding="utf-8")
    assert min(written) > 0
    keep = out / "fedavg" / "notes.txt"
    keep.write_text("mine")
    assert camu("demo", "--out", out).code == 0
    assert keep.read_text() == "mine"
    assert {p.stat().st_mtime_ns for p in out.glob("*/seed-0-*/summary.json")}.isdisjoint(written)


@pytest.mark.parametrize("mark", [None, "[]", '{"runs": ["../elsewhere"]}'])
def test_the_demo_removes_nothing_of_others(camu: Camu, tmp_path: Path, mark: str | None) -> None:
    """Results of `camu compare --out X` survive `camu demo --out X`."""
    mine = tmp_path / "elsewhere" if mark and "else" in mark else tmp_path / "out" / "fedavg"
    mine.mkdir(parents=True)
    (mine / "config.toml").write_text("precious")
    if mark is not None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "demo.json").write_text(mark)
    done = camu("demo", "--out", tmp_path / "out")
    assert done.code == (0 if mine.name == "elsewhere" else 2)
    assert (mine / "config.toml").read_text() == "precious"
    if done.code:
        assert "give an empty directory" in done.err
