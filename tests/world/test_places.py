"""Places by latitude and longitude, several base stations, and measured uplinks of any kind."""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.arrays import decibels
from camu.clustering import cluster_devices
from camu.config import Config, load_config
from camu.errors import InputError
from camu.planning.prices import unit_costs
from camu.world import World, build_world, noise_watts, read_fleet
from camu.world.places import Origin, read_stations
from helpers.small_fleets import device_gain

PAPER = load_config(preset="paper")


def fleet(tmp_path: Path, text: str, config: Config = PAPER, **keys: Any) -> World:
    (tmp_path / "f.csv").write_text(text)
    changes = {f"fleet.{key}": value for key, value in keys.items()}
    return read_fleet(tmp_path / "f.csv", config=config.replace(changes))


def on_the_earth(latitude: float, longitude: float) -> np.ndarray:
    """Metres from the centre of the earth, of a point on the WGS 84 ellipsoid."""
    a, f = 6_378_137.0, 1 / 298.257223563
    e2 = f * (2 - f)
    phi, lam = math.radians(latitude), math.radians(longitude)
    n = a / math.sqrt(1 - e2 * math.sin(phi) ** 2)
    return np.array(
        [
            n * math.cos(phi) * math.cos(lam),
            n * math.cos(phi) * math.sin(lam),
            n * (1 - e2) * math.sin(phi),
        ]
    )


@given(st.floats(-70, 70), st.floats(-180, 180), st.floats(-0.02, 0.02), st.floats(-0.02, 0.02))
def test_distances_are_those_on_the_ellipsoid(
    latitude: float, longitude: float, north: float, east: float
) -> None:
    """Up to two kilometres away, the plane is right to a part in a thousand."""
    x, y = Origin(latitude, longitude).metres(
        np.array([latitude + north]), np.array([longitude + east])
    )
    there, here = (
        on_the_earth(latitude + north, longitude + east),
        on_the_earth(latitude, longitude),
    )
    distance = float(np.linalg.norm(there - here))
    assert math.hypot(float(x[0]), float(y[0])) == pytest.approx(distance, rel=1e-3, abs=1e-3)
    assert (float(x[0]) > 0) == (east > 0) or abs(east) < 1e-9
    assert (float(y[0]) > 0) == (north > 0) or abs(north) < 1e-9


def test_a_fleet_in_degrees_has_the_distances_of_one_in_metres(tmp_path: Path) -> None:
    text = "id,lat,lon,z,samples\na,48.1,11.5,2,9\nb,48.101,11.5,2,9\nc,48.1,11.502,2,9\n"
    world = fleet(tmp_path, text)
    a, b, c = world.devices.positions
    assert np.linalg.norm(a - b) == pytest.approx(111.2, abs=0.2)  # a thousandth of a degree
    assert np.linalg.norm(a - c) == pytest.approx(148.9, abs=0.3)
    assert a[2] == 2.0
    (note,) = world.notes
    assert "in metres east and north of the middle of the fleet" in note


def test_a_fleet_across_the_date_line_stays_together(tmp_path: Path) -> None:
    world = fleet(tmp_path, "id,lat,lon,samples\na,0,179.999,9\nb,0,-179.999,9\n")
    a, b = world.devices.positions
    assert np.linalg.norm(a - b) == pytest.approx(222.6, abs=0.1)


def test_base_stations_by_latitude_and_the_best_one_serves(tmp_path: Path) -> None:
    stations = tmp_path / "s.csv"
    stations.write_text("id,latitude,longitude,z\nwest,48.1,11.49,20\neast,48.1,11.51,20\n")
    text = "id,lat,lon,samples\na,48.1,11.491,9\nb,48.1,11.509,9\nc,48.1,11.508,9\n"
    world = fleet(tmp_path, text, base_station_file=str(stations), unreachable="keep")
    assert world.notes == ()
    assert world.links.serving.tolist() == [0, 1, 1]
    alone = []
    for row in world.base_stations:
        config = PAPER.replace({"fleet.base_station": row.tolist()})
        alone.append(fleet(tmp_path, text, config, unreachable="keep").links.uplink_gain)
    assert world.links.uplink_gain == pytest.approx(np.maximum(*alone), rel=1e-12)
    assert (world.links.uplink_gain > alone[0])[1:].all()


