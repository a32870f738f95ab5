"""`camu reproduce`: what it prints about verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from camu.cli.console import plain_console
from camu.cli.reproduce import reproduce, show_verdicts
from camu.errors import InputError
from camu.experiments.statistics import Verdict


def verdict(**given: Any) -> Verdict:
    base = {"claim": "A1", "dataset": "fashion-mnist", "statement": "camu beats all", "n": 8}
    base |= {"unit": "points", "mean": 1.23, "low": 0.4, "high": 2.06, "paper": 0.255}
    return Verdict(**{**base, "verdict": "reproduced", **given})


def test_verdicts_have_units_and_are_counted_and_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show_verdicts([verdict(), verdict(), verdict(verdict="contradicted")], plain_console())
    shown = capsys.readouterr().out
    for words in ("1.23 ± 0.83 points", "fashion-mnist", "contradicted", "camu beats all"):
        assert words in shown.splitlines()[3]
    assert "3 verdicts: 2 reproduced, 1 contradicted." in shown
    for words in ("reproduced: the mean", "contradicted: it", "undecided: none", "n: seeds"):
        assert words in shown


def test_a_source_of_anchors_is_refused_with_another_experiment() -> None:
    with pytest.raises(InputError, match="camu reproduce anchors"):
        reproduce("air", only="A1")


def test_an_unknown_source_of_anchors_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="A99"):
        reproduce("anchors", only="A99", out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
