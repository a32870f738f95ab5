"""A world in a notebook: a table and a map, with text that cannot break the page."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from camu.config import load_config
from camu.world import build_world, read_fleet


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html)


def test_a_row_per_region_and_a_dot_per_device() -> None:
    config = load_config(preset="paper")
    world = build_world(config, 3, np.full((30, 10), 15))
    page = parsed(world._repr_html_())
    rows = [["".join(cell.itertext()) for cell in row] for row in page.iter("tr")][1:]
    names = [row[0].removeprefix("\u25cf ") for row in rows]
    assert names == ["Region I", "Region II", "all"]
    assert [row[1:4] for row in rows] == [
        ["15", "2250", "150"],
        ["15", "2250", "150"],
        ["30", "4500", "150"],
    ]
    snr_db = 10 * np.log10(world.links.uplink_snr())
    assert float(rows[2][4]) == pytest.approx(np.median(snr_db), abs=0.051)
    assert float(rows[2][5]) == pytest.approx(snr_db.min(), abs=0.051)
    dots = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in page.iter("circle")]
    assert len(dots) == 30
    # One scale for both axes, y upwards: the picture is the map.
    drawn, real = np.array(dots), world.devices.positions[:, :2]
    scale = np.linalg.norm(drawn[0] - drawn[20]) / np.linalg.norm(real[0] - real[20])
    assert np.diff(drawn[:, 0]) == pytest.approx(scale * np.diff(real[:, 0]), abs=0.2)
    assert np.diff(drawn[:, 1]) == pytest.approx(-scale * np.diff(real[:, 1]), abs=0.2)


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    evil = "<script>alert('&')</script>"
    path = tmp_path / "f.csv"
    path.write_text(f"id,x,y,samples,region\n{evil},0,0,3,{evil}\nb,1,1,3,r\n")
    html = read_fleet(path)._repr_html_()
    assert "<script" not in html
    assert evil in "".join(parsed(html).itertext())


def test_without_positions_there_is_no_map(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("id,gain_db,samples\na,-80,3\n")
    html = read_fleet(path)._repr_html_()
    assert "<svg" not in html
    assert "devices" in html


def test_one_device_on_the_mast_is_drawn() -> None:
    config = load_config(preset="paper")
    there = {"fleet.positions": [list(config.fleet.base_station)] * 30}
    page = parsed(build_world(config.replace(there), 0, np.ones((30, 2)))._repr_html_())
    assert {dot.attrib["cx"] for dot in page.iter("circle")} == {"210.0"}
