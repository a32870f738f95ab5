"""`camu report`: what the page holds, that it needs nothing else, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial import ConvexHull, QhullError

from camu.config import load_config
from camu.experiments.statistics import judge
from camu.planning.plan import Plan
from camu.report.rows import convex_hull, timeline_rows
from camu.report.runs import KeptRun, group_runs, read_runs
from camu.report.scenes import frontier_rows, unbeaten
from camu.report.style import PHASES
from camu.report.tables import paper_names
from camu.report.writing import write_report
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.world import build_world
from helpers.configs import small

Camu = Callable[..., Any]
Anything = Callable[..., Any]
SECTIONS = ("What was run", "Verdicts on the claims", "What it reaches", "Inside a scheme")


class Tags(HTMLParser):
    """Collects what a browser would load and how many scripts there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


@pytest.fixture(scope="module")
def page(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([study], tmp_path_factory.mktemp("page") / "report.html")


def test_sections_and_charts_are_there(page: Path, page_data: Anything) -> None:
    text = page.read_text(encoding="utf-8")
    assert all(section in text for section in SECTIONS)
    assert page.stat().st_size < 3_000_000
    document = page_data(page)
    (scene,) = document["scenes"]
    assert scene["schemes"] == ["fedavg", "petrel", "camu"]
    tables = scene["plans"]["camu"]["tables"]
    for name in ("devices", "links", "labels", "units", "timeline", "threshold", "ppo"):
        assert tables[name]["rows"] > 0, name
    assert tables["snr"]["rows"] == 20 * 20
    # What plans share is held once.
    numbers = [table for table in document["tables"] if table == tables["snr"]]
    assert len(numbers) == 1
    # A scheme has the same colour everywhere, and no two share one here.
    assert len({colour for colour, _ in document["looks"].values()}) == 3


def test_nothing_is_loaded_and_no_text_breaks_out(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    tags = Tags(text)
    assert tags.addresses == ["data:,"]
    assert tags.scripts == 3  # data, library, our own; the verdict's text adds none
    assert "alert(1)" in text
    assert "default-src 'none'" in text
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_numbers_are_those_of_the_runs(page: Path, page_data: Anything, column: Anything) -> None:
    finals = [0.1 + 6 * (0.1 + 0.01 * seed) for seed in range(3)]
    low, high = stats.t.interval(0.95, 2, np.mean(finals), stats.sem(finals))
    text = page.read_text(encoding="utf-8")
    assert f"{100 * np.mean(finals):.1f} ± {50 * (high - low):.1f}" in text
    scene = page_data(page)["scenes"][0]
    for axis in ("rounds", "joules", "seconds", "megabytes"):
        curve = scene["tables"][f"accuracy-{axis}"]
        last = np.flatnonzero(column(curve, "scheme") == "fedavg")[-1]
        assert column(curve, "n")[last] == 3
        if axis == "megabytes":
            assert column(curve, "x")[last] == 9.0
        if axis == "rounds":
            assert column(curve, "x")[last] == 6
            assert column(curve, "mean")[last] == pytest.approx(np.mean(finals), rel=1e-4)
            assert column(curve, "low")[last] == pytest.approx(low, rel=1e-4)
            assert column(curve, "high")[last] == pytest.approx(high, rel=1e-4)


def test_devices_and_matrix_tell_the_worlds_snr(
    page: Path, page_data: Anything, column: Anything
) -> None:
    world = build_world(load_config(preset="demo"))
    gamma = 10 * np.log10(world.links.gamma())
    plan = page_data(page)["scenes"][0]["plans"]["camu"]
    devices = plan["tables"]["devices"]
    order = column(devices, "device").astype(int)
    assert sorted(order) == list(range(20))
    assert column(devices, "snr") == pytest.approx(np.diag(gamma)[order], abs=0.06)
    matrix = column(plan["tables"]["snr"], "snr").reshape(20, 20)
    assert matrix == pytest.approx(gamma, abs=0.06)


def test_verdicts_have_word_and_symbol(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for words in ("✓ reproduced", "✗ contradicted", "○ open", "+1.23 points", "+0.40 … +2.06"):
        assert words in text, words
    assert "1 reproduced, 1 contradicted, 1 open." in text


def test_names_of_the_paper_are_those_of_the_glossary() -> None:
    glossary = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^\| ((?:Benchmark|Configuration) \d) \| `([\w-]+)`", glossary, re.M))
    assert len(found) == 8

    def said(statement: str) -> str:
        return paper_names([judge("X", "mnist", statement, [1.0, 1.5], 1)])

    known = "; ".join(f"{name} is {scheme}" for name, scheme in found.items())
    assert said(f"{' and '.join(found)} differ") == f"{known}."
    assert said("Configuration 3 wins") == "Configuration 3 is camu."
    assert said("X") == ""


def test_runs_of_an_earlier_version_have_no_megabytes(
    make_run: Anything, page_data: Anything, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", "petrel", finished=False)
    text = (run / "rounds.jsonl").read_text()
    (run / "rounds.jsonl").write_text(re.sub(r', "bits": \{[^}]*\}', "", text))
    page = write_report([run])
    scene = page_data(page)["scenes"][0]
    assert scene["tables"]["accuracy-joules"]["rows"] > 0
    assert scene["tables"]["accuracy-megabytes"]["rows"] == 0
    assert 'value="megabytes"' not in page.read_text(encoding="utf-8")


def test_a_run_in_memory_gives_the_page_of_its_directory(tmp_path: Path) -> None:
    config = small(run__rounds=2)
    directory = RunDirectory(tmp_path / "run")
    kept = KeptRun(directory.path)
    run = kept.ended(run_in_directory(config, directory, callbacks=[kept]))
    assert run is not None
    page = write_report([directory.path]).read_text(encoding="utf-8")
    for name in ("plan.json", "rounds.jsonl", "devices.csv"):
        (directory.path / name).unlink()
    assert write_report([run]).read_text(encoding="utf-8") == page


def test_seeds_are_counted_and_named(page: Path, make_run: Anything, tmp_path: Path) -> None:
    """`0` under "seeds" would read as no seeds."""
    assert "<td>3 (seeds 0–2)</td>" in page.read_text(encoding="utf-8")
    one = write_report([make_run(tmp_path / "one", "fedavg")])
    assert "<td>1 (seed 0)</td>" in one.read_text(encoding="utf-8")


def test_a_run_done_again_replaces_the_earlier_one(make_run: Anything, tmp_path: Path) -> None:
    """After an edit of the user's scheme `camu compare` leaves both; the later one counts."""
    import os

    for name, seconds in (("a-old", 1_000_000), ("b-new", 2_000_000)):
        run = make_run(tmp_path / name, "camu")
        os.utime(run / "rounds.jsonl", (seconds, seconds))
    assert [run.path.name for run in read_runs([tmp_path]).runs] == ["b-new"]


def test_one_run_lies_in_its_own_directory(
    camu: Camu, make_run: Anything, page_data: Anything, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", "petrel")
    done = camu("report", run)
    assert done.code == 0, done.err
    assert str(run / "report.html") in done.out
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "Verdicts" not in text
    assert "1 run: 1 scheme in 1 setting." in text
    scene = page_data(run / "report.html")["scenes"][0]
    assert scene["tables"]["accuracy-rounds"]["columns"]["low"] is None  # one seed has no interval
    assert scene["plans"]["petrel"]["tables"]["threshold"]["columns"]["seen"] is False


@pytest.mark.slow
def test_a_single_directory_needs_no_list(make_run: Anything, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "petrel")
    for path in (run, str(run)):
        assert write_report(path) == run / "report.html"


def test_the_page_of_a_comparison_stays(camu: Camu, make_run: Anything, tmp_path: Path) -> None:
    for scheme in ("fedavg", "petrel"):
        make_run(tmp_path / "all" / scheme, scheme)
    page = tmp_path / "all" / "report.html"
    page.write_text('<section id="comparison"><h2>Compared</h2></section>')
    before = page.read_bytes()
    done = camu("report", tmp_path / "all")
    assert done.code == 0, done.err
    assert "report-runs.html" in done.out
    assert "What was run" in (tmp_path / "all" / "report-runs.html").read_text("utf-8")
    done = camu("report", tmp_path / "all", "--out", page)
    assert done.code == 2
    assert f"{page}: is the page of a comparison" in done.err
    assert page.read_bytes() == before


@pytest.mark.slow
def test_an_unfinished_run_is_shown_as_far_as_it_got(
    camu: Camu, make_run: Anything, tmp_path: Path
) -> None:
    make_run(tmp_path / "all" / "done", seed=0)
    cut = make_run(tmp_path / "all" / "cut", seed=1, finished=False)
    with (cut / "rounds.jsonl").open("a") as file:
        file.write('{"round": 7, "accur')
    make_run(tmp_path / "all" / "begun", seed=2, finished=False)
    (tmp_path / "all" / "begun" / "plan.json").unlink()
    done = camu("report", tmp_path / "all", "--out", tmp_path / "page.html")
    assert done.code == 0, done.err
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "1 of 2 finished" in text
    assert "Left out, without a round so far: 1." in text
    done = camu("report", cut)
    assert done.code == 0, done.err
    assert "0 of 1 finished" in (cut / "report.html").read_text(encoding="utf-8")


def test_what_was_varied_becomes_a_label(
    camu: Camu, make_run: Anything, page_data: Anything, tmp_path: Path
) -> None:
    for h in (8, 20):
        varied = f"data.noniid_devices={h}"
        make_run(tmp_path / f"{h}" / "fedavg", "fedavg", settings=(varied,))
        gated = (varied, "scheme.parameters.threshold=300")
        make_run(tmp_path / f"{h}" / "camu", "camu", settings=gated)
    more = ("data.noniid_devices=8", "scheme.parameters.threshold=600")
    make_run(tmp_path / "8" / "camu-600", "camu", settings=more)
    make_run(tmp_path / "copy", "camu", rounds=6, settings=more)  # no second sample
    done = camu("report", tmp_path)
    assert done.code == 0, done.err
    scenes = page_data(tmp_path / "report.html")["scenes"]
    assert [scene["setting"] for scene in scenes] == ["noniid_devices=8", "noniid_devices=20"]
    assert scenes[0]["schemes"] == ["fedavg", "camu threshold=300", "camu threshold=600"]
    assert scenes[1]["schemes"] == ["fedavg", "camu"]
    assert "5 runs" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_no_data_set_is_needed_and_lost_links_are_said(
    camu: Camu, make_run: Anything, page_data: Anything, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run")
    config = run / "config.toml"
    config.write_text(config.read_text().replace('"digits"', '"mnist"'))
    assert camu("report", run).code == 0
    scene = page_data(run / "report.html")["scenes"][0]
    assert scene["plans"]["camu"]["tables"]["snr"]["rows"] == 400
    config.write_text(config.read_text().replace("x = [10.0", "x = [11.0"))
    assert camu("report", run).code == 0
    plan = page_data(run / "report.html")["scenes"][0]["plans"]["camu"]
    assert plan["tables"]["snr"]["rows"] == 0
    assert "SNR is left out" in plan["text"]
    assert plan["tables"]["devices"]["rows"] == 20


def test_the_sweep_of_a_study_is_not_shown_with_its_runs(
    make_run: Anything, tmp_path: Path
) -> None:
    make_run(tmp_path / "runs" / "a", "camu", 0)
    make_run(tmp_path / "sweep" / "b", "camu", 1000)
    assert len(read_runs([tmp_path]).runs) == 2
    (tmp_path / "verdicts.json").write_text("[]")
    assert [run.seed for run in read_runs([tmp_path]).runs] == [0]


@pytest.mark.parametrize(
    ("spoil", "named", "expected"),
    [
        (lambda run: run.rename(run.with_name("gone")), "", "does not exist"),
        (lambda run: [file.unlink() for file in run.iterdir()], "", "plan.json"),
        (lambda run: (run / "plan.json").unlink(), "", "no plan.json"),
        (lambda run: (run / "plan.json").write_text("{"), "plan.json", "digest"),
        (lambda run: (run / "plan.json").write_text("[]"), "plan.json", "digest"),
        (lambda run: (run / "rounds.jsonl").write_text("x"), "rounds.jsonl", "digest"),
        (lambda run: (run / "config.toml").write_text("="), "config.toml", "not valid TOML"),
        (lambda run: (run / "verdicts.json").write_text("{}"), "verdicts.json", "claim"),
    ],
)
def test_a_broken_directory_is_named(
    camu: Camu, make_run: Anything, tmp_path: Path, spoil: Anything, named: str, expected: str
) -> None:
    run = make_run(tmp_path / "run")
    spoil(run)
    done = camu("report", run)
    assert done.code == (1 if expected == "digest" else 2), done.err
    assert str(run / named if named else run) in done.err
    assert expected in done.err


@pytest.mark.parametrize(
    ("key", "value"), [("joules", "null"), ("accuracy", "NaN"), ("virtual_seconds", "Infinity")]
)
def test_an_unfinished_run_without_numbers_is_named(
    camu: Camu, make_run: Anything, tmp_path: Path, key: str, value: str
) -> None:
    run = make_run(tmp_path / "run", finished=False)
    lines = (run / "rounds.jsonl").read_text().splitlines()
    bad = json.dumps({**json.loads(lines[2]), key: "HERE"}).replace('"HERE"', value)
    (run / "rounds.jsonl").write_text("\n".join([*lines[:2], bad, *lines[3:]]) + "\n")
    done = camu("report", run)
    assert done.code == 1
    assert f"{run / 'rounds.jsonl'}, line 3: cannot be read" in done.err
    assert "bug in camu" not in done.err


@pytest.mark.slow
def test_figures_for_papers(camu: Camu, study: Path, tmp_path: Path) -> None:
    done = camu("report", study / "camu" / "seed-0", "--out", tmp_path / "page.html",
                "--figures", tmp_path / "figures")  # fmt: skip
    assert done.code == 0, done.err
    written = {str(path.relative_to(tmp_path / "figures")) for path in tmp_path.rglob("*.svg")}
    names = {f"digits/accuracy-{axis}" for axis in ("rounds", "joules", "seconds", "megabytes")}
    names |= {"digits/energy", "digits/traffic"} | {
        f"digits/camu/{name}"
        for name in ("map", "timeline", "contribution", "labels", "snr", "ppo")
    }
    assert written == {f"{name}.svg" for name in names}
    for name in names:
        picture = (tmp_path / "figures" / f"{name}.svg").read_text()
        assert picture.startswith("<svg")
        assert len(re.findall("<path", picture)) > 5, name
        print_file = (tmp_path / "figures" / f"{name}.pdf").read_bytes()
        assert print_file.startswith(b"%PDF")
        assert len(print_file) > 5000


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_the_frontier_is_what_no_other_scheme_beats(points: list[tuple[int, int]]) -> None:
    """Against its definition by sorting: the best accuracy so far rises along the costs."""
    rising, top = set(), -1
    for cost, accuracy in sorted(set(points), key=lambda point: (point[0], -point[1])):
        if accuracy > top:
            rising.add((cost, accuracy))
            top = accuracy
    found = unbeaten([(float(cost), float(accuracy)) for cost, accuracy in points])
    assert {points[number] for number in found} == rising


def test_dots_of_the_frontier_have_their_intervals(study: Path) -> None:
    rows = {
        row["scheme"]: row for row in frontier_rows(group_runs(read_runs([study]).runs), "joules")
    }
    # The runs end at 0.7, 0.76 and 0.82: Student's t with two degrees of freedom.
    half = 4.302653 * np.std([0.7, 0.76, 0.82], ddof=1) / np.sqrt(3)
    for row in rows.values():
        assert row["score"] == pytest.approx(0.76)
        ends = row["score_low"], row["score_high"]
        assert ends == pytest.approx((0.76 - half, 0.76 + half), rel=1e-4)
        assert 0 <= row["x_low"] <= row["x"] <= row["x_high"]
        assert row["named"]
    places = [row["x"] for row in rows.values()]
    assert not min(rows.values(), key=lambda row: row["x"])["right"]
    assert max(rows.values(), key=lambda row: row["x"])["right"]
    assert len(set(places)) > 1


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=30))
def test_an_area_is_the_convex_hull_of_its_devices(points: list[tuple[int, int]]) -> None:
    corners = convex_hull(points)
    try:
        expected = {tuple(points[k]) for k in ConvexHull(points).vertices}
    except QhullError:  # all on a line: its ends
        expected = {min(points), max(points)}
    assert set(corners) == expected
    assert len(corners) == len(expected)


def test_members_and_leaders_send_in_colours_of_their_own(study: Path) -> None:
    plan = Plan.from_dict(json.loads((study / "camu/seed-1/plan.json").read_text()), "plan.json")
    sent = {(row["cluster"], row["phase"]) for row in timeline_rows(plan)}
    for index, unit in enumerate(plan.units):
        assert (str(index), "uplink") in sent
        assert ((str(index), "gather") in sent) is (len(unit.members) > 1)
    assert len(set(PHASES.values())) == len(PHASES)


def test_many_schemes_fold_by_family_and_draw_in_their_own_colours(
    many: Path, tmp_path: Path, page_data: Anything
) -> None:
    page = write_report([many], tmp_path / "page.html")
    text = page.read_text(encoding="utf-8")
    folded = re.findall(r'class="fold"[^>]*>([^<]+)<', text)
    assert folded[0] == "reference"
    assert sorted(folded) == ["clusters", "drift", "local updates", "paper", "reference"]
    document = page_data(page)
    (scene,) = document["scenes"]
    assert len(scene["schemes"]) == 16
    looks = document["looks"]
    for family in set(scene["families"]):
        members = [
            name
            for number, name in enumerate(scene["schemes"])
            if scene["families"][number] == family or number == 0
        ]
        assert len({repr(looks[name]) for name in members}) == len(members)
    for cost in ("joules", "seconds", "megabytes"):
        assert scene["tables"][f"frontier-{cost}"]["rows"] == 16
