"""Pages of runs whose error falls, beside runs of images, and of a model that has blown up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.report.runs import group_runs, read_runs
from camu.report.scenes import curve_rows, frontier_rows
from camu.report.writing import write_report
from helpers.browser import PATIENCE

Anything = Callable[..., Any]
REGRESSION = (
    *("data.dataset=diabetes", "data.with_replacement=true", "data.standardise=true"),
    "training.model=linear",
)


def regression(folder: Path, make_run: Anything, scheme: str, scores: Sequence[Any]) -> Path:
    """A run with these RMSE, one per round; None: its model had blown up."""
    make_run(folder, scheme, rounds=len(scores) - 1, finished=False, settings=REGRESSION)
    file = folder / "rounds.jsonl"
    rounds = [json.loads(line) for line in file.read_text().splitlines()]
    for one, score in zip(rounds, scores, strict=True):
        one |= {"accuracy": None, "metric": "rmse", "metrics": {"rmse": score, "r2": None}}
    file.write_text("".join(json.dumps(one) + "\n" for one in rounds))
    return folder


@pytest.fixture
def falls(tmp_path: Path, make_run: Anything) -> Path:
    """Two regressions that learn, and one that blows up after two rounds."""
    folder = tmp_path / "falls"
    regression(folder / "fedavg", make_run, "fedavg", [80.5, 70.0, 60.0, 55.25])
    regression(folder / "camu", make_run, "camu", [80.5, 60.0, 55.0, 50.75])
    regression(folder / "petrel", make_run, "petrel", [80.5, 75.0, 9e9, None])
    return folder


def test_a_page_of_a_falling_error(falls: Path, page_data: Anything, column: Anything) -> None:
    page = write_report([falls])
    text = page.read_text(encoding="utf-8")
    assert "final RMSE" in text
    assert "final RMSE (%)" not in text
    assert "55.25" in text
    assert "blown up" in text
    assert "RMSE over rounds: lower and further left is better" in text
    [scene] = page_data(page)["scenes"]
    assert scene["titles"]["frontier-joules"].startswith("RMSE against energy")
    assert scene["score"]["$score_format"] == ",.4~g"
    curve = scene["tables"]["accuracy-rounds"]
    # An error that has exploded would leave no room for the others.
    for scheme, means in (("fedavg", [80.5, 70, 60, 55.25]), ("petrel", [80.5, 75])):
        own = column(curve, "scheme") == scheme
        assert column(curve, "mean")[own].tolist() == means
    frontier = scene["tables"]["frontier-joules"]
    assert sorted(column(frontier, "scheme")) == ["camu", "fedavg"]  # without the one that blew up


def test_the_frontier_has_the_least_errors(tmp_path: Path, make_run: Anything) -> None:
    """Against its definition: no other scheme has less error at less cost."""
    for scheme, last in (("fedavg", 60.0), ("clustered", 70.0), ("camu", 50.0)):
        regression(tmp_path / scheme, make_run, scheme, [80.0, last])
    groups = group_runs(read_runs([tmp_path]).runs)
    rows = {row["scheme"]: row for row in frontier_rows(groups, "joules")}
    for name, row in rows.items():
        beaten = any(
            other["x"] <= row["x"] and other["score"] <= row["score"]
            for scheme, other in rows.items()
            if scheme != name
        )
        assert row["best"] is not beaten
    assert rows["camu"]["best"]
    assert len({row["best"] for row in rows.values()}) == 2
    assert {row["score_low"] for row in rows.values()} == {None}  # one seed


def test_bands_of_errors_are_not_cut_at_one(tmp_path: Path, make_run: Anything) -> None:
    for seed, last in enumerate((50.0, 52.0)):  # from 80 and 2: an interval that reaches below 0
        folder = tmp_path / str(seed)
        settings = (*REGRESSION, f"run.seed={seed}")
        make_run(folder, "fedavg", seed, rounds=1, finished=False, settings=settings)
        file = folder / "rounds.jsonl"
        rounds = [json.loads(line) for line in file.read_text().splitlines()]
        for one, score in zip(rounds, ((80.0, 2.0)[seed], last), strict=True):
            one |= {"accuracy": None, "metric": "rmse", "metrics": {"rmse": score}}
        file.write_text("".join(json.dumps(one) + "\n" for one in rounds))
    rows = curve_rows(group_runs(read_runs([tmp_path]).runs), "rounds")
    assert (rows[0]["mean"], rows[0]["low"]) == (41.0, 0.0)
    assert rows[0]["high"] == pytest.approx(41 + 12.706 * 39, rel=1e-4)
    assert (rows[-1]["mean"], rows[-1]["n"]) == (51.0, 2)
    assert rows[-1]["low"] == pytest.approx(51 - 12.706 * np.sqrt(2) / np.sqrt(2), rel=1e-4)
    assert rows[-1]["high"] == pytest.approx(51 + 12.706, rel=1e-4)


def test_images_and_a_regression_on_one_page(
    falls: Path, tmp_path: Path, make_run: Anything, page_data: Anything
) -> None:
    make_run(tmp_path / "images", "fedavg")
    page = write_report([falls, tmp_path / "images"], figures=tmp_path / "figures")
    text = page.read_text(encoding="utf-8")
    assert "final score" in text
    assert "RMSE: 55.25" in text
    assert "Accuracy in %: 70.0" in text
    titles = {one["dataset"]: one["titles"]["accuracy-rounds"] for one in page_data(page)["scenes"]}
    assert titles["digits"] == "Accuracy over rounds: higher and further left is better"
    assert titles["diabetes"] == "RMSE over rounds: lower and further left is better"
    for dataset, axis in (("digits", "test accuracy"), ("diabetes", "test RMSE")):
        picture = (tmp_path / "figures" / dataset / "accuracy-rounds.svg").read_text()
        assert axis in picture


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
@pytest.mark.timeout(900)
def test_the_browser_shows_the_metric_of_each_data_set(
    browser: Any, falls: Path, tmp_path: Path, make_run: Anything
) -> None:
    make_run(tmp_path / "images", "fedavg")
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(write_report([falls, tmp_path / "images"]).as_uri())
    page.wait_for_selector("html[data-state=ready]")
    for dataset, name in (("digits", "accuracy"), ("diabetes", "RMSE"), ("digits", "accuracy")):
        page.select_option("#dataset", dataset)
        page.locator(f"#chart-accuracy svg.marks text:has-text('test {name}')").first.wait_for()
        page.wait_for_selector("#chart-accuracy[data-state=ready]")
        title = page.locator("#accuracy-title").inner_text()
        assert title.lower().startswith(name.lower())
    assert said == []
    page.close()
