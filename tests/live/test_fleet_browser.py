"""The page on 400 gateways in latitude and longitude, as a company has them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from helpers.axe import violations

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]
Visits = Callable[..., Any]


def spots(seen: Any) -> list[tuple[float, float]]:
    """Where devices are drawn on the first map, pixels."""
    texts = (
        seen.page.locator(".map")
        .first.locator(".device")
        .evaluate_all("all => all.map((node) => node.getAttribute('transform'))")
    )
    found = [re.findall(r"-?[\d.]+", text) for text in texts]
    return [(float(x), float(y)) for x, y in found]


def test_devices_of_a_site_are_drawn_apart_under_the_name_of_their_place(
    gateways: Any, visit: Visits
) -> None:
    seen = visit(gateways.address)
    page = seen.page
    drawn = spots(seen)
    assert len(drawn) == 400
    by_site: dict[str, list[tuple[float, float]]] = {}
    for index in range(0, 400, 3):
        site = seen.label(index).split("; ")[1]
        by_site.setdefault(site, []).append(drawn[index])
    for places in by_site.values():  # 12 gateways within 80 m, on a map of 18 km
        for k, one in enumerate(places):
            assert all(math.dist(one, other) > 3 for other in places[:k])
    names = page.locator(".map").first.locator(".places text").all_text_contents()
    assert len(names) > 10
    assert set(names) <= {f"Werk {k}" for k in range(1, 34)}
    stations = page.locator(".map").first.locator(".station.fixed text").all_text_contents()
    assert stations == ["Havel", "Spree"]


def test_a_device_is_found_moved_and_says_what_it_has_lost(gateways: Any, visit: Visits) -> None:
    seen = visit(gateways.address)
    page = seen.page
    page.fill("#search", "sg-0205")
    assert page.locator("#search-note").inner_text() == "1 found"
    index = 205
    assert seen.label(index).startswith("device SG-0205;")
    assert "chosen" in page.locator(".map").first.locator(".device").nth(index).get_attribute(
        "class"
    )
    assert "measured rssi_dbm is left out" not in seen.label(index)
    before = seen.label(index)
    seen.drag(index, 60, 25)
    assert page.get_attribute("html", "data-plan") == "good"
    assert "measured rssi_dbm is left out" in seen.label(index)
    assert seen.label(index) != before
    page.locator("#faults summary").click()
    assert "moved or new: SG-0205" in page.locator("#faults").inner_text()
    # The one place of the map under the pointer stays when it is zoomed.
    page.click("#whole")
    far = spots(seen)
    page.click("#closer")
    assert spots(seen) != far


def test_the_page_shows_batteries_leaders_and_links_and_no_idle_control(
    gateways: Any, visit: Visits
) -> None:
    seen = visit(gateways.address)
    page = seen.page
    assert 0 < seen.total("first_days_with") < seen.total("first_days_without")
    heads = page.locator("#units thead th").all_inner_texts()
    assert {"leader", "place", "link", "leader's battery"} <= set(heads)
    links = {row.locator("td").nth(heads.index("link") - 1).inner_text()
             for row in page.locator("#units tbody tr").all()}  # fmt: skip
    assert links <= {"lora-sf7", "lora-sf9", "nb-iot", "wifi-n"}
    assert any("lasts" in seen.label(k) and "with learning" in seen.label(k) for k in range(4))
    for key in ("data.noniid_devices", "data.labels_per_device", "fleet.power_watts", "radio.link"):
        assert page.locator(f".field[data-key='{key}']").count() == 0
    for key in ("clustering.count", "clustering.leader", "radio.bits_per_parameter"):
        assert page.locator(f"#main-controls .field[data-key='{key}']").count() == 1


def test_a_drag_asks_for_one_plan_at_a_time(gateways: Any, visit: Visits) -> None:
    seen = visit(gateways.address)
    page = seen.page
    asked, given_up = [], []
    page.on("request", lambda one: asked.append(one.url) if one.url.endswith("/plan") else None)
    # A question that takes long is given up for a newer one.
    page.on("requestfailed", lambda one: given_up.append(one.url))
    before = int(page.get_attribute("html", "data-drawn"))
    seen.drag(7, 30, 10)  # four steps of the pointer
    drawn = int(page.get_attribute("html", "data-drawn")) - before
    assert 1 <= len(asked) <= 4
    assert drawn == len(asked) - len(given_up) >= 1


def test_axe_finds_nothing_wrong(gateways: Any, visit: Visits) -> None:
    assert violations(visit(gateways.address).page) == []


@pytest.mark.parametrize("options", [{"width": 390, "touch": True}, {"theme": "dark"}])
def test_nothing_is_cut_on_a_phone_and_in_the_dark(
    gateways: Any, visit: Visits, options: dict[str, Any]
) -> None:
    seen = visit(gateways.address, **options)
    assert seen.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    width = seen.page.locator(".map").first.bounding_box()["width"]
    assert all(0 <= x <= width for x, _ in spots(seen))
