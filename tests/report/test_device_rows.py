"""The report on batteries: who is empty, what each device spent, how many are left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from camu.report.runs import group_runs, read_runs
from camu.report.scenes import Scene, scenes_of
from camu.report.writing import write_report
from camu.simulation.directory import RunDirectory, run_in_directory
from helpers.configs import small


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("drained")
    for scheme, battery in (("camu", 1.0), ("fedavg", None)):
        config = small(
            scheme__name=scheme,
            fleet__battery_joules=battery,
            radio__downlink=True,
            radio__receive_watts=0.1,
            run__rounds=40,
            training__model="logistic",
            radio__bandwidth_hz=1e5,
        )
        run_in_directory(config, RunDirectory(out / scheme))
    return out


def scene_of(path: Path) -> Scene:
    return scenes_of(group_runs(read_runs([path]).runs))[0]


def test_the_map_shows_who_is_empty(drained: Path) -> None:
    found = RunDirectory(drained / "camu").read_devices()
    assert found is not None
    empty = found.empty_round >= 0
    assert 0 < empty.sum() < 20
    view = next(iter(scene_of(drained / "camu").plans.values()))
    rows = {row["device"]: row for row in view.tables["devices"]}
    for k, name in enumerate(found.ids):
        words = rows[name]["battery"]
        if empty[k]:
            assert words == f"empty after round {found.empty_round[k]}"
        else:
            assert words == f"{found.left_joules[k]:.4g} of 1 J left"
    grey = {name for name, row in rows.items() if row["colour"] == "#9AA3AF"}
    assert grey == {name for k, name in enumerate(found.ids) if empty[k]}
    assert f"{empty.sum()} of 20 devices had been empty" in view.text


def test_bars_per_device_add_up_to_the_run(drained: Path) -> None:
    view = next(iter(scene_of(drained / "camu").plans.values()))
    total = sum(row["joules"] for row in view.tables["spending"])
    joules = RunDirectory(drained / "camu").read_summary()["joules"]
    assert total == pytest.approx(joules, rel=1e-3)
    by_device: dict[str, float] = {}
    for row in view.tables["spending"]:
        by_device[row["device"]] = by_device.get(row["device"], 0.0) + row["joules"]
    shown = list(by_device.values())
    assert shown == pytest.approx(sorted(shown, reverse=True), rel=1e-3)


def test_the_curve_counts_the_devices_that_are_left(drained: Path) -> None:
    lines = (drained / "camu" / "rounds.jsonl").read_text().splitlines()
    empty = [json.loads(line)["empty"] for line in lines]
    rows = scene_of(drained / "camu").tables["alive"]
    assert [row["alive"] for row in rows] == (20 - np.array(empty)).tolist()


def test_without_batteries_there_is_no_curve(drained: Path) -> None:
    scene = scene_of(drained / "fedavg")
    assert scene.tables["alive"] == []
    view = next(iter(scene.plans.values()))
    assert {row["battery"] for row in view.tables["devices"]} == {"mains power"}


def test_receiving_is_a_part_of_the_energy(drained: Path) -> None:
    last = RunDirectory(drained / "fedavg").read_history().final
    phases = {row["phase"]: row["joules"] for row in scene_of(drained / "fedavg").tables["energy"]}
    assert phases["receive"] == pytest.approx(last.joules["receive"], rel=1e-4)
    assert sum(phases.values()) == pytest.approx(last.total_joules, rel=1e-3)


def test_the_page_and_the_figures_are_written(drained: Path, tmp_path: Path) -> None:
    page = write_report(drained, tmp_path / "page.html", tmp_path / "figures")
    assert "how many devices still take part" in page.read_text()
    names = {path.name for path in (tmp_path / "figures").rglob("*.svg")}
    assert {"alive.svg", "spending.svg", "map.svg"} <= names


def test_batteries_of_a_run_that_has_not_ended_are_not_known(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", finished=False, settings=("fleet.battery_joules=5.0",))
    view = next(iter(scene_of(run).plans.values()))
    assert {row["battery"] for row in view.tables["devices"]} == {"not known"}