def test_base_stations_of_regions_and_their_own_shadowing(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(
        json.dumps([{"id": "a", "x": -50, "y": 0, "z": 10}, {"id": "b", "x": -50, "y": 0, "z": 10}])
    )
    base = load_config(preset="demo", settings=["radio.shadowing_db=8"])
    one = build_world(base, label_counts=np.ones((20, 2), int))
    both = base.replace({"fleet.base_station_file": str(tmp_path / "s.json")})
    two = build_world(both, label_counts=np.ones((20, 2), int))
    assert (two.links.uplink_gain >= one.links.uplink_gain).all()
    assert (two.links.uplink_gain > one.links.uplink_gain).any()  # a second draw
    assert two.base_stations.shape == (2, 3)


def test_the_report_draws_each_leader_to_its_station(tmp_path: Path) -> None:
    from camu.report.rows import plan_rows
    from camu.schemes import FedAvg

    (tmp_path / "s.csv").write_text("id,x,y,z\na,-50,0,10\nb,60,0,10\n")
    text = "id,x,y,samples\nleft,-40,0,9\nright,50,0,9\n"
    world = fleet(tmp_path, text, base_station_file=str(tmp_path / "s.csv"))
    tables = plan_rows(
        FedAvg().plan(world).to_dict(world), world.base_stations.tolist(), world.links
    )
    assert len(tables["station"]) == 2
    assert [(row["x"], row["x2"]) for row in tables["links"]] == [(-40.0, -50.0), (50.0, 60.0)]
    assert "base station" in world._repr_html_()


BAD_STATIONS = {
    "nothing": ("", ["is empty"]),
    "no rows": ("id,x,y\n", ["0 base stations"]),
    "no id": ("x,y\n1,2\n", ["column id"]),
    "unknown": ("id,x,y,hight\na,1,2,3\n", ["column hight", "is not known"]),
    "no place": ("id,x,y\na,,\n", ["line 2", "give x and y"]),
    "half": ("id,x,y\na,1,\n", ["line 2", "column y"]),
    "both": ("id,x,y,lat,lon\na,1,2,3,4\n", ["line 2", "or latitude and longitude"]),
    "degrees": ("id,lat,lon\na,3,4\n", ["line 2", "column latitude", "placed in metres"]),
    "text": ("id,x,y\na,1,two\n", ["line 2", "column y", "'two'"]),
    "nan": ("id,x,y\na,1,nan\n", ["line 2", "column y", "finite"]),
    "huge": ("id,x,y\na,1,1e300\n", ["line 2", "column y", "1e+07 m"]),
    "twice": ("id,x,y\na,1,2\na,3,4\n", ["line 3", "column id", "line 2"]),
    "cut short": ("id,x,y\na,1\n", ["line 2", "2 cells"]),
    "many": ("id,x,y\n" + "".join(f"s{k},{k},0\n" for k in range(201)), ["201", "at most 200"]),
    "not UTF-8": (b"id,x,y\n\xff,1,2\n", ["not UTF-8"]),
}


@pytest.mark.parametrize("case", BAD_STATIONS)
def test_malformed_stations_are_refused(
    camu: Callable[..., Any], tmp_path: Path, case: str
) -> None:
    content, words = BAD_STATIONS[case]
    path = tmp_path / "s.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    out = ("--csv", tmp_path / "plan.csv")
    done = camu("plan", "--preset", "demo", "--set", f"fleet.base_station_file={path}", *out)
    assert done.code == 2, done.err
    for word in ("s.csv", *words):
        assert word in done.err, done.err
    assert [found.name for found in tmp_path.iterdir()] == ["s.csv"]


def test_a_station_on_another_continent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("id,lat,lon\nfar,48,-11\n")
    with pytest.raises(InputError, match=r"line 2, column latitude: .* km from the middle"):
        read_stations(tmp_path / "s.csv", Origin(48.0, 11.0))


def test_snr_and_received_power_are_gains_at_the_power_of_the_device(tmp_path: Path) -> None:
    text = (
        "id,gain_db,snr_db,rssi_dbm,power_watts,samples\n"
        "a,-90,,,0.2,9\nb,,17,,0.2,9\nc,,,-80,0.2,9\nd,,17,,,9\n"
    )
    world = fleet(tmp_path, text)
    noise = noise_watts(PAPER.radio)
    gains = world.links.uplink_gain
    assert gains[0] == pytest.approx(1e-9)
    assert gains[1] == pytest.approx(10**1.7 * noise / 0.2)
    assert gains[2] == pytest.approx(1e-11 / 0.2)  # -80 dBm are 1e-11 W
    assert decibels(world.links.uplink_snr())[[1, 3]] == pytest.approx([17, 17])
    assert decibels(world.links.uplink_snr())[2] == pytest.approx(10 * math.log10(1e-11 / noise))


def test_extra_columns_are_ignored_with_a_note(tmp_path: Path) -> None:
    world = fleet(tmp_path, "id,x,y,samples,serial,regoin\na,0,0,3,77,I\nb,1,0,3,78,II\n")
    (note,) = world.notes
    assert "columns that are not used: serial, regoin (did you mean `region`?)" in note
    assert note in world.warnings()
    assert world.devices.regions == ("", "")


def test_without_positions_and_matrix_uplinks_alone_make_clusters(tmp_path: Path) -> None:
    near, far = (
        [f"n{k},{40 + 0.1 * k},50" for k in range(6)],
        [f"f{k},{10 + 0.1 * k},50" for k in range(6)],
    )
    world = fleet(tmp_path, "id,snr_db,samples\n" + "\n".join(near + far) + "\n")
    assert world.links.blind
    power, note = world.notes
    assert "12 devices have a measured uplink and no power_watts" in power
    assert "12 of 12 devices have no position" in note
    assert "clustered by their uplinks alone" in note
    clusters = cluster_devices(world).clusters
    for cluster in clusters:
        assert len({k < 6 for k in cluster.members}) == 1
    assert len(clusters) < 12
    gains = world.links.uplink_gain
    assert device_gain(world.links, [0], [7])[0, 0] == gains[7]  # the weaker of the two uplinks
    assert device_gain(world.links, [7], [0])[0, 0] == gains[7]
    members = [cluster.members for cluster in clusters]
    leaders = [cluster.leader for cluster in clusters]
    power = world.devices.power_watts[leaders]
    costs = unit_costs(world, members, leaders, power, 700_160, 21_880)
    assert np.isfinite(costs.gather_seconds).all()


def test_a_fleet_with_some_positions_uses_them(tmp_path: Path) -> None:
    text = "id,x,y,snr_db,samples\na,0,0,,9\nb,5,0,,9\nc,,,20,9\n"
    world = fleet(tmp_path, text)
    known = fleet(tmp_path, "id,x,y,samples\na,0,0,9\nb,5,0,9\n")
    gains = device_gain(world.links, [0, 1, 2], [0, 1, 2])
    assert gains[0, 1] == device_gain(known.links, [0], [1])[0, 0]
    assert gains[0, 2] == min(world.links.uplink_gain[[0, 2]])
    assert np.isfinite(gains).all()
    assert "2 of 3 devices have no measured uplink" in world.notes[1]
    assert "1 of 3 devices have no position" in world.notes[2]


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def test_the_500_gateways_are_as_their_script_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "make_gateways.py"), run_name="__main__")
    for name in ("gateways.csv", "stations.csv"):
        assert (tmp_path / name).read_bytes() == (EXAMPLES / name).read_bytes()
        assert (EXAMPLES / name).stat().st_size < 60_000


def test_the_500_gateways_make_a_world() -> None:
    stations = {"fleet.base_station_file": str(EXAMPLES / "stations.csv")}
    world = read_fleet(EXAMPLES / "gateways.csv", config=PAPER.replace(stations))
    assert world.devices.count == 499
    assert world.left_out == ("gw-417",)
    assert world.labels == tuple(range(10))
    assert set(world.links.serving.tolist()) == {0, 1, 2}
