"""A fleet file is trained: by camu run, compare and demo, in Python, and with what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu
from camu.errors import InputError
from camu.world import build_world, read_fleet, with_data
from helpers.configs import small

Camu = Callable[..., Any]


def write_fleet(path: Path, devices: int = 8, each: int = 12) -> np.ndarray:
    """Devices in two halls with two labels each, few enough for the digits."""
    counts = np.zeros((devices, 10), int)
    for device in range(devices):
        counts[device, [device % 5, 5 + device % 5]] = each
    labels = ",".join(f"label_{label}" for label in range(10))
    rows = [
        f"gw-{k},{(-5, 15)[k % 2] + k},{k},{','.join(map(str, row))},acme"
        for k, row in enumerate(counts)
    ]
    path.write_text(f"id,x,y,{labels},vendor\n" + "\n".join(rows) + "\n")
    return counts


def test_a_fleet_with_label_counts_trains_above_chance(camu: Camu, tmp_path: Path) -> None:
    counts = write_fleet(tmp_path / "f.csv")
    done = camu(
        "run", "--fleet", tmp_path / "f.csv", "--scheme", "fedavg", "--out", tmp_path / "run",
        "--set", "run.rounds=40", "--set", "machine.workers=1", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out)["final_score"] > 0.3  # chance is 0.1
    assert "columns that are not used: vendor" in done.err
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert [device["label_counts"] for device in plan["devices"]] == counts.tolist()
    assert plan["devices"][3]["id"] == "gw-3"


def test_numbers_of_samples_become_label_counts_of_the_plan(tmp_path: Path) -> None:
    sizes = [30, 50, 10, 44]
    rows = [f"d{k},{-70 - k},{n}" for k, n in enumerate(sizes)]
    (tmp_path / "f.csv").write_text("id,gain_db,samples\n" + "\n".join(rows) + "\n")
    world = read_fleet(tmp_path / "f.csv", config=small())
    assert world.devices.label_counts.shape == (4, 1)
    dealt = with_data(world)
    assert dealt.devices.samples.tolist() == sizes
    assert dealt.devices.label_counts.shape == (4, 10)
    assert with_data(dealt) is dealt
    result = camu.simulate(world, camu.schemes.Camu())
    assert result.history.final.round == 2
    assert result.plan == camu.schemes.Camu().plan(dealt)


def test_too_few_samples_are_refused_and_nothing_is_written(camu: Camu, tmp_path: Path) -> None:
    write_fleet(tmp_path / "f.csv", each=500)
    done = camu("run", "--fleet", tmp_path / "f.csv", "--out", tmp_path / "run")
    assert done.code == 2
    for word in ("f.csv, column label_0", "1000 samples", "digits has", "with_replacement=true"):
        assert word in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["f.csv"]
    done = camu("demo", "--fleet", tmp_path / "none.csv", "--out", tmp_path / "demo")
    assert done.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["f.csv"]


def test_compare_trains_a_fleet(camu: Camu, tmp_path: Path) -> None:
    write_fleet(tmp_path / "f.csv", devices=6)
    done = camu(
        "compare", "--fleet", tmp_path / "f.csv", "--schemes", "fedavg,camu", "--seeds", 2,
        "--out", tmp_path / "c", "--set", "run.rounds=2", "--set", "machine.workers=1", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert [row["scheme"] for row in json.loads(done.out)["rows"]] == ["fedavg", "camu"]
    assert done.err.count("columns that are not used") == 1


def test_the_same_fleet_gives_the_same_weights(tmp_path: Path) -> None:
    write_fleet(tmp_path / "f.csv")
    config = small(fleet__file=str(tmp_path / "f.csv"))
    bits = {
        camu.simulate(build_world(config), camu.schemes.FedAvg()).history.weights_sha256
        for _ in range(2)
    }
    assert len(bits) == 1


def test_a_world_of_label_counts_alone_is_not_trained() -> None:
    world = build_world(small(), label_counts=np.ones((20, 10), int))
    with pytest.raises(InputError, match="built from label counts alone"):
        camu.simulate(world, camu.schemes.FedAvg())


def test_snr_without_a_fleet_is_refused(camu: Camu, tmp_path: Path) -> None:
    for command in ("plan", "run", "compare"):
        done = camu(command, "--snr", tmp_path / "snr.csv")
        assert done.code == 2
        assert "give --fleet FILE too" in done.err
