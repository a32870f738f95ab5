"""The page's JavaScript modules, one by one, in the browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from camu import live

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]
STATIC = Path(live.__file__).parent / "static"
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def page(browser: Any, server: Any) -> Iterator[Any]:
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.address)
    page.wait_for_selector("html[data-state=ready]")
    yield page
    context.close()


@pytest.fixture
def call(page: Any) -> Call:
    """Evaluate a function body with a module as `m`."""

    def run(module: str, body: str) -> Any:
        return page.evaluate(
            f"async () => {{ const m = await import('./static/{module}'); {body} }}"
        )

    return run


def test_no_module_writes_markup_or_evaluates_text() -> None:
    for path in STATIC.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                     "new Function", "https://"):  # fmt: skip
            assert word not in text, (path.name, word)


def test_dom_sets_text_and_shows_numbers(call: Call) -> None:
    assert (
        call("dom.js", "return m.element('p', {}, '<b>x</b>').innerHTML") == "&lt;b&gt;x&lt;/b&gt;"
    )
    assert call("dom.js", "return [0, null, 1234.5678, 1e-7, 2e8].map((v) => m.number(v))") == [
        "0", "–", "1235", "1.00e-7", "2.00e+8",
    ]  # fmt: skip


def test_api_asks_the_latest_question_only(call: Call) -> None:
    assert call("api.js", """
        const asked = [], answers = [];
        let release;
        const work = (q) => { asked.push(q); return new Promise((r) => { release = r; }); };
        const latest = new m.Latest(work,
          (answer, question, last) => answers.push([answer, question, last]));
        for (const q of [1, 2, 3]) latest.ask(q);
        release('a'); await new Promise((r) => setTimeout(r)); release('b');
        await new Promise((r) => setTimeout(r));
        return [asked, answers];
    """) == [[1, 3], [["a", 1, False], ["b", 3, True]]]  # fmt: skip


def test_api_gives_up_a_question_that_takes_long_when_there_is_another(call: Call) -> None:
    assert call("api.js", """
        const asked = [];
        const answers = await new Promise((done) => {
          const found = [];
          const work = (q, signal) => { asked.push(q); return q === 2 ? 'b' : new Promise((_, no) =>
            signal.addEventListener('abort', () => no(signal.reason))); };
          const latest = new m.Latest(work, (answer, question, last) => {
            found.push([answer, question, last]);
            if (last) done(found);
          });
          latest.ask(1);
          latest.giveUp();  // as its timer does
          latest.ask(2);
        });
        return [asked, answers];
    """) == [[1, 2], [["b", 2, True]]]  # fmt: skip


def test_stream_begins_again_where_the_page_comes_back_into_view(call: Call) -> None:
    assert call("api.js", """
        const made = [], seen = [];
        const kept = window.EventSource;
        window.EventSource = class { constructor(path) { this.path = path; made.push(this); }
          close() { this.closed = true; } };
        const hide = (hidden) => {
          Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
          document.dispatchEvent(new Event('visibilitychange'));
        };
        try {
          const stream = new m.Stream('there', () => seen.push('begin'), (news) => seen.push(news));
          made[0].onopen();
          made[0].onmessage({ data: '[1]' });
          hide(true);
          hide(false);
          made[1].onopen();
          stream.close();
          hide(false);
          return [made.map((one) => [one.path, one.closed]), seen];
        } finally {
          window.EventSource = kept;
          delete document.hidden;
        }
    """) == [[["there", True], ["there", True]], ["begin", [1], "begin"]]  # fmt: skip


def test_api_turns_a_silent_server_into_a_sentence(call: Call) -> None:
    assert "does not answer" in call("api.js", """
        return new Promise((done) => new m.Latest(() => { throw new Error('gone'); },
          (answer) => done(answer.errors[0].text)).ask(1));
    """)  # fmt: skip


def test_state_undoes_gestures_and_survives_a_link(call: Call) -> None:
    assert call("state.js", """
        const first = m.fresh(['camu']);
        const store = new m.Store(first, () => {});
        for (const value of [1, 2, 3]) store.update(m.withSetting(store.now, 'run.seed', value, 0));
        store.commit();
        const moved = store.now.changes['run.seed'];
        store.undo();
        const back = store.now.changes['run.seed'] ?? 'none';
        store.redo();
        return [moved, back, store.now.changes['run.seed'], store.past.length,
                m.withSetting(store.now, 'run.seed', 0, 0).changes];
    """) == [3, "none", 3, 1, {}]  # fmt: skip
    assert call("state.js", """
        const changes = { 'fleet.regions': [{ name: 'Zürich <b>' }] };
        const state = { changes, schemes: ['camu'], fleet: null };
        const empty = '#s=' + btoa('{"changes":{},"schemes":[]}');
        return [JSON.stringify(m.fromHash(m.toHash(state))) === JSON.stringify(state),
                m.fromHash('#s=nonsense'), m.fromHash(''), m.fromHash(empty)];
    """) == [True, None, None, None]  # fmt: skip


WORLD = """
    const at = (x, y) => [x, y, 0];
    const world = { file: false, stations: [[0, 0, 9]], devices: [
      { id: '0', at: at(1, 1) }, { id: '1', at: at(2, 2) }, { id: '2', at: at(8, 8) }] };
    const regions = [{ name: 'a', devices: 1, x: [0, 1], y: [0, 1] },
      { name: 'b', devices: 2, x: [2, 9], y: [2, 9] }];
    const state = { changes: {}, schemes: ['camu'], fleet: null };
