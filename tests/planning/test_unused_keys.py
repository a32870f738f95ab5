"""Keys that were set and change nothing are said in a line; those that count are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import camu
from camu.config import load_config
from camu.planning.air_words import unused_errors
from camu.schemes import SCHEMES
from camu.world import World, build_world

Tiny = Callable[..., World]
STATIONS = {"fleet__base_station_file": str(Path(__file__).parents[1] / "schemes/two_stations.csv")}


@pytest.mark.parametrize(
    ("key", "value", "used"),
    [
        ("fleet.pause_seconds", 2.0, {"fleet__speed_mps": (1.0, 2.0)}),
        (
            "radio.rate_margin_db",
            1.0,
            {"radio__fading": "rayleigh", "radio__csi_correlation": 0.9},
        ),
        ("radio.cells", "apart", STATIONS),
    ],
)
def test_a_key_without_effect_in_a_world_is_said(
    tiny: Tiny, key: str, value: Any, used: dict[str, Any]
) -> None:
    own = {key.replace(".", "__"): value}
    (note,) = tiny(**own).notes
    assert note.startswith(f"{key} = ")
    assert f"{value:g}" in note if isinstance(value, float) else value in note
    assert not [text for text in tiny(**own, **used).notes if key in text]
    assert tiny().notes == ()


def test_errors_of_phase_and_time_are_said_where_nobody_transmits_at_once(tiny: Tiny) -> None:
    world = tiny(radio__phase_error_rad=0.25, radio__time_offset_symbols=0.5)
    for name in ("fedsgd", "clustered"):
        phase, time = unused_errors(camu.plan(SCHEMES[name](), world), world)
        assert phase.startswith("radio.phase_error_rad = 0.25 has no effect")
        assert time.startswith("radio.time_offset_symbols = 0.5 has no effect")
        assert unused_errors(camu.plan(SCHEMES[name](), tiny()), tiny()) == []
    for name in ("cotaf", "cluster-air"):
        assert unused_errors(camu.plan(SCHEMES[name](), world), world) == []


def test_a_plan_and_a_run_say_it_once(camu: Callable[..., Any], tmp_path: Path) -> None:
    keys = ("radio.phase_error_rad=0.25", "run.rounds=1", "fleet.pause_seconds=2")
    sets = [word for key in keys for word in ("--set", key)]
    for command in (("plan",), ("run", "--out", tmp_path / "run")):
        done = camu(*command, "--preset", "demo", "--scheme", "fedavg", *sets)
        assert done.code == 0, done.err
        for key in ("radio.phase_error_rad", "fleet.pause_seconds"):
            assert done.err.count(f"{key} = ") == 1


def test_a_fleet_from_label_counts_says_it_too() -> None:
    config = load_config(preset="demo", settings=["fleet.pause_seconds=3"])
    world = build_world(config, label_counts=[[5] * 10] * config.fleet.devices)
    assert world.notes == ("fleet.pause_seconds = 3 has no effect without fleet.speed_mps",)
