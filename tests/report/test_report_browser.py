"""The page in a browser: offline, without errors, in light and dark, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from camu.report.rows import hull_rows
from camu.sealed import read_sealed_json
from helpers.axe import violations
from helpers.browser import PATIENCE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def address(study: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    from camu.report.writing import write_report

    return write_report([study], tmp_path_factory.mktemp("page") / "report.html").as_uri()


def plan_of(run: Path) -> dict[str, Any]:
    return dict(read_sealed_json(run / "plan.json", "a plan", "write it again"))


class Visit:
    """An open page, with everything it said and asked for."""

    def __init__(self, browser: Any, address: str, width: int, theme: str) -> None:
        size = {"width": width, "height": 900}
        self.context = browser.new_context(offline=True, viewport=size, color_scheme=theme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-state=ready]")

    def ready(self, chart: str) -> Any:
        self.page.wait_for_selector(f"#chart-{chart}[data-state=ready]")
        return self.page.locator(f"#chart-{chart}")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_works(browser: Any, address: str, width: int, theme: str) -> None:
    visit = Visit(browser, address, width, theme)
    page = visit.page
    try:
        assert page.locator("html").get_attribute("data-theme") == theme
        _switch_axis(visit)
        _hover_curves(visit)
        _switch_scheme(visit)
        _hover_device(visit)
        _walk_by_keys(visit)
        _find_device(visit)
        _toggle_theme(visit, "dark" if theme == "light" else "light")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
        for chart in page.locator(".chart svg.marks").all():
            box = chart.bounding_box()
            assert box is None or box["x"] + box["width"] <= width
        assert visit.said == []
        assert visit.asked == [address]
    finally:
        visit.context.close()


def _switch_axis(visit: Visit) -> None:
    words = {"rounds": "rounds", "joules": "joules, all devices", "seconds": "virtual seconds"}
    words = {"megabytes": "megabytes sent", **words}
    for axis, title in words.items():
        visit.page.select_option("#axis", axis)
        chart = visit.ready("accuracy")
        chart.locator(f"svg.marks text:has-text('{title}')").first.wait_for()
    assert "virtual time" in visit.page.locator("#accuracy-title").inner_text()


def _hover_curves(visit: Visit) -> None:
    """Numbers of the nearest evaluation appear at half height of the chart, wherever that is."""
    chart = visit.ready("accuracy")
    chart.scroll_into_view_if_needed()
    drawn = chart.locator("svg.marks")
    named = chart.locator("[role=graphics-document]").first
    assert named.get_attribute("aria-label") == visit.page.locator("#accuracy-title").inner_text()
    assert chart.locator("summary").get_attribute("aria-label") == "Save this chart"
    box = drawn.bounding_box()
    tip = visit.page.locator("#vg-tooltip-element.visible")
    for share in (0.3, 0.5, 0.7):
        visit.page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.35 * box["height"])
        tip.wait_for()
        assert "accuracy" in tip.inner_text()
    visit.page.mouse.move(0, 0)


def _switch_scheme(visit: Visit) -> None:
    page = visit.page
    assert page.locator("#scheme").input_value() == "camu"
    assert page.locator("#chart-ppo svg.marks").is_visible()
    before = page.locator("#plan-text").inner_text()
    page.select_option("#scheme", "fedavg")
    page.locator(".card:has(#chart-ppo)").wait_for(state="hidden")
    after = page.locator("#plan-text").inner_text()
    assert before != after
    assert after.startswith("20 clusters of 20 devices")


def _hover_device(visit: Visit) -> None:
    visit.page.select_option("#scheme", "camu")
    chart = visit.ready("map")
    chart.scroll_into_view_if_needed()
    chart.locator("path[aria-label*='device: 19;']").hover()
    tip = visit.page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    text = tip.inner_text()
    for words in ("device", "19", "cluster", "Region II", "samples", "main labels", "SNR to base"):
        assert words in text, text
    box, size = tip.bounding_box(), visit.page.viewport_size
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= size["width"]
    visit.page.mouse.move(0, 0)


def _walk_by_keys(visit: Visit) -> None:
    """The arrow keys reach the points of a chart; each is ringed, and named with its values."""
    said = visit.page.locator("#chart-accuracy ~ .said")
    ring = visit.page.locator("#chart-accuracy ~ .ring")
    visit.page.select_option("#axis", "rounds")
    visit.ready("accuracy")
    visit.page.focus("#chart-accuracy")
    heard = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft", "End"):
        visit.page.keyboard.press(key)
        heard.append(said.inner_text())
    assert [text.split(";")[0] for text in heard] == [f"rounds: {n}" for n in (0, 2, 4, 2, 6)]
    assert all("test accuracy: " in text and "scheme: " in text for text in heard)
    assert said.get_attribute("role") == "status"
    assert ring.is_visible()
    visit.page.keyboard.press("Tab")
    assert said.inner_text() == ""
    assert not ring.is_visible()


def _find_device(visit: Visit) -> None:
    rings = visit.page.locator("#chart-map .mark-symbol path[fill='transparent'][opacity='1']")
    assert rings.count() == 0
    visit.page.fill("#search", "19")
    rings.wait_for(state="attached")  # of one device
    assert visit.page.locator("#search-note").inner_text().startswith("19: cluster")
    visit.page.fill("#search", "nobody")
    rings.wait_for(state="detached")
    assert visit.page.locator("#search-note").inner_text() == "none"


def _toggle_theme(visit: Visit, other: str) -> None:
    page = visit.page
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.click("#theme")
    page.wait_for_selector(f"html[data-theme={other}]")
    visit.ready("map")
    assert page.evaluate(ground) != before


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_wrong(browser: Any, address: str, theme: str) -> None:
    visit = Visit(browser, address, 1280, theme)
    try:
        assert violations(visit.page) == []
    finally:
        visit.context.close()


def test_clusters_of_many_devices_are_areas(browser: Any, make_run: Any, tmp_path: Path) -> None:
    from camu.report.writing import write_report

    run = make_run(tmp_path / "run", settings=("fleet.devices=120", "data.samples_per_device=10"))
    visit = Visit(browser, write_report([run]).as_uri(), 1280, "light")
    try:
        marks = visit.ready("map").locator(".mark-line.role-mark path[fill^='#']")
        assert marks.count() == len({row["cluster"] for row in hull_rows(plan_of(run))})
        assert visit.said == []
    finally:
        visit.context.close()


def test_one_unfinished_run_draws_without_a_warning(
    browser: Any, make_run: Any, tmp_path: Path
) -> None:
    from camu.report.writing import write_report

    run = make_run(tmp_path / "run", "petrel", finished=False)  # no interval, no threshold, no PPO
    address = write_report([run]).as_uri()
    visit = Visit(browser, address, 1280, "light")
    try:
        visit.ready("contribution")
        assert visit.said == []
        assert visit.page.locator("#scheme").is_hidden()  # nothing to choose from
    finally:
        visit.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_print_shows_whole_tables_on_white(browser: Any, address: str, theme: str) -> None:
    visit = Visit(browser, address, 720, theme)
    page = visit.page
    try:
        for chart in ("accuracy", "map", "timeline"):
            visit.ready(chart)
        shade = "e => getComputedStyle(e).backgroundImage"
        assert "gradient" in page.locator(".scroll").first.evaluate(shade)  # it goes on behind
        page.emulate_media(media="print", color_scheme=theme)
        for box in page.locator(".scroll").all():
            cut = box.evaluate(
                "e => [e.scrollHeight - e.clientHeight, e.scrollWidth - e.clientWidth]"
            )
            assert max(cut) <= 1, cut
            assert box.evaluate("e => getComputedStyle(e).maxHeight") == "none"
            assert box.evaluate(shade) == "none"
        paper = page.evaluate(
            "['backgroundColor', 'color'].map((name) => getComputedStyle(document.body)[name])"
        )
        assert paper == ["rgb(255, 255, 255)", "rgb(32, 38, 46)"]
        inks = page.locator("#chart-accuracy svg.marks text").evaluate_all(
            "texts => texts.map((text) => getComputedStyle(text).fill)"
        )
        assert inks
        assert set(inks) <= {"rgb(74, 82, 93)", "rgb(32, 38, 46)"}
        assert page.locator("#shown-scheme").inner_text() == "Shown: camu."
        assert page.locator("#shown-world").inner_text() == "Shown: digits."
        assert page.locator(".controls:visible").count() == 0
    finally:
        visit.context.close()


def test_families_fold_and_charts_show_one_of_them(
    browser: Any, many: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from camu.report.writing import write_report

    page = write_report([many], tmp_path_factory.mktemp("many") / "report.html")
    visit = Visit(browser, page.as_uri(), 1280, "light")
    hidden = visit.page.locator("#runs td", has_text="feddyn")
    assert visit.page.locator("#runs td", has_text="local-sgd").is_visible()
    assert not hidden.is_visible()
    visit.page.locator("button.fold", has_text="drift").click()
    assert hidden.is_visible()
    legend = visit.ready("accuracy").locator(".role-legend-label text")
    assert "camu-nova" in legend.all_text_contents()
    assert "feddyn" not in legend.all_text_contents()
    visit.page.select_option("#family", "drift")
    visit.ready("accuracy")
    assert set(legend.all_text_contents()) == {"fedavg", "fedprox", "scaffold", "feddyn"}
    names = visit.ready("frontier-joules").locator(".role-legend-label text").all_text_contents()
    assert set(names) >= {"reference", "paper", "drift"}
    assert visit.said == []
    visit.context.close()