"""


def test_edits_of_regions(call: Call) -> None:
    assert call("state.js", WORLD + """
        return m.moveDevice(state, world, 1, 5.123, 6).changes['fleet.positions'];
    """) == [[1, 1, 0], [5.12, 6, 0], [8, 8, 0]]  # fmt: skip
    added = call("state.js", WORLD + "return m.addDevice(state, world, regions, 3, 4).changes")
    assert [region["devices"] for region in added["fleet.regions"]] == [1, 2, 1]
    assert added["fleet.positions"][-1] == [3, 4, 0]
    removed = call("state.js", WORLD + "return m.removeDevice(state, world, regions, 0).changes")
    assert [region["name"] for region in removed["fleet.regions"]] == ["b"]
    assert removed["fleet.positions"] == [[2, 2, 0], [8, 8, 0]]
    station = call("state.js", WORLD + "return m.moveStation(state, world, 4, 5).changes")
    assert station == {"fleet.base_station": [4, 5, 9]}


def test_edits_of_a_fleet_file(call: Call) -> None:
    assert call("state.js", WORLD + """
        world.file = true;
        let now = m.moveDevice(state, world, 1, 5, 6);
        now = m.addDevice(now, world, regions, 7.5, 8);
        now = m.removeDevice(now, world, regions, 0);
        return now.fleet;
    """) == {
        "moved": {"1": [5, 6]},
        "removed": ["0"],
        "added": [{"id": "new-1", "like": "2", "x": 7.5, "y": 8}],
    }  # fmt: skip


def test_maps_have_one_scale_and_go_back_to_metres(call: Call) -> None:
    assert call("view.js", """
        const view = m.frame([[-50, 0], [20, 5]], 400, 300);
        const [left, right, top] = [[-50, 0], [20, 0], [-50, 5]].map(view.toPicture);
        const back = view.toMetres(view.toPicture([3, 4]));
        return [left[0], right[0], Math.round(1000 * (right[0] - left[0]) / 70),
                Math.round(1000 * (left[1] - top[1]) / 5),
                back.map((v) => Math.round(v * 1e6) / 1e6),
                m.ticks([-50, 20], m.roundStep(14)), m.distance(5000, 1000), m.distance(5, 5)];
    """) == [34, 366, 4743, 4743, [3, 4], [-40, -20, 0, 20], "5 km", "5 m"]  # fmt: skip


def test_zooming_keeps_the_place_under_the_pointer(call: Call) -> None:
    assert call("view.js", """
        let changes = 0;
        const view = new m.View(() => { changes += 1; });
        const places = [[0, 0], [100, 80]];
        const now = () => m.frame(places, 400, 300, view);
        const before = now().toPicture([20, 70]);
        view.zoom(4, [20, 70], now());
        const after = now().toPicture([20, 70]);
        const scale = now().scale;
        view.pan([5, 0], now());
        const moved = now().toPicture([20, 70])[0] - after[0] - 5 * scale;
        view.show([90, 10, 3]);
        const shown = now().toPicture([90, 10]);
        view.whole();
        return [before.map((v, k) => Math.abs(v - after[k]) < 1e-9), Math.abs(moved) < 1e-9, shown,
                now().toPicture(places[0])[0] > 0, view.factor, changes];
    """) == [[True, True], True, [200, 150], True, 1, 4]  # fmt: skip


def test_devices_on_one_spot_are_drawn_apart(call: Call) -> None:
    assert call("view.js", """
        const points = [...Array(12).fill([50, 50]), [90, 90], null];
        const shown = m.fan(points, 5, 7);
        let nearest = Infinity;
        let farthest = 0;
        for (let i = 0; i < 12; i += 1) {
          farthest = Math.max(farthest, Math.hypot(shown[i][0] - 50, shown[i][1] - 50));
          for (let j = 0; j < i; j += 1) {
            const gap = [0, 1].map((axis) => shown[i][axis] - shown[j][axis]);
            nearest = Math.min(nearest, Math.hypot(...gap));
          }
        }
        return [nearest > 5, farthest < 30, shown[12], shown[13]];
    """) == [True, True, [90, 90], None]  # fmt: skip


def test_names_of_places_do_not_cover_each_other(call: Call) -> None:
    assert call("view.js", """
        const regions = ['Depot', 'Depot', 'Depot', 'Yard', 'Far'];
        const devices = regions.map((region) => ({ region }));
        const at = [[50, 50], [52, 50], [54, 50], [55, 52], [200, 90]];
        return [m.placeNames(devices, at, 300, 200).map((one) => one.name),
                m.placeNames(devices.slice(0, 2), at.slice(0, 2), 300, 200)];
    """) == [["Depot", "Far"], []]  # fmt: skip


def test_devices_are_found_by_part_of_their_ids(call: Call) -> None:
    assert call("view.js", """
        const devices = ['gw-12', 'GW-1', 'x-gw-1'].map((id) => ({ id }));
        return ['gw-1', 'W-12', ' ', 'no'].map((text) => m.search(devices, text));
    """) == [[0, 1, 2], [0], [], []]  # fmt: skip


def test_marks_find_changed_leaders_and_keep_colours(call: Call) -> None:
    assert call("figures.js", """
        const unit = (leader, members, colour) => ({ leader, members, colour });
        const before = [unit(0, [0, 1], 'red'), unit(2, [2], 'blue')];
        const after = [unit(2, [2, 1]), unit(0, [0]), unit(3, [3])];
        return [[...m.changedDevices({ units: before, count: 4 }, after, 4)],
                m.changedDevices({ units: before, count: 3 }, after, 4).size,
                m.keepColours(before, after, ['red', 'blue', 'green']).map((unit) => unit.colour)];
    """) == [[1, 3], 0, ["blue", "red", "green"]]  # fmt: skip
    assert call("figures.js", """
        return [m.figure(2, 1).textContent, m.figure(1, 1), m.figure(null, 1), m.figure(1)];
    """) == ["2 ▲ +100 %", "1", "–", "1"]  # fmt: skip


def test_fields_read_what_is_typed(call: Call) -> None:
    assert call("settings.js", """
        const number = { type: 'number', optional: true };
        const whole = { type: 'integer', optional: false };
        return [m.parse(number, ' 0.5 '), m.parse(number, ''), m.parse(whole, ''),
                m.parse(whole, 'x'),
                m.parse({ type: 'array' }, '1e9, 2e9'), m.parse({ type: 'string' }, 'cnn')];
    """) == [0.5, None, "", "x", [1e9, 2e9], "cnn"]  # fmt: skip
    assert call("settings.js", """
        const span = { low: 0.01, high: 100, log: true };
        return [m.toSlider(span, 1), m.fromSlider(span, 500, false),
                m.fromSlider({ low: 0, high: 9, log: false }, 1000, true)];
    """) == [500, 1, 9]  # fmt: skip


def test_controls_put_a_sentence_beside_its_field(page: Any, call: Call) -> None:
    assert call("settings.js", "return typeof m.Settings") == "function"
    fields = page.locator(".field").evaluate_all("all => all.map((node) => node.dataset.key)")
    assert len(fields) == len(set(fields))
    for key in ("fleet.file", "machine.engine", "data.directory"):
        assert key not in fields
    for key in (
        "scheme.parameters.threshold_quantile",
        "radio.exponent",
        "run.rounds",
        "clustering.damping",
    ):
        assert key in fields


def test_figures_say_what_a_round_costs(call: Call) -> None:
    assert call("figures.js", """
        return m.headline({ totals: { clusters: 3, repeating: 1, seconds: 0.25, joules: 2 } });
    """) == (
        "3 clusters, 1 with more than one local update; a round takes 0.25 s and 2 J"
    )  # fmt: skip


def test_snr_orders_devices_by_cluster(call: Call) -> None:
    assert call("figures.js", """
        return [m.order([{ members: [2, 5] }, { members: [0] }], 3),
                m.colour(0), m.colour(1), m.colour(2)];
    """) == [[2, 0], [68, 1, 84], [253, 231, 37], [253, 231, 37]]  # fmt: skip


def test_training_extends_curves_and_begins_anew_where_the_file_did(call: Call) -> None:
    assert call("training.js", """
        let run = { scheme: 'camu', points: [], devices: null, summary: null };
        const point = (round, score) =>
          ({ round, score, joules: 2 * round, seconds: 3 * round });
        run = m.extend(run, { points: [point(0, 0.1), point(1, null)] });
        run = m.extend(run, { points: [point(2, 0.3)] });
        const rows = m.curves([run], 'joules').map((row) => [row.x, row.mean]);
        const sent = { round: 3, score: 0.4, megabytes: 2.5 };
        rows.push(...m.curves([{ points: [sent] }], 'megabytes').map((row) => [row.x, row.mean]));
        run = m.extend(run, { again: true, points: [point(0, 0.1)] });
        return [rows, run.points.length, m.percent(0.1234), m.percent(null)];
    """) == [[[0, 0.1], [4, 0.3], [2.5, 0.4]], 1, "12.34 %", "–"]  # fmt: skip


def test_scores_are_shown_in_the_units_of_their_metric(call: Call) -> None:
    assert call("training.js", """
        const rmse = { name: 'RMSE', share: false }, accuracy = { name: 'accuracy', share: true };
        const point = (score, blown = false) => ({ round: 1, score, blown });
        const runs = [
          { points: [] },
          { points: [point(52.125), point(null)], score: rmse },
          { points: [point(0.875)], score: accuracy },
          { points: [point(3), point(null, true)], score: rmse },
        ];
        const column = m.scoreName(runs);
        return [column, ...runs.map((run) => m.lastScore(run, column)), m.scoreName([])];
    """) == ["RMSE", "–", "52.13", "accuracy 87.5 %", "blown up", "score"]  # fmt: skip


def test_marks_that_are_texts_are_filled_in(call: Call) -> None:
    assert call("charts.js", """
        const spec = { title: '$score', domain: ['$schemes'], other: ['x', '$score'] };
        return m.filled(spec, { $score: 'RMSE', $schemes: ['a', 'b'] }, (value) => value);
    """) == {
        "title": "RMSE", "domain": ["a", "b"], "other": ["x", "RMSE"],
    }  # fmt: skip


def test_follow_says_how_long_it_takes(call: Call) -> None:
    assert call("follow.js", "return [null, 4.4, 120, 7200].map(m.duration)") == [
        "–", "4 s", "2.0 min", "2.0 h",
    ]  # fmt: skip


def test_follow_counts_no_round_of_fewer(call: Call) -> None:
    found = call("follow.js", "return [[3, 20], [20, 20], [44, 20]].map((one) => m.place(...one))")
    assert found == ["3 of 20", "20 of 20", "44, 20 or more"]


def test_follow_puts_first_what_goes_on_and_shortens_names(call: Call) -> None:
    assert call("follow.js", """
        const digest = '0123456789abcdef';
        const runs = new Map([['a', { state: 'finished' }], ['b', { state: 'running' }]]);
        const names = [`x/camu-seed1-${digest}`, `x/camu-seed10-${digest}`];
        return [m.ordered(runs).map(([name]) => name), m.brief(names),
                m.brief([names[0], names[0]]), m.distinct(m.brief(names)), m.distinct(['alone'])];
    """) == [
        ["b", "a"],
        ["x/camu-seed1", "x/camu-seed10"],
        ["x/camu-seed1-0123456789abcdef"] * 2,
        ["seed1", "seed10"],
        ["alone"],
    ]  # fmt: skip


def test_follow_tells_faults_and_empty_batteries(call: Call) -> None:
    assert call("training.js", """
        return [m.troubles({ absent: 2 }, 1), m.troubles({}, 0), m.troubles({}, undefined)];
    """) == ["2 absent, 1 empty", "none", "none"]  # fmt: skip


def test_take_offers_every_file_and_chart(page: Any, call: Call) -> None:
    assert call("download.js", "return typeof m.Downloads") == "function"
    names = page.locator("#downloads button").all_inner_texts()
    assert names[:7] == [
        "config.toml",
        "plan.json",
        "units.csv",
        "devices.csv",
        "fleet.csv",
        "stations.csv",
        "all.zip",
    ]
    assert {"map.svg", "accuracy.svg", "run directory", "copy link"} <= set(names)


def test_charts_fill_their_markers_and_change_colours(call: Call) -> None:
    filled = call(
        "charts.js",
        """const spec = { domain: ['$schemes'], colour: 'blue', other: ['a', '$schemes'] };
        return m.filled(spec, { $schemes: ['camu', 'blue'] }, (v) => v === 'blue' ? 'sky' : v);""",
    )
    assert filled == {"domain": ["camu", "sky"], "colour": "sky", "other": ["a", "$schemes"]}


def test_theme_shades_colours_on_a_dark_ground_only(page: Any, call: Call) -> None:
    shades = "return m.shade('#0072B2', { '#0072B2': '#2F8AD6' })"
    assert call("charts.js", shades) == "#0072B2"
    page.emulate_media(color_scheme="dark")
    try:
        assert call("charts.js", shades) == "#2F8AD6"
        assert page.get_attribute("html", "data-theme") == "dark"
    finally:
        page.emulate_media(color_scheme="light")
