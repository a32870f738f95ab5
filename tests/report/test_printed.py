"""Figures for papers: as wide as a column, in its font, without a title where it has a caption."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.report.printed import Print

Camu = Callable[..., Any]
SMALL = ["--preset", "demo", "--set", "data.samples_per_device=30", "--set", "run.rounds=2"]
SMALL += ["--set", "machine.workers=1", "--schemes", "fedsgd,camu", "--seeds", 2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("printed") / "runs"


def drawn(camu: Camu, runs: Path, name: str, *options: object) -> str:
    path = runs.parent / name
    done = camu("compare", *SMALL, "--out", runs, "--figure", path, *options)
    assert done.code == 0, done.err
    return path.read_bytes().decode("latin-1")


def test_a_figure_of_a_comparison_fits_a_column(camu: Camu, runs: Path) -> None:
    whole = drawn(camu, runs, "a.svg")
    assert "Accuracy over energy: higher and further left is better" in whole
    for label in ("fedsgd", "camu", "joules, all devices together"):
        assert label in whole
    narrow = drawn(camu, runs, "b.svg", "--figure-width", 88.9, "--figure-axis", "seconds")
    width = re.search(r'<svg [^>]*width="([\d.]+)"', narrow)
    assert width
    assert float(width[1]) == pytest.approx(88.9 / 25.4 * 72)
    assert "virtual seconds" in narrow
    pdf = drawn(camu, runs, "c.pdf", "--figure-width", 88.9, "--no-figure-title")
    assert pdf.startswith("%PDF")
    assert "MediaBox [0 0 252 " in pdf


def test_font_and_title_can_be_chosen(camu: Camu, runs: Path) -> None:
    found = drawn(camu, runs, "d.svg", "--figure-font", "Times", "--no-figure-title")
    assert 'font-family="Times"' in found
    assert "Accuracy over energy" not in found


def test_a_wrong_ending_is_refused(camu: Camu, runs: Path) -> None:
    done = camu("compare", *SMALL, "--out", runs, "--figure", runs.parent / "e.docx")
    assert done.code == 2
    assert "end the file's name with one of .svg, .pdf" in done.err


def test_without_wishes_nothing_changes() -> None:
    spec = {"width": 520, "height": 340, "title": "x", "padding": 8}
    assert Print().applied(spec) == spec
    assert Print(title=False).applied(spec) == {k: v for k, v in spec.items() if k != "title"}
