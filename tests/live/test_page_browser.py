"""The page in Debian's chromium: what a person does with it, and what it answers."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from camu.config import Config
from camu.simulation.directory import RunDirectory, run_in_directory
from helpers.axe import violations
from helpers.configs import small

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]
Visits = Callable[..., Any]


def cluster(label: str) -> str:
    found = re.search(r"cluster (\d+)", label)
    assert found is not None
    return found[1]


def test_a_device_dragged_to_another_region_joins_a_cluster_there(visit: Visits) -> None:
    seen = visit()
    far = seen.page.locator(".map").first.locator(".device")
    others = {cluster(seen.label(k)) for k in range(10, 20)}
    assert cluster(seen.label(0)) not in others
    start, end = far.nth(0).bounding_box(), far.nth(13).bounding_box()
    seen.drag(0, end["x"] - start["x"], end["y"] - start["y"])
    assert cluster(seen.label(0)) in {cluster(seen.label(k)) for k in range(10, 20)}
    assert "changed" in far.nth(0).get_attribute("class")
    assert seen.page.locator("#totals .moved").count() > 0
    # Undo brings everything back, redo does it again.
    moved = seen.label(0)
    seen.after(lambda: seen.page.click("#undo"))
    assert cluster(seen.label(0)) not in others
    seen.after(lambda: seen.page.keyboard.press("Control+Shift+Z"))
    assert seen.label(0) == moved


def test_arrow_keys_move_add_and_delete(visit: Visits) -> None:
    seen = visit()
    page = seen.page
    page.locator(".map").first.locator(".station").focus()
    page.keyboard.press("PageDown")
    before = seen.label(0)
    seen.after(lambda: page.keyboard.press("Shift+ArrowRight"))
    assert seen.label(0) != before
    assert "at -0.21, -2.22 m" in seen.label(0)
    seen.after(lambda: page.click("#add"))
    assert page.locator(".map").first.locator(".device").count() == 21
    assert "added" in seen.label(20)
    page.locator(".map").first.locator(".device").nth(20).focus()
    seen.after(lambda: page.keyboard.press("Delete"))
    assert page.locator(".map").first.locator(".device").count() == 20


def test_a_higher_threshold_leaves_fewer_clusters_with_more_updates(visit: Visits) -> None:
    seen = visit()
    before = seen.total("repeating")
    field = seen.page.locator(".field[data-key='scheme.parameters.threshold_quantile']")
    slider = field.locator("input[type=range]")
    slider.focus()
    seen.after(lambda: slider.press("End"))
    assert seen.total("repeating") < before
    assert seen.total("repeating") == 0
    assert "was unset" in field.inner_text()


def test_a_smaller_budget_raises_the_objective(visit: Visits) -> None:
    seen = visit()
    spent = float(re.findall(r"[\d.]+", seen.page.get_attribute(
        "[id='field-allocation.energy_joules']", "placeholder"
    ))[0])  # fmt: skip
    seen.type("allocation.energy_joules", f"{spent:.6f}")
    before = seen.total("objective", "camu-joint")
    seen.type("allocation.energy_joules", f"{0.75 * spent:.6f}")
    assert seen.total("objective", "camu-joint") > before
    assert seen.total("shadow_price", "camu-joint") > 0
    assert seen.total("gap", "camu-joint") < 1e-6


def test_an_impossible_setting_shows_its_sentence_and_keeps_the_last_good_plan(
    visit: Visits,
) -> None:
    seen = visit()
    clusters = seen.total("clusters")
    seen.type("data.labels_per_device", "11")
    fault = seen.page.locator("[id='fault-field-data.labels_per_device']")
    assert fault.inner_text() == (
        "data.labels_per_device = 11: the data set has only 10 labels; lower it, or use another "
        "data.partition"
    )
    assert seen.page.get_attribute("html", "data-plan") == "refused"
    assert seen.total("clusters") == clusters
    assert seen.page.locator(".device").count() == 40
    seen.type("data.labels_per_device", "2")
    assert fault.inner_text() == ""
    assert seen.page.get_attribute("html", "data-plan") == "good"


ROUNDS = "300"
# In the page itself: a busy machine could finish the training before a test sees its first points.
PAUSE_WITH_THE_FIRST_POINTS = """() => {
  const chart = document.getElementById('chart-accuracy');
  const watch = new MutationObserver(() => {
    const running = document.documentElement.dataset.training === 'running';
    if (running && chart.dataset.points > 1 && chart.querySelector('svg.marks')) {
      watch.disconnect();
      document.getElementById('pause').click();
    }
  });
  const all = { attributes: true, subtree: true, childList: true };
  watch.observe(document.documentElement, all);
}"""


def test_training_draws_while_it_runs_survives_a_reload_and_equals_camu_run(
    visit: Visits, tmp_path: Path
) -> None:
    seen = visit()
    page = seen.page
    second = page.locator("label.scheme:has-text('camu-joint') input")
    seen.after(second.uncheck)  # the map gets wider
    seen.drag(0, 60, 10)
    seen.type("run.rounds", ROUNDS)
    page.evaluate(PAUSE_WITH_THE_FIRST_POINTS)
    page.click("#train")
    page.wait_for_selector("html[data-training=paused]")
    drawn = int(page.get_attribute("#chart-accuracy", "data-points"))
    assert 1 < drawn < int(ROUNDS)
    page.locator("#chart-accuracy svg.marks").wait_for()
    page.reload()
    page.wait_for_selector("html[data-training=paused]")
    assert page.locator("#field-run\\.rounds").input_value() == ROUNDS
    page.click("#continue")
    seen.trained()
    digest = page.locator("#runs code").get_attribute("data-sha")
    exported = tmp_path / "config.toml"
    exported.write_bytes(seen.take("config.toml"))
    config = Config.from_toml(exported.read_text())
    assert config.fleet.positions is not None
    assert config.run.rounds == int(ROUNDS)
    command = [sys.executable, "-m", "camu.cli", "run", "-c", str(exported), "--out", "run"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert RunDirectory(tmp_path / "run").read_summary()["weights_sha256"] == digest
    with zipfile.ZipFile(BytesIO(seen.take("runs"))) as archive:
        (summary,) = [name for name in archive.namelist() if name.endswith("summary.json")]
        assert json.loads(archive.read(summary))["weights_sha256"] == digest
    assert b"<svg" in seen.take("accuracy.svg")
    assert b"<svg" in seen.take("timeline.svg")
    assert json.loads(seen.take("plan.json"))["scheme"] == "camu"
    assert "camu run -c config.toml" in page.locator("#command").inner_text()


def test_two_pages_do_not_mix(visit: Visits) -> None:
    one, other = visit(), visit()
    before = other.total("repeating")
    one.type("scheme.parameters.threshold_quantile", "1")
    one.type("run.rounds", "2")
    other.type("data.noniid_devices", "3")
    one.page.click("#train")
    one.page.wait_for_selector("html[data-training='finished finished']")
    assert "One seed each" in one.page.locator("#seed-note").inner_text()
    assert one.total("repeating") == 0
    assert (
        other.page.locator("[id='field-scheme.parameters.threshold_quantile']").input_value() == ""
    )
    assert other.page.get_attribute("html", "data-training") == ""
    other.after(lambda: other.page.click("#undo"))
    assert other.total("repeating") == before


def test_a_link_carries_the_settings(visit: Visits) -> None:
    seen = visit()
    seen.type("run.seed", "5")
    again = visit(seen.page.url)
    assert again.page.locator("#field-run\\.seed").input_value() == "5"
    assert again.total("joules") == seen.total("joules")


@pytest.mark.parametrize(("width", "theme"), [(1440, "dark"), (390, "light"), (360, "dark")])
def test_it_fits_in_light_and_dark(visit: Visits, width: int, theme: str) -> None:
    seen = visit(width=width, theme=theme)
    page = seen.page
    assert page.get_attribute("html", "data-theme") == theme
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    for box in page.locator(".chart svg.marks, .map").all():
        place = box.bounding_box()
        assert place["x"] + place["width"] <= width
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != before


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_wrong(visit: Visits, width: int, theme: str) -> None:
    assert violations(visit(width=width, theme=theme).page) == []


def test_schemes_are_found_by_name_in_sorted_families(visit: Visits) -> None:
    page = visit().page
    families = page.locator("#schemes details").evaluate_all(
        "all => all.map((one) => [...one.querySelectorAll('input')].map((box) => box.value))"
    )
    assert sum(len(names) for names in families) >= 60
    assert all(names == sorted(names) for names in families)
    open_ones = page.locator("#schemes details[open]")
    assert open_ones.count() == 1  # that of the schemes that are shown
    page.fill("#scheme-search", "scaffold")
    shown = page.locator("label.scheme:visible")
    assert {text.strip() for text in shown.all_inner_texts()} >= {"scaffold", "cluster-scaffold"}
    assert shown.count() < 10
    page.fill("#scheme-search", "")
    assert open_ones.count() == 1
    box = page.locator("#schemes")
    assert box.evaluate("e => e.scrollHeight - e.clientHeight") <= 1  # nothing is cut


@pytest.mark.parametrize("width", [1280, 390])
def test_training_is_in_reach_wherever_the_page_is(visit: Visits, width: int) -> None:
    page = visit(width=width).page
    assert page.locator("#seed-note").is_hidden()
    for place in (0, 1500, 10**6):
        page.evaluate(f"window.scrollTo(0, {place})")
        box = page.locator("#train").bounding_box()
        assert 0 <= box["y"] <= 900 - box["height"]


def test_every_control_is_reached_by_the_tab_key(visit: Visits) -> None:
    page = visit().page
    page.evaluate(
        "document.querySelectorAll('aside details').forEach((one) => { one.open = true; })"
    )
    page.locator("body").click(position={"x": 2, "y": 2})
    reached = page.evaluate("""() => {
      const kinds = 'button, select, input, summary, .map [tabindex="0"]';
      const all = [...document.querySelectorAll(kinds)]
        .filter((node) => !node.disabled && node.getClientRects().length);
      return all.map((node) => [node.tabIndex, node.id || node.getAttribute('aria-label') ||
        node.closest('label')?.textContent || node.textContent, node.matches('[aria-label]') ||
        node.labels?.length > 0 || node.textContent.trim() !== '']);
    }""")
    assert len(reached) > 80
    assert [name for place, name, named in reached if place != 0 or not named] == []
    wanted = {name for _, name, _ in reached}
    page.evaluate(NOTE_FOCUS)
    for _ in range(2 * len(reached)):
        page.keyboard.press("Tab")
        if page.evaluate(ALL_REACHED, sorted(wanted)):
            break
    found = page.evaluate("[...window.reached]")
    assert wanted <= {name for name, _ in found}
    assert [name for name, visible in found if not visible] == []


ALL_REACHED = "wanted => wanted.every((name) => window.reached.has(name))"
# Each control as it gets the focus, and whether one sees that it has it.
NOTE_FOCUS = """() => {
  window.reached = new Map();
  document.addEventListener('focusin', ({ target: node }) => {
    const seen = (one, what) => getComputedStyle(one)[what] !== 'none';
    const shown = seen(node, 'outlineStyle') || [...node.querySelectorAll('.mark, .mast')]
      .some((one) => seen(one, 'stroke'));
    window.reached.set(node.id || node.getAttribute('aria-label') ||
      node.closest('label')?.textContent || node.textContent, shown);
  });
}"""


def test_a_finger_drags_a_device(visit: Visits) -> None:
    seen = visit(touch=True)
    body = seen.page.locator(".map").first.locator(".device").nth(0).locator(".body")
    body.scroll_into_view_if_needed()
    box, before = body.bounding_box(), seen.label(0)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    finger = seen.context.new_cdp_session(seen.page)

    def drag() -> None:
        for kind, step in (("touchStart", 0), ("touchMove", 20), ("touchMove", 40)):
            points = [{"x": x + step, "y": y + step}]
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    seen.after(drag)
    assert seen.label(0) != before
    assert seen.page.locator("#undo").is_enabled()


def test_batteries_run_empty_on_the_map(visit: Visits) -> None:
    seen = visit()
    page = seen.page
    page.locator("label.scheme:has-text('camu-joint') input").uncheck()
    seen.type("fleet.battery_joules", "0.1")
    seen.type("run.rounds", "20")
    assert page.locator(".device.empty").count() == 0
    page.click("#train")
    seen.trained()
    page.locator(".device.empty").first.wait_for()
    assert re.search(r"\d+ empty", page.locator("#runs").inner_text())
    label = str(page.locator(".device.empty").first.get_attribute("aria-label"))
    assert label.endswith("battery empty")


def linked(address: str, state: dict[str, Any]) -> str:
    text = base64.urlsafe_b64encode(json.dumps(state).encode()).decode()
    return f"{address}#s={text.rstrip('=')}"


def test_a_link_with_an_impossible_setting_says_so_and_can_be_left(
    visit: Visits, server: Any
) -> None:
    state = {"schemes": ["camu"], "changes": {"fleet.positions": [[1.0, 2.0, 0.0]]}, "fleet": 3}
    seen = visit(linked(server.address, state))
    assert "fleet.positions" in seen.page.locator("#faults").inner_text()
    seen.page.click("#add")  # there is no plan yet, so nothing happens
    seen.after(lambda: seen.page.click("#reset"))
    assert seen.total("clusters") > 1


def test_markup_in_a_link_stays_text(visit: Visits, server: Any) -> None:
    name = "<img src=x onerror='window.bad=1'>"
    region = {"name": name, "devices": 20, "x": [-5.0, 5.0], "y": [-5.0, 5.0]}
    changes = {"fleet.regions": [region], f"scheme.parameters.{name}": name}
    seen = visit(linked(server.address, {"schemes": ["camu", name], "changes": changes}))
    assert seen.page.get_attribute("html", "data-plan") == "refused"
    changes.popitem()
    seen = visit(linked(server.address, {"schemes": ["camu"], "changes": changes}))
    assert name in seen.label(0)
    seen.page.locator(".map .device").first.focus()
    assert name in seen.page.locator(".tip").first.inner_text()
    assert seen.page.evaluate("window.bad") is None
    assert seen.page.locator("main img").count() == 0


def test_names_that_hold_markup_stay_text(
    start: Callable[..., Any], visit: Visits, tmp_path: Path
) -> None:
    name = "<img src=x onerror='window.bad=1'><script>window.bad=1</script>"
    lines = ["id,region,x,y,label_0,label_1", f'"{name}","{name}",1,2,30,9', "b,<b>x</b>,3,4,9,30"]
    (tmp_path / "fleet.csv").write_text("\n".join(lines))
    server = start("--fleet", "fleet.csv")
    seen = visit(server.address)
    assert name in seen.label(0)
    page = seen.page
    assert name in page.locator("#units").inner_text()
    page.locator("aside details.card > summary").click()
    seen.type("radio.exponent", "<img src=x onerror='window.bad=1'>")
    assert "plain names only" in page.locator("[id='fault-field-radio.exponent']").inner_text()
    assert page.evaluate("window.bad") is None
    assert page.locator("main img, main b, main script").count() == 0
    seen.drag(0, 10, 0)
    assert page.evaluate("window.bad") is None


def test_a_fleet_in_degrees_is_edited_and_its_base_stations_are_drawn(
    start: Callable[..., Any], visit: Visits, tmp_path: Path
) -> None:
    lines = ["id,lat,lon,samples", "a,52.5,13.4,30", "b,52.501,13.402,20", "c,52.502,13.404,25"]
    (tmp_path / "fleet.csv").write_text("\n".join(lines))
    (tmp_path / "masts.csv").write_text("id,lat,lon\nn,52.51,13.4\ns,52.49,13.41\n")
    server = start("--fleet", "fleet.csv", "--set", "fleet.base_station_file=masts.csv")
    seen = visit(server.address)
    assert seen.page.locator(".map").first.locator(".station.fixed").count() == 2
    others = seen.label(1)
    before = seen.label(0)
    seen.drag(0, 40, 10)
    assert seen.page.get_attribute("html", "data-plan") == "good"
    assert seen.label(0) != before
    assert others.rpartition("; at ")[2] == seen.label(1).rpartition("; at ")[2]
    seen.after(lambda: seen.page.click("#add"))
    assert seen.page.locator(".map").first.locator(".device").count() == 4


def test_a_regression_is_followed_beside_images(
    start: Callable[..., Any], visit: Visits, tmp_path: Path
) -> None:
    own = {"data__dataset": "diabetes", "data__standardise": True, "data__with_replacement": True}
    own |= {"training__model": "linear", "training__learning_rate": 0.02, "run__rounds": 2}
    run_in_directory(small(**own), RunDirectory(tmp_path / "study" / "regression"))
    seen = visit(start("--follow", str(tmp_path / "study")).address)
    seen.page.locator("#chart-accuracy svg.marks text:has-text('test RMSE')").first.wait_for()
    assert seen.page.locator("#accuracy-title").inner_text() == "RMSE"
    heads = seen.page.locator("#follow-runs thead th").all_inner_texts()
    lines = (tmp_path / "study" / "regression" / "rounds.jsonl").read_text().splitlines()
    error = json.loads(lines[-1])["metrics"]["rmse"]
    row = seen.page.locator("#follow-runs tbody tr").locator("th, td").all_inner_texts()
    assert float(row[heads.index("RMSE")]) == pytest.approx(error, rel=1e-3)
    run_in_directory(small(run__rounds=1), RunDirectory(tmp_path / "study" / "images"))
    seen.page.locator("#follow-runs tbody tr").nth(1).wait_for()
    assert "judged by" in seen.page.locator("#follow-note").inner_text()


def test_axe_finds_nothing_wrong_where_runs_are_followed(
    start: Callable[..., Any], visit: Visits, tmp_path: Path
) -> None:
    run_in_directory(small(run__rounds=1), RunDirectory(tmp_path / "study" / "camu"))
    page = visit(start("--follow", str(tmp_path / "study")).address).page
    page.locator("#chart-accuracy svg.marks").wait_for()
    assert violations(page) == []


def test_a_run_elsewhere_is_followed_without_touching_it(
    start: Callable[..., Any], visit: Visits, tmp_path: Path
) -> None:
    run_in_directory(small(run__rounds=3), RunDirectory(tmp_path / "study" / "camu"))
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "study").rglob("*")}
    server = start("--follow", str(tmp_path / "study"))
    seen = visit(server.address)
    row = seen.page.locator("#follow-runs tbody tr")
    assert row.count() == 1
    for words in ("camu", "finished", "3 of 3", "none"):
        assert words in row.inner_text()
    seen.page.locator(".map .device").first.wait_for()
    assert seen.page.locator(".map .device").count() == 20
    seen.page.locator("#chart-accuracy svg.marks").wait_for()
    run_in_directory(
        small(run__rounds=2, scheme__name="fedavg"), RunDirectory(tmp_path / "study" / "fedavg")
    )
    seen.page.locator("#follow-runs tbody tr").nth(1).wait_for()
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
