"""`camu fleet import`: path gains of DeepMIMO and Sionna RT become files that camu plans."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.config import load_config
from camu.errors import InputError
from camu.world import noise_watts, read_fleet
from camu.world.ray_tracers import read_traced

Camu = Callable[..., Any]
PLACES = np.array([[0.0, 1.0, 1.5], [8.0, 2.0, 1.5], [4.0, 9.0, 1.5]])


def coefficients(seed: int, receivers: int, transmitters: int, scale: float = 1e-4) -> np.ndarray:
    """As paths.cir() gives them: rx, rx_ant, tx, tx_ant, paths, time steps."""
    draw = np.random.default_rng(seed)
    shape = (receivers, 2, transmitters, 4, 5, 3)
    return scale * (draw.normal(size=shape) + 1j * draw.normal(size=shape))


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_sionna_coefficients_become_gains_and_an_snr_matrix(camu: Camu, tmp_path: Path) -> None:
    a, between = coefficients(1, 3, 2), coefficients(2, 3, 3)
    stations = np.array([[0.0, 0.0, 20.0], [9.0, 9.0, 20.0]])
    np.savez(tmp_path / "up.npz", a=a, rx_pos=PLACES, tx_pos=stations)
    np.savez(tmp_path / "d2d.npz", a_real=between.real, a_imag=between.imag)
    done = camu(
        "fleet", "import", tmp_path / "up.npz", "--between", tmp_path / "d2d.npz",
        "--samples", 40, "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.err == ""
    assert "3 devices" in done.out
    written = rows(tmp_path / "out" / "fleet.csv")
    for k, row in enumerate(written):
        best = max(
            sum(abs(a[k, i, s, j, p, t]) ** 2 for i in range(2) for j in range(4)
                for p in range(5) for t in range(3)) / 6
            for s in range(2)
        )  # fmt: skip
        assert float(row["gain_db"]) == pytest.approx(10 * np.log10(best), abs=1e-5)
        assert [float(row[axis]) for axis in "xyz"] == PLACES[k].tolist()
        assert row["samples"] == "40"
    config = load_config()
    config = config.replace({"fleet.base_station_file": str(tmp_path / "out" / "stations.csv")})
    world = read_fleet(tmp_path / "out" / "fleet.csv", tmp_path / "out" / "snr.csv", config)
    power, noise = config.fleet.power_watts, noise_watts(config.radio)
    one, other = (
        sum(abs(between[k, i, s, j, p, t]) ** 2 for i in range(2) for j in range(4)
            for p in range(5) for t in range(3)) / 6
        for k, s in ((0, 2), (2, 0))
    )  # fmt: skip
    expected = 10 * np.log10(np.sqrt(one * other) * power / noise)
    assert world.links.device_snr_db([0], [2])[0, 0] == pytest.approx(expected, abs=1e-3)
    assert world.base_stations.tolist() == stations.tolist()
    plan = ("plan", "--fleet", tmp_path / "out" / "fleet.csv", "--json")
    assert camu(*plan, "--snr", tmp_path / "out" / "snr.csv").code == 0


def test_deepmimo_powers_are_summed_over_paths_and_blocked_users_left_out(
    camu: Camu, tmp_path: Path
) -> None:
    power = np.array([[-80.0, -90.0, np.nan], [np.nan] * 3, [-100.0, np.nan, np.nan]])
    np.savez(tmp_path / "d.npz", power=power, rx_pos=PLACES, tx_pos=[0.0, 0.0, 30.0])
    done = camu("fleet", "import", tmp_path / "d.npz", "--samples", 9, "--out", tmp_path / "o")
    assert done.code == 0, done.err
    assert "1 of 3 devices have no path and are left out: device-1" in done.err
    first, second = rows(tmp_path / "o" / "fleet.csv")
    assert (first["id"], second["id"]) == ("device-0", "device-2")
    assert float(first["gain_db"]) == pytest.approx(10 * np.log10(1e-8 + 1e-9), abs=1e-5)
    assert float(second["gain_db"]) == pytest.approx(-100)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("loss.npz", {"pathloss": np.array([80.0, 95.0, 70.0])}),
        ("stations.npz", {"gain_db": np.array([[-80.0, -85], [-99, -95], [-70, np.nan]])}),
        ("power.npz", {"power": np.array([[[-80.0], [-99], [-70]], [[-85], [-95], [np.nan]]])}),
        ("gain.npy", np.array([1e-8, 10**-9.5, 1e-7])),
        ("a.npy", np.sqrt([1e-8, 10**-9.5, 1e-7]).astype(complex).reshape(3, 1, 1, 1, 1)),
        ("loss.csv", "rx,pathloss_db\na,80\nb,95\nc,70\n"),
        ("both.csv", "rx,tx,gain_db\na,0,-80\na,1,-85\nb,0,\nb,1,-95\nc,0,-70\nc,1,nan\n"),
    ],
)
def test_every_format_gives_the_same_gains(tmp_path: Path, name: str, content: Any) -> None:
    path = tmp_path / name
    if isinstance(content, dict):
        np.savez(path, **content)
    elif isinstance(content, str):
        path.write_text(content)
    else:
        np.save(path, content)
    found = read_traced(path).gains.max(axis=1)
    assert found == pytest.approx([1e-8, 10**-9.5, 1e-7], rel=1e-9)


def test_gains_above_one_are_clipped_with_a_warning(camu: Camu, tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.array([0.5, 4.0, 1.0]))
    done = camu("fleet", "import", tmp_path / "g.npy", "--samples", 5, "--out", tmp_path / "o")
    assert done.code == 0, done.err
    assert "1 gains above 1 are set to 1" in done.err
    assert [float(row["gain_db"]) for row in rows(tmp_path / "o" / "fleet.csv")] == pytest.approx(
        [-3.0103, 0.0, 0.0], abs=1e-4
    )


def saved(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def one(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def announced(shape: str) -> bytes:
    """An .npy whose header promises more than the file holds."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
    return (
        b"\x93NUMPY\x01\x00" + (128 - 10).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"
    )


