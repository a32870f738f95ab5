"""Charts: kept as the script makes them, saved without running what their data say."""

from __future__ import annotations

import hashlib
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from typing import Any

import altair
import pytest
import vl_convert

from camu.report import charts, figures
from camu.report.charts import (
    PLAN_PANELS,
    VEGA_LITE_VERSION,
    WORLD_PANELS,
    chart,
    chart_library,
    quiet,
    save,
)

SCRIPT = Path(__file__).parents[2] / "scripts" / "make-charts"
KEPT = Path(charts.__file__).parent / "templates" / "charts.json"
EVIL = "</script><script>alert(1)</script>"


class Scripts(HTMLParser):
    """The scripts that a browser would find, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []
        self.policies: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        if tag == "script":
            self.found.append(own)
        if own.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(own["content"] or "")


def test_the_charts_of_the_package_are_those_of_the_script() -> None:
    made = runpy.run_path(str(SCRIPT))["charts_text"]()
    assert made == KEPT.read_text(encoding="utf-8"), "run scripts/make-charts"
    assert {panel.key for panel in (*WORLD_PANELS, *PLAN_PANELS)} <= charts.charts().keys()
    assert altair.SCHEMA_VERSION.startswith(f"v{VEGA_LITE_VERSION}.")


def test_reports_and_figures_need_no_altair() -> None:
    code = "import sys, camu.report.writing, camu.report.figures; print('altair' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_figure_as_a_page_runs_no_text_of_a_fleet_file(
    camu: Callable[..., Any], tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text(f"id,region,x,y,samples\na,{EVIL},1,2,30\nb{EVIL},R,3,4,30\n")
    done = camu("plan", "--fleet", fleet, "--figure", tmp_path / "page.html")
    assert done.code == 0, done.err
    page = Scripts((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [own.get("type") for own in page.found] == ["application/json", None, None]
    (policy,) = page.policies
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "json", "html"])
def test_every_format_is_written(tmp_path: Path, ending: str) -> None:
    row = {"start": 0, "end": 1, "cluster": "0", "phase": "compute", "seconds": 1, "updates": 1}
    path = tmp_path / "new" / f"figure.{ending}"
    save(quiet(chart("timeline", width=300, height=60), {"timeline": [row]}), path)
    starts = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF", "json": b"{", "html": b"<!doc"}
    assert path.read_bytes().startswith(starts[ending])


def symbols(drawn: Any) -> list[tuple[float, float]]:
    """Where the points of a drawn chart are, of all its parts."""
    if isinstance(drawn, list):
        return [place for one in drawn for place in symbols(one)]
    if not isinstance(drawn, dict):
        return []
    if drawn.get("marktype") == "symbol":
        return [(item["x"], item["y"]) for item in drawn["items"]]
    return [place for value in drawn.values() for place in symbols(value)]


@pytest.mark.parametrize("beside", [False, True])
def test_a_metre_is_as_long_on_both_axes_of_the_map(beside: bool) -> None:
    places = {"a": (0, 0), "b": (300, 0), "c": (0, 10)}
    about = {"cluster": "0", "colour": "#000000", "role": "member", "snr": None}
    devices = [{"device": name, "x": x, "y": y, **about} for name, (x, y) in places.items()]
    data = {"devices": devices, "links": [], "station": [{"x": -50, "y": 0, "name": "tower"}]}
    spec = quiet(chart("map", width=500, height=300), data)
    if beside:
        parts = [chart("map", width=500, height=300), chart("ppo", width=700, height=90)]
        spec = figures._together(parts, {**data, "ppo": []}, "a", "b")
    drawn = vl_convert.vegalite_to_scenegraph(spec, vl_version=VEGA_LITE_VERSION)
    [tower, a, b, c] = symbols(drawn)[:4]
    scale = (b[0] - a[0]) / 300
    assert scale > 1
    assert (a[1] - c[1]) / 10 == pytest.approx(scale)
    assert (a[0] - tower[0]) / 50 == pytest.approx(scale)


class TestLibrary:
    """The script that draws charts is kept in the user's cache, and embedded in every page."""

    @pytest.fixture(autouse=True)
    def _own_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("CAMU_DATA", str(tmp_path))
        chart_library.cache_clear()
        yield
        chart_library.cache_clear()

    def test_a_kept_script_that_was_changed_is_not_used(self, tmp_path: Path) -> None:
        whole = chart_library()
        (kept,) = (tmp_path / "report").iterdir()
        version = metadata.version("vl-convert-python")
        assert hashlib.sha256(kept.read_bytes()).hexdigest() == charts._LIBRARY_DIGESTS[version]
        for damaged in (b"", b"alert(1)", b"\xff"):
            kept.write_bytes(damaged)
            chart_library.cache_clear()
            assert chart_library() == whole
        kept.unlink()
        os.mkfifo(kept)
        chart_library.cache_clear()
        assert chart_library() == whole

    def test_the_script_of_an_unknown_version_is_not_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(charts, "_LIBRARY_DIGESTS", {})
        assert len(chart_library()) > 500_000
        assert not (tmp_path / "report").exists()
