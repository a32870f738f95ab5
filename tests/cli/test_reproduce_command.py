"""`camu reproduce`: what it prints about verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from camu.cli.console import plain_console
from camu.cli.reproduce import show_verdicts
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
