"""Fleet files: what is read, what defaults fill in, and errors that name row, column and fix."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.config import Config, load_config
from camu.errors import InputError
from camu.world import build_world, read_fleet
from camu.world.fleet_file import Fleet, parse_fleet

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CONFIG = Config()

GOOD = """id,x,y,label_0,label_1
a,0,0,5,5
b,3,4,0,9
c,1,2,7,0
"""


def read(
    tmp_path: Path, content: str | bytes, snr: str | None = None, name: str = "f.csv"
) -> Fleet:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    snr_path = None
    if snr is not None:
        snr_path = tmp_path / "snr.csv"
        snr_path.write_text(snr)
    return parse_fleet(path, snr_path, CONFIG)


def test_a_csv_with_positions(tmp_path: Path) -> None:
    fleet = read(tmp_path, GOOD)
    devices = fleet.devices
    assert devices.ids == ("a", "b", "c")
    assert devices.positions.tolist() == [[0, 0, 0], [3, 4, 0], [1, 2, 0]]
    assert devices.label_counts.tolist() == [[5, 5], [0, 9], [7, 0]]
    assert fleet.gains is fleet.snr_db is fleet.distances_m is None
    assert fleet.labels == (0, 1)
    assert fleet.notes == ()
    default = CONFIG.fleet
    assert (devices.power_watts == default.power_watts).all()
    assert (devices.capacitance == default.capacitance).all()
    assert ((devices.cpu_hz >= default.cpu_hz[0]) & (devices.cpu_hz <= default.cpu_hz[1])).all()
    assert np.isnan(devices.battery_joules).all()


def test_every_optional_column_and_empty_cells(tmp_path: Path) -> None:
    text = (
        "region,id,z,y,x,samples,cpu_hz,cycles_per_sample,capacitance,power_watts,"
        "max_power_watts,battery_joules\n"
        'I,"a, the first",1,2,3,10,1e9,1e6,2e-28,0.3,0.4,99\n'
        "\n"
        "II,b,,5,6,20,,,,,0.1,\n"
    )
    devices = read(tmp_path, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()).devices
    assert devices.ids == ("a, the first", "b")
    assert devices.regions == ("I", "II")
    assert devices.positions.tolist() == [[3, 2, 1], [6, 5, 0]]
    assert devices.samples.tolist() == [10, 20]
    assert devices.cpu_hz[0] == 1e9
    assert devices.cycles_per_sample.tolist() == [1e6, CONFIG.fleet.cycles_per_sample]
    assert devices.power_watts.tolist() == [0.3, 0.1]  # a default power bows to the limit
    assert devices.battery_joules[0] == 99
    assert np.isnan(devices.battery_joules[1])


def test_labels_in_the_order_of_their_numbers_or_as_written(tmp_path: Path) -> None:
    columns = ["label_10", "label_9", "label_8"]
    text = f"id,x,y,{','.join(columns)}\na,0,0,10,9,8\n"
    assert read(tmp_path, text).devices.label_counts.tolist() == [[8, 9, 10]]
    endless = "9" * 5000
    for one, other in (("label_dog", "label_cat"), (f"label_{endless}", "label_1")):
        text = f"id,x,y,{one},{other}\na,0,0,1,2\n"
        assert read(tmp_path, text).devices.label_counts.tolist() == [[1, 2]]


def test_json_has_the_same_keys(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "x": 0, "y": 0, "label_0": 5, "label_1": 5},
        {"id": 7, "x": 3.5, "y": 4, "label_0": 0, "label_1": 9, "battery_joules": None},
    ]
    devices = read(tmp_path, json.dumps(rows), name="f.json").devices
    assert devices.ids == ("a", "7")
    assert devices.positions[1].tolist() == [3.5, 4, 0]
    assert devices.label_counts.tolist() == [[5, 5], [0, 9]]


def test_measured_gains_and_snr(tmp_path: Path) -> None:
    text = "id,gain_db,distance_m,samples\na,-80,,5\nb,,70,6\n"
    fleet = read(tmp_path, text, "x,12\n12,\n")
    assert fleet.gains is not None
    assert fleet.distances_m is not None
    assert fleet.snr_db is not None
    assert fleet.gains[0] == pytest.approx(1e-8)
    assert np.isnan(fleet.gains[1])
    assert fleet.distances_m[1] == 70
    assert fleet.snr_db[0, 1] == fleet.snr_db[1, 0] == 12


@pytest.mark.parametrize(
    "snr",
    [
        "0,1,2\n1,0,3\n2,3,0\n",
        "a,b,c\n,1,2\n1,,3\n2,3,\n",
        "c,a,b\n-,2,3\n2,-,1\n3,1,-\n",
        "id,c,a,b\nc,0,2,3\na,2,0,1\nb,3,1,0\n",
    ],
)
def test_snr_matrix_with_and_without_header(tmp_path: Path, snr: str) -> None:
    matrix = read(tmp_path, GOOD, snr).snr_db
    assert matrix is not None
    assert [matrix[0, 1], matrix[0, 2], matrix[1, 2]] == [1, 2, 3]
    assert (matrix == matrix.T).all()


def test_one_device_needs_no_links_to_others(tmp_path: Path) -> None:
    fleet = read(tmp_path, "id,gain_db,samples\na,-90,5\n")
    assert fleet.devices.count == 1
    assert fleet.snr_db is None
    assert fleet.notes == ()
    assert read(tmp_path, "id,gain_db,samples\na,-90,5\n", "0\n").snr_db is not None


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


BAD = {
    "empty file": ("", ["is empty", "header"]),
    "0 devices": ("id,x,y,samples\n", ["0 devices", "at least one row"]),
    "no id": ("x,y,samples\n0,0,1\n", ["column id", "missing"]),
    "no data": ("id,x,y\na,0,0\n", ["label_0", "missing", "samples"]),
    "no place": ("id,samples\na,3\n", ["columns x and y", "gain_db", "distance_m"]),
    "x alone": ("id,x,samples\na,3,3\n", ["column y", "missing"]),
    "unknown column": ("id,x,y,sampels\na,0,0,3\n", ["column sampels meant", "Name it samples"]),
    "column twice": ("id,x,y,x,samples\na,0,0,0,3\n", ["column x", "twice"]),
    "nameless column": ("id,x,y,samples,\na,0,0,3,4\n", ["column 5", "no name"]),
    "short row": (changed("b,3,4,0,9", "b,3,4,0"), ["line 3", "4 cells", "5 columns"]),
    "text": (changed("b,3,4", "b,three,4"), ["line 3", "column x", "'three' is not a number"]),
    "decimal comma": (changed("b,3,4", 'b,"3,5,1",4'), ["line 3", "column x", "point"]),
    "nan": (changed("c,1,2", "c,1,nan"), ["line 4", "column y", "'nan'", "finite"]),
    "inf": (changed("c,1,2", "c,-inf,2"), ["line 4", "column x", "finite"]),
    "overflow": (changed("c,1,2", "c,1e999,2"), ["line 4", "column x", "finite"]),
    "far away": (changed("c,1,2", "c,1e300,2"), ["line 4", "column x", "1e+07 m"]),
    "no y": (changed("c,1,2", "c,1,"), ["line 4", "column y", "x and y"]),
    "no position": (changed("c,1,2", "c,,"), ["line 4", "column x", "position"]),
    "empty id": (changed("c,1,2", " ,1,2"), ["line 4", "column id", "empty"]),
    "duplicate id": (changed("c,1,2", "a,1,2"), ["line 4", "column id", "'a'", "line 2"]),
    "empty histogram": (
        changed("7,0", "0,0"),
        ["line 4", "label_0 to label_1", "leave the device"],
    ),
    "no samples": ("id,x,y,samples\na,0,0,0\n", ["line 2", "column samples", "no data"]),
    "negative count": (changed("7,0", "7,-1"), ["line 4", "column label_1", "-1", "whole number"]),
    "part of a sample": (changed("7,0", "7.5,0"), ["line 4", "column label_0", "7.5", "whole"]),
    "too many": (changed("7,0", "1e300,0"), ["line 4", "column label_0", "whole number"]),
    "empty count": (changed("7,0", "7,"), ["line 4", "column label_1", "empty", "0 if"]),
    "label gap": (
        "id,x,y,label_0,label_2\na,0,0,1,1\n",
        ["column label_2", "add a column label_1"],
    ),
    "wrong sum": (
        "id,x,y,samples,label_0\na,0,0,5,4\n",
        ["line 2", "column samples", "add up to 4"],
    ),
    "negative distance": (
        "id,distance_m,samples\na,-5,1\n",
        ["line 2", "column distance_m", "-5", "not negative"],
    ),
    "two places": ("id,x,y,distance_m,samples\na,0,0,5,1\n", ["column distance_m", "leave one"]),
    "positive gain": ("id,gain_db,samples\na,80,1\n", ["line 2", "column gain_db", "-80"]),
    "lowest gain": ("id,gain_db,samples\na,-999,1\n", ["line 2", "column gain_db", "-300 dB"]),
    "two uplinks": (
        "id,gain_db,snr_db,samples\na,-80,20,1\n",
        ["line 2", "column snr_db", "leave one"],
    ),
    "loud": (
        "id,rssi_dbm,power_watts,samples\na,30,0.5,1\n",
        ["line 2", "column rssi_dbm", "0.5 W", "at most 26.99"],
    ),
    "loud snr": ("id,snr_db,samples\na,250,1\n", ["line 2", "column snr_db", "power_watts"]),
    "huge snr": ("id,snr_db,samples\na,1e9,1\n", ["line 2", "column snr_db", "300 dB"]),
    "rssi as a gain": ("id,rssi_dbm,samples\na,95,1\n", ["line 2", "column rssi_dbm", "-95"]),
    "latitude": ("id,lat,lon,samples\na,91,0,1\n", ["line 2", "column latitude", "-90 and 90"]),
    "longitude": ("id,lat,lon,samples\na,0,x,1\n", ["line 2", "column longitude", "a number"]),
    "half a place": ("id,lat,lon,samples\na,5,,1\n", ["line 2", "column longitude", "neither"]),
    "no longitude": ("id,lat,samples\na,5,1\n", ["column longitude", "missing"]),
    "two planes": ("id,x,y,lat,lon,samples\na,0,0,5,5,1\n", ["x and latitude", "one of the two"]),
    "other side": (
        "id,lat,lon,samples\na,48,11,1\nb,48,11,1\nc,48,-11,1\n",
        ["line 4", "column latitude", "km from the middle", "signs"],
    ),
    "cpu": ("id,x,y,samples,cpu_hz\na,0,0,1,0\n", ["line 2", "column cpu_hz", "positive"]),
    "power": (
        "id,x,y,samples,power_watts,max_power_watts\na,0,0,1,2,1\n",
        ["line 2", "column power_watts", "max_power_watts"],
    ),
    "battery": (
        "id,x,y,samples,battery_joules\na,0,0,1,-1\n",
        ["column battery_joules", "an energy is from 0"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_fleets_name_row_column_and_fix(tmp_path: Path, case: str) -> None:
    content, words = BAD[case]
    with pytest.raises(InputError) as caught:
        read(tmp_path, content)
    message = str(caught.value)
    assert "f.csv" in message
    for word in words:
        assert word in message, message


BAD_JSON = {
    "syntax": ('[{"id": }]', ["line 1", "not valid JSON"]),
    "object": ('{"id": "a"}', ["is not a list"]),
    "numbers": ("[1]", ["item 1", "not an object"]),
    "none": ("[]", ["0 devices"]),
    "true": ('[{"id": "a", "x": true, "y": 0, "samples": 1}]', ["item 1", "column x", "true"]),
    "list": ('[{"id": "a", "x": [1], "y": 0, "samples": 1}]', ["item 1", "column x", "[1]"]),
    "nan": ('[{"id": "a", "x": NaN, "y": 0, "samples": 1}]', ["item 1", "column x", "finite"]),
    "huge": ('[{"id": "a", "x": 1%s, "y": 0, "samples": 1}]' % ("0" * 400), ["item 1", "column x"]),
    "missing": ('[{"id": "a", "x": 0, "y": 0}]', ["label_0", "samples"]),
    "no samples": (
        '[{"id": "a", "x": 0, "y": 0, "samples": 1}, {"id": "b", "x": 0, "y": 0}]',
        ["item 2", "column samples", "empty"],
    ),
    "repeated key": ('[{"id": "a", "id": "b"}]', ["id", "twice"]),
    "endless": (f'[{{"id": "a", "x": {"1" * 5000}}}]', ["not valid JSON"]),
    "id": ('[{"id": [1], "x": 0, "y": 0, "samples": 1}]', ["item 1", "column id", "[1]"]),
    "deep": ("[" * 100_000, ["nested"]),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_malformed_json_names_item_and_key(tmp_path: Path, case: str) -> None:
    content, words = BAD_JSON[case]
    with pytest.raises(InputError) as caught:
        read(tmp_path, content, name="f.json")
    for word in ("f.json", *words):
        assert word in str(caught.value), str(caught.value)


BAD_SNR = {
    "asymmetric": (
        "0,1,2\n1,0,3\n2,4,0\n",
        ["row b, column c: 3 dB", "row c, column b", "4 dB", "mean 3.5"],
    ),
    "rows": ("0,1,2\n1,0,3\n", ["2 rows for 3 devices", "3 rows of 3"]),
    "cells": ("0,1,2\n1,0\n2,3,0\n", ["line 2", "2 cells for 3 devices"]),
    "text": ("0,1,2\n1,0,x\n2,3,0\n", ["line 2", "column c", "x is not an SNR"]),
    "empty": ("0,1,2\n1,0,\n2,3,0\n", ["line 2", "column c", "an empty cell"]),
    "nan": ("0,1,2\n1,0,nan\n2,3,0\n", ["line 2", "column c", "nan"]),
    "inf": ("0,1,-inf\n1,0,3\n-inf,3,0\n", ["line 1", "column c", "-200"]),
    "stranger": ("a,b,d\n0,1,2\n1,0,3\n2,3,0\n", ["header", "'d'", "not a device"]),
    "twice": ("a,b,b\n0,1,2\n1,0,3\n2,3,0\n", ["header", "'c' is missing"]),
    "row order": ("id,a,b,c\na,0,1,2\nc,2,3,0\nb,1,0,3\n", ["line 3", "'c'", "'b'", "same order"]),
    "nothing": ("", ["0 rows"]),
}


@pytest.mark.parametrize("case", BAD_SNR)
def test_malformed_snr_matrix_names_the_cell(tmp_path: Path, case: str) -> None:
    content, words = BAD_SNR[case]
    with pytest.raises(InputError) as caught:
        read(tmp_path, GOOD, content)
    for word in ("snr.csv", *words):
        assert word in str(caught.value), str(caught.value)


def test_missing_files_and_directories(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            parse_fleet(path, None, CONFIG)
    (tmp_path / "f.csv").write_text(GOOD)
    with pytest.raises(InputError, match=r"none\.csv: cannot be read"):
        parse_fleet(tmp_path / "f.csv", tmp_path / "none.csv", CONFIG)


@pytest.mark.slow
@given(content=st.text(max_size=200))
def test_any_text_is_read_or_refused(tmp_path_factory: Any, content: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    for text in (content, GOOD + content):
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            fleet = parse_fleet(path, None, CONFIG)
        except InputError:
            continue
        assert fleet.devices.count >= 1


def test_the_documented_examples_make_worlds() -> None:
    config = CONFIG.replace({"fleet.file": str(EXAMPLES / "fleet.csv")})
    world = build_world(config, 0)
    assert world.devices.count == 10
    assert world.federation is None
    said = [text.partition(": ")[2] for text in world.warnings()]
    assert said == [
        "2 of 10 devices have no cpu_hz; theirs is drawn from fleet.cpu_hz, 2e+08 to 2e+09 Hz",
        "3 of 10 devices have no max_power_watts; theirs is fleet.max_power_watts = 2",
        "5 of 10 devices have no battery_joules; they are taken to be on mains power",
    ]
    config = CONFIG.replace(
        {
            "fleet.file": str(EXAMPLES / "fleet.json"),
            "fleet.snr_file": str(EXAMPLES / "snr.csv"),
        },
    )
    world = build_world(config, 0)
    assert world.links.device_snr_db([0], [2])[0, 0] == 31.0
    assert 10 * np.log10(world.links.uplink_gain[:2]) == pytest.approx([-84, -118.5])
    assert np.isfinite(world.links.uplink_snr()).all()


def test_a_fleet_in_a_notebook() -> None:
    world = read_fleet(EXAMPLES / "fleet.csv")
    assert world.devices.count == 10
    assert world.config.fleet.file == str(EXAMPLES / "fleet.csv")
    assert world.config.replace({"fleet.file": None}) == load_config()
    measured = read_fleet(EXAMPLES / "fleet.json", EXAMPLES / "snr.csv", CONFIG)
    assert measured.links.device_snr_db([0], [2])[0, 0] == 31.0
    assert measured.config.data == CONFIG.data


def test_label_counts_replace_those_of_the_file() -> None:
    config = CONFIG.replace({"fleet.file": str(EXAMPLES / "fleet.csv")})
    world = build_world(config, label_counts=np.full((10, 3), 7))
    assert world.devices.label_counts.tolist() == [[7, 7, 7]] * 10


@pytest.mark.slow
def test_20_000_devices_are_read(tmp_path: Path) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    places = generator.uniform(-500, 500, size=(20_000, 2))
    counts = generator.integers(1, 90, size=(20_000, 10))
    labels = ",".join(f"label_{label}" for label in range(10))
    lines = [
        f"d{k},{x:.3f},{y:.3f},1.2e9,{','.join(map(str, row))}"
        for k, ((x, y), row) in enumerate(zip(places, counts.tolist(), strict=True))
    ]
    path = tmp_path / "large.csv"
    path.write_text(f"id,x,y,cpu_hz,{labels}\n" + "\n".join(lines))
    devices = parse_fleet(path, None, CONFIG).devices
    assert (devices.label_counts == counts).all()
    assert devices.positions[:, :2] == pytest.approx(places, abs=1e-3)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("harvest_watts", "-1", "a power is from 0 to 1e+06 W"),
        ("harvest_watts", "1e20", "a power is from 0 to 1e+06 W"),
        ("battery_joules", "-1", "an energy is from 0 to 1e+15 J"),
        ("battery_joules", "1e30", "an energy is from 0 to 1e+15 J"),
    ],
)
def test_the_limits_of_a_column_are_those_of_its_key(
    tmp_path: Path, column: str, value: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, f"id,x,y,label_0,{column}\na,0,0,5,{value}\n")
    assert f"column {column}" in str(caught.value)
    assert said in str(caught.value)
    with pytest.raises(InputError, match=f"fleet.{column}"):
        CONFIG.replace({f"fleet.{column}": float(value)})


def test_a_name_that_is_not_utf_8_is_refused_with_the_fix(tmp_path: Path) -> None:
    path = os.fsdecode(bytes(tmp_path) + b"/\xff.csv")
    Path(path).write_text(GOOD)
    with pytest.raises(InputError, match=r"fleet\.file = .*the name is not UTF-8; rename the file"):
        read_fleet(path)
