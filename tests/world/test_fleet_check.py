"""Fleet files as their owners have them: what is understood, and every problem at once."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
from camu.errors import InputError
from camu.world.fleet_check import check_fleet
from camu.world.fleet_clean import parse_names, read_fleet
from camu.world.fleet_file import parse_fleet
from camu.world.fleet_words import column_of

Camu = Callable[..., Any]
CONFIG = load_config(preset="demo", overrides={"fleet.unreachable": "keep"})
HEAD = "Seriennummer;Standort;Breite;Länge;RSSI [dBm];Sendeleistung (dBm);Akku (mWh);Takt MHz;Funk;"
HEAD += "Datensätze;label_0;label_1"


def german(rows: int = 40, dirty: bool = True) -> str:
    """An export: semicolons, decimal commas, German headers, mWh and dBm, half of the labels."""
    lines = [HEAD]
    for k in range(rows):
        labels = f"{20 + k};{20}" if k % 2 else ";"
        funk = "LoRa SF9" if k % 5 == 0 else "WLAN"
        battery = "Netz" if k % 4 == 0 else f"1.2{k % 10}0,5"
        lines.append(
            f"GW-{k:03};Halle {k % 3};48,1{k:02}5;11,5{k:02};-8{k % 10},5;14;{battery};"
            f"1500;{funk};{40 + k};{labels}"
        )
    if dirty:
        lines[3] = lines[3].replace("GW-002", "GW-001")  # an id that is there already
        lines[5] = lines[5].replace("-84,5", "+85,5")  # stronger than what was sent
        lines[7] = lines[7].replace(";46;", ";-6;")
        lines[8] = lines[8].replace("11,507", "elf")
        lines[9] = lines[9].replace("LoRa SF9", "LoRa SF99").replace("WLAN", "Brieftaube")
        lines[11] = "GW-010;Halle 1;0,0;0,0;-80,5;14;Netz;1500;WLAN;50;;"
        lines.insert(20, ";;;;;;;;;;;")
        lines.append(lines[14])  # a row that is there twice
        lines.append("Summe;;;;;;;;;4711;;")
    return "\n".join(lines) + "\n"


def write(folder: Path, text: str, encoding: str = "utf-8-sig") -> Path:
    path = folder / "raw.csv"
    path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    return path


def test_a_clean_german_export_is_read_as_its_numbers_say(tmp_path: Path) -> None:
    fleet = parse_fleet(write(tmp_path, german(dirty=False)), None, CONFIG)
    devices = fleet.devices
    assert devices.ids[:2] == ("GW-000", "GW-001")
    assert devices.power_watts == pytest.approx(10 ** ((14 - 30) / 10))
    assert devices.cpu_hz == pytest.approx(1.5e9)
    assert np.isnan(devices.battery_joules[::4]).all()  # on mains power
    assert devices.battery_joules[1] == pytest.approx(1210.5 * 3.6)
    assert fleet.gains is not None
    expected = 10 ** ((-81.5 - 30) / 10) / 10 ** ((14 - 30) / 10)
    assert fleet.gains[1] == pytest.approx(expected)
    assert (devices.link[0], devices.link[1]) == ("lora-sf9", "wifi-n")
    # Unknown labels are the mix of the others, and all samples are there.
    assert devices.label_counts.sum(axis=1).tolist() == [40 + k for k in range(40)]
    known = devices.label_counts[1::2].sum(axis=0)
    unknown = devices.label_counts[::2].sum(axis=0)
    assert unknown[0] / unknown.sum() == pytest.approx(known[0] / known.sum(), abs=0.02)
    said = "\n".join(fleet.notes)
    for words in (
        *("separated by semicolons", "decimal comma", "is read as id", "from mWh", "from dBm"),
        *("20 of 40 devices have no counts of labels", "LoRa SF9 is read as lora-sf9"),
    ):
        assert words in said, words


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_recognised(tmp_path: Path, encoding: str) -> None:
    table = read_fleet(write(tmp_path, german(4, dirty=False), encoding)).table
    assert table.columns[3] == "longitude"
    assert len(table.rows) == 4


def test_every_problem_is_listed_at_once(tmp_path: Path) -> None:
    found = check_fleet(write(tmp_path, german()), {}, CONFIG)
    where = {(found.cleaned.table.places[one.row], one.column) for one in found.problems}
    expected = {
        ("line 4", "id"), ("line 8", "samples"), ("line 9", "longitude"), ("line 10", "link"),
        ("line 12", "latitude"), ("line 43", "id"),
    }  # fmt: skip
    assert expected <= where
    assert any("totals" in note for note in found.notes)
    assert any("blank" in note for note in found.notes)
    with pytest.raises(InputError, match=r"\d+ problems in \d rows\n  line 4, column id"):
        parse_fleet(write(tmp_path, german()), None, CONFIG)


def test_a_repaired_copy_is_read_and_the_rest_is_named(tmp_path: Path, camu: Camu) -> None:
    raw, copy = write(tmp_path, german()), tmp_path / "copy.csv"
    done = camu("fleet", "check", str(raw), "--out", str(copy))
    assert done.code == 1  # what only the owner knows
    lines = list(csv.DictReader(io.StringIO(copy.read_text())))
    ids = [line["id"] for line in lines]
    assert len(set(ids)) == len(ids) == 40
    assert "GW-001-2" in ids
    assert next(line for line in lines if line["id"] == "GW-010")["latitude"] == ""
    mended = copy.read_text().replace("elf", "11.507").replace("Brieftaube", "wifi-n")
    mended = (
        mended.replace(",-6,", ",46,").replace("+85.5", "-85.5").replace("85.5,0.02", "-85.5,0.02")
    )
    copy.write_text(mended.replace("--", "-"))
    again = camu("fleet", "check", str(copy))
    assert again.code == 0, again.out + again.err
    assert "camu plan --fleet" in again.out


def test_a_clean_fleet_is_left_as_it_is() -> None:
    path = Path(__file__).parents[2] / "docs" / "examples" / "fleet.csv"
    cleaned = read_fleet(path)
    assert cleaned.changes == ()
    assert check_fleet(path, {}, CONFIG).problems == ()


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("Seriennummer", "id"),
        ("Geräte-ID", "id"),
        ("latitude", "latitude"),
        ("LAT", "latitude"),
        ("Längengrad", "longitude"),
        ("Akku [mWh]", "battery_joules"),
        ("battery_wh", "battery_joules"),
        ("Batterie in Wh", "battery_joules"),
        ("tx power dBm", "power_watts"),
        ("Datenrate (kbit/s)", "rate_bps"),
        ("numéro de série", "id"),
        ("RSSI (dBm)", "rssi_dbm"),
        ("CPU GHz", "cpu_hz"),
    ],
)
def test_headers_of_several_languages_mean_columns(header: str, column: str) -> None:
    found = column_of(header)
    assert found is not None
    assert found[0] == column


def test_units_become_those_of_camu() -> None:
    changes = {
        "Akku [mWh]": (1000.0, 3600.0), "battery_wh": (2.0, 7200.0), "power mW": (500.0, 0.5),
        "power dBm": (20.0, 0.1), "cpu GHz": (1.5, 1.5e9), "rate kbit/s": (9.6, 9600.0),
        "distance km": (1.2, 1200.0),
    }  # fmt: skip
    for header, (given, expected) in changes.items():
        found = column_of(header)
        unit = found[1] if found else None
        assert unit is not None, header
        assert unit.change(given) == pytest.approx(expected), header


def test_names_are_mapped_and_wrong_ones_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("Nr,x,y,Akku mWh,samples\nA,0,0,100,5\n")
    names = parse_names("Nr=id,Akku mWh=battery_joules")
    table = read_fleet(path, names).table
    assert table.columns[0] == "id"
    assert float(table.rows[0]["battery_joules"]) == pytest.approx(360)
    with pytest.raises(InputError, match="there is no column akku"):
        parse_names("Nr=akku")
    with pytest.raises(InputError, match="has no column Nummer"):
        read_fleet(path, {"Nummer": "id"})


@pytest.mark.slow
def test_fuzzed_fleets_are_read_or_refused(tmp_path: Path) -> None:
    """5 000 damaged files: none ends in anything but a table or an InputError."""
    clean, dice = german(6, dirty=False), random.Random(0)
    letters = ";,.\t\"'-+0159eEäµ\x00\ufeffNa \n"
    read = refused = 0
    for _ in range(5000):
        text = list(clean)
        for _ in range(dice.randint(1, 6)):
            at = dice.randrange(len(text))
            text[at : at + dice.randint(0, 4)] = dice.choices(letters, k=dice.randint(0, 3))
        path = tmp_path / "f.csv"
        path.write_bytes("".join(text).encode(dice.choice(["utf-8", "cp1252", "utf-16"]), "ignore"))
        try:
            parse_fleet(path, None, CONFIG)
            read += 1
        except InputError:
            refused += 1
    assert read > 100
    assert refused > 100