GOOD = saved(gain_db=np.array([-80.0, -90.0]))
BAD = {
    "empty.npz": (b"", ["cannot be read"]),
    "truncated.npz": (GOOD[:-40], ["cannot be read as numbers"]),
    "text.npz": (b"id,gain_db\na,-80\n", ["cannot be read"]),
    "objects.npy": (one(np.array([{"a": 1}], dtype=object)), ["cannot be read"]),
    "words.npz": (
        saved(gain_db=np.array(["loud"])),
        ["gain_db: an array of <U4", "an array of numbers"],
    ),
    "nothing.npz": (saved(other=np.ones(3)), ["none of the arrays"]),
    "shape.npz": (saved(gain_db=np.ones((2, 2, 2))), ["array gain_db", "1 or 2 axes"]),
    "no size.npz": (saved(gain_db=np.ones(0)), ["array gain_db", "not empty"]),
    "complex.npz": (saved(power=np.ones((2, 2), complex)), ["array power", "real"]),
    "huge.npz": (saved(gain_db=np.array([1e300])), ["array gain_db", "not a gain"]),
    "inf.npy": (one(np.array([np.inf])), ["array gain", "inf"]),
    "negative.npy": (one(np.array([-80.0])), ["negative", "gain_db"]),
    "a.npz": (saved(a=np.ones((2, 3), complex)), ["array a", "(2, 3)", "paths.cir()"]),
    "nan.npz": (saved(a=np.full((1,) * 6, np.nan + 0j)), ["array a", "nan or inf"]),
    "parts.npz": (saved(a_real=np.ones((1,) * 6), a_imag=np.ones((2,) * 6)), ["shapes differ"]),
    "places.npz": (saved(gain_db=-np.ones(2), rx_pos=np.ones((3, 3))), ["rx_pos", "(2, 3)"]),
    "far.npz": (saved(gain_db=-np.ones(1), rx_pos=[[0, np.nan, 0]]), ["rx_pos, row 0"]),
    "silent.npz": (saved(gain_db=np.array([np.nan])), ["no device has a path"]),
    "announced.npy": (announced("(1000000000000,)"), ["cannot be read"]),
    "minus.npy": (announced("(-5,)"), ["cannot be read"]),
    "headless.csv": (b"", ["is empty"]),
    "columns.csv": (b"id,x\na,3\n", ["column id and one of gain_db"]),
    "cell.csv": (b"id,gain_db\na,loud\n", ["line 2", "column gain_db", "'loud'"]),
    "big.csv": (b"id,gain_db\na,1e9\n", ["line 2", "column gain_db"]),
    "short.csv": (b"id,gain_db\na\n", ["line 2", "1 cells"]),
    "twice.csv": (b"id,gain_db\na,-8\na,-9\n", ["line 3", "'a' appears twice"]),
    "nameless.csv": (b"id,gain_db\n ,-8\n", ["line 2", "column id", "is empty"]),
    "place.csv": (b"id,x,y,z,gain_db\na,1,,2,-8\n", ["line 2", "position of 'a'"]),
    "none.csv": (b"id,gain_db\n", ["holds no gain"]),
    "latin.csv": ("id,gain_db\nä,-8\n".encode("latin-1"), ["not UTF-8"]),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_files_are_refused_and_nothing_is_written(
    camu: Camu, tmp_path: Path, name: str
) -> None:
    content, said = BAD[name]
    (tmp_path / name).write_bytes(content)
    done = camu("fleet", "import", tmp_path / name, "--samples", 5, "--out", tmp_path / "out")
    assert done.code == 2, done.err
    for word in (name, *said):
        assert word in done.err, done.err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_gains_between_other_devices_are_refused(camu: Camu, tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.array([0.5, 0.1]))
    np.save(tmp_path / "b.npy", np.ones((3, 3)))
    files = (tmp_path / "g.npy", "--between", tmp_path / "b.npy")
    done = camu("fleet", "import", *files, "--samples", 5, "--out", tmp_path / "out")
    assert done.code == 2
    assert "give 2 by 2" in done.err
    done = camu("fleet", "import", tmp_path / "no.npz", "--samples", 5, "--out", tmp_path / "out")
    assert done.code == 2
    assert "no.npz: cannot be read (No such file" in done.err
    assert not (tmp_path / "out").exists()


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.npz"
    path.write_bytes(GOOD[:place] + bytes([byte]) + GOOD[place + 1 :])
    try:
        found = read_traced(path)
    except InputError:
        return
    assert ((found.gains >= 0) & (found.gains <= 1)).all()


def test_a_plan_as_csv_says_what_the_plan_says(camu: Camu, tmp_path: Path) -> None:
    done = camu("plan", "--preset", "demo", "--json", "--csv", tmp_path / "plan.csv")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    written = rows(tmp_path / "plan.csv")
    assert len(written) == len(plan["units"])
    for number, (row, unit) in enumerate(zip(written, plan["units"], strict=True)):
        assert row["unit"] == str(number)
        assert row["leader"] == str(unit["leader"])
        assert row["members"].split(";") == [str(member) for member in unit["members"]]
        assert int(row["local_updates"]) == unit["local_updates"]
        for key in ("power_watts", "uplink_seconds", "gather_seconds", "compute_joules"):
            assert float(row[key]) == unit[key]
        share = unit["uplink_seconds"] / plan["round_seconds"]
        assert float(row["uplink_share"]) == pytest.approx(share)
        assert row["bandwidth_hz"] == "1000000.0"


def test_the_problem_of_a_plan_is_that_of_its_fleet(camu: Camu, tmp_path: Path) -> None:
    done = camu("plan", "--preset", "demo", "--json", "--problem", tmp_path / "direct.json")
    assert done.code == 0, done.err
    (tmp_path / "plan.json").write_text(done.out)
    files = ("--from-plan", tmp_path / "plan.json", "--problem", tmp_path / "problem.json")
    done = camu("allocate", *files, "--json")
    assert done.code == 0, done.err
    assert (tmp_path / "problem.json").read_text() == (tmp_path / "direct.json").read_text()
    again = camu("allocate", tmp_path / "problem.json", "--json")
    first, second = json.loads(done.out), json.loads(again.out)
    assert first["clusters"] == second["clusters"]


def test_the_problem_of_a_run(camu: Camu, tmp_path: Path) -> None:
    settings = ("--set", "run.rounds=1", "--set", "machine.workers=1", "--out", tmp_path / "run")
    assert camu("run", "--preset", "demo", "--scheme", "fedavg", *settings).code == 0
    done = camu("allocate", "--from-plan", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["clusters"]) == 20  # a cluster per device of fedavg


BAD_PLANS = {
    "not JSON": ("{", ["not valid JSON"]),
    "a list": ("[]", ["is not a plan"]),
    "no units": ('{"devices": []}', ["is not a plan"]),
}


@pytest.mark.parametrize("case", BAD_PLANS)
def test_wrong_plans_are_refused(camu: Camu, tmp_path: Path, case: str) -> None:
    content, said = BAD_PLANS[case]
    (tmp_path / "p.json").write_text(content)
    out = ("--problem", tmp_path / "out.json")
    done = camu("allocate", "--from-plan", tmp_path / "p.json", *out)
    assert done.code == 2, done.err
    for word in ("p.json", *said):
        assert word in done.err
    assert not (tmp_path / "out.json").exists()


def test_changed_plans_are_refused(camu: Camu, tmp_path: Path) -> None:
    plan = json.loads(camu("plan", "--preset", "demo", "--json").out)
    changes: dict[str, dict[str, Any]] = {
        "config_toml: is missing": {"config_toml": None},
        "key config_toml": {"config_toml": "[run]\nrounds = -1\n"},
        "key devices": {"devices": [{**one, "label_counts": "x"} for one in plan["devices"]]},
        "label_counts are not": {
            "devices": [{**one, "label_counts": [0, 0]} for one in plan["devices"]]
        },
        "the fleet has changed": {
            "config_toml": plan["config_toml"].replace("\ndevices = 20", "\ndevices = 19")
        },
    }
    for said, change in changes.items():
        (tmp_path / "p.json").write_text(json.dumps({**plan, **change}))
        done = camu("allocate", "--from-plan", tmp_path / "p.json")
        assert done.code == 2, done.err
        assert said in done.err
        assert "p.json" in done.err
    assert camu("allocate").code == 2
