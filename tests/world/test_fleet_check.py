"""Fleet files as their owners have them: what is understood, and every problem at once."""

from __future__ import annotations

import csv
import io
import json
import random
import runpy
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.clustering import cluster_devices
from camu.config import load_config
from camu.errors import InputError
from camu.world import build_world
from camu.world.fleet_check import checked, problem_rows, repair
from camu.world.fleet_clean import read_fleet
from camu.world.fleet_columns import parse_names
from camu.world.fleet_file import parse_fleet
from camu.world.fleet_words import column_of

Camu = Callable[..., Any]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
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
    found = checked(read_fleet(write(tmp_path, german())), CONFIG)
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


def test_a_repaired_copy_is_read_and_every_repair_is_named(tmp_path: Path, camu: Camu) -> None:
    raw, copy = write(tmp_path, german()), tmp_path / "copy.csv"
    listed = camu("fleet", "check", str(raw))
    assert listed.code == 1
    assert f"camu fleet check {raw} --out" in " ".join(listed.out.split())
    done = camu("fleet", "check", str(raw), "--out", str(copy), "--json")
    assert done.code == 0
    found = json.loads(done.out)
    repaired = {one["place"] for one in found["repairs"]}
    assert {one["place"] for one in found["problems"]} <= repaired
    lines = {line["id"]: line for line in csv.DictReader(io.StringIO(copy.read_text()))}
    assert len(lines) == 38
    assert "GW-001-2" in lines
    assert "GW-006" not in lines  # nobody knows how many samples it has
    assert "GW-008" not in lines  # nor what its link is
    assert lines["GW-010"]["latitude"] == ""
    assert lines["GW-004"]["rssi_dbm"] == ""
    assert lines["GW-007"]["longitude"] == ""
    again = camu("fleet", "check", str(copy))
    assert again.code == 0, again.out + again.err
    assert "camu plan --fleet" in again.out


def test_a_header_may_be_said_to_be_a_column_in_another_unit(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("Nr;Speicher;Stärke;x;y;samples\nA;37.000,5;14;0;0;9\nB;1,5;20;0;1;9\n")
    names = parse_names("Nr=id,Speicher=battery_mwh,Stärke=power_dbm")
    cleaned = read_fleet(path, names)
    rows = cleaned.table.rows
    assert [float(row["battery_joules"]) for row in rows] == pytest.approx([133201.8, 5.4])
    assert [float(row["power_watts"]) for row in rows] == pytest.approx([10**-1.6, 0.1])
    assert any("Speicher is read as battery_joules (from mwh)" in note for note in cleaned.notes)
    with pytest.raises(InputError, match="there is no column battery_lb"):
        parse_names("Speicher=battery_lb")


def test_problems_that_are_alike_share_a_row_of_the_table(tmp_path: Path) -> None:
    rows = "".join(f"d{k},0,{k},{'fast' if k % 2 else 1e9},5\n" for k in range(1, 41))
    path = tmp_path / "f.csv"
    path.write_text("id,x,y,cpu_hz,samples\n" + rows)
    found = checked(read_fleet(path), CONFIG)
    assert len(found.problems) == 20
    ((lines, column, value, _, _),) = problem_rows(found, None)
    assert (lines, column, value) == ("2, 4, 6, 8, 10, 12, 14, 16 and 12 more", "cpu_hz", "fast")


class TestExport:
    """docs/examples/export.csv: 400 gateways as a company has them, ten of their rows wrong."""

    def test_the_file_is_as_its_script_makes_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(EXAMPLES / "make_export.py"), run_name="__main__")
        made = (tmp_path / "export.csv").read_bytes()
        assert made == (EXAMPLES / "export.csv").read_bytes()
        assert made.startswith(b"\xef\xbb\xbf")

    def test_two_commands_list_everything_and_plan(self, tmp_path: Path, camu: Camu) -> None:
        copy = tmp_path / "clean.csv"
        checked = camu("fleet", "check", str(EXAMPLES / "export.csv"), "--out", str(copy))
        assert checked.code == 0, checked.err
        rows = [line.split()[0] for line in checked.out.splitlines() if line[1:4].strip().isdigit()]
        assert rows == ["13", "42", "63", "79", "92", "122", "173"]
        for said in (
            *("line 152, column rssi_dbm: is read as not known", "line 202: the row is blank"),
            *("line 403: this is a row of totals", "Raspberry Pi Zero 2 W is read as pi-zero-2w"),
            *("ARM Cortex-A7 is no board", "201 of 400 devices have no counts of labels"),
            "2 of 400 devices have no measured uplink",
        ):
            assert said in checked.err, said
        planned = camu("plan", "--fleet", str(copy), "--json")
        assert planned.code == 0, planned.err
        plan = json.loads(planned.out)
        devices = plan["devices"]
        assert len(devices) == 398  # two are not heard, as a warning says
        assert {one["board"] for one in devices} == {"pi-4", "pi-zero-2w", "pi-3b-plus", None}
        config = CONFIG.replace({"fleet.file": str(copy), "fleet.unreachable": "leave-out"})
        links = build_world(config).links
        place = {name: k for k, name in enumerate(links.devices.ids)}
        shared = [unit for unit in plan["units"] if len(unit["members"]) > 1]
        assert len(shared) > 20
        least = config.clustering.min_link_snr_db
        for unit in shared:
            head = np.array([place[unit["leader"]]])
            own = np.array([place[name] for name in unit["members"] if name != unit["leader"]])
            assert links.hear(own, head, least).all()

    @pytest.mark.parametrize("command", ["plan", "run", "forecast", "live"])
    def test_every_command_lists_the_problems(self, command: str, camu: Camu) -> None:
        more = ["--target", "0.9"] if command == "forecast" else []
        refused = camu(command, "--fleet", str(EXAMPLES / "export.csv"), *more)
        assert refused.code == 2
        for line in (13, 42, 63, 79, 92, 122, 173):
            assert f"line {line}, column" in refused.err


def test_one_device_without_a_place_leaves_the_others_theirs(tmp_path: Path) -> None:
    rows = [f"d{k},{k % 2 * 300},{k},-70,50" for k in range(12)]
    path = tmp_path / "f.csv"
    clusters = []
    for more in ("", "lost,,,-70,50\n"):
        path.write_text("id,x,y,gain_db,samples\n" + "\n".join(rows) + "\n" + more)
        world = build_world(CONFIG.replace({"fleet.file": str(path)}))
        found = cluster_devices(world).clusters
        clusters.append({frozenset(one.members) - {12} for one in found} - {frozenset()})
    assert not world.links.uplinks_alone
    assert clusters[0] == clusters[1]
    for members in clusters[1]:
        assert len({k % 2 for k in members}) == 1


def test_a_clean_fleet_is_left_as_it_is() -> None:
    path = Path(__file__).parents[2] / "docs" / "examples" / "fleet.csv"
    cleaned = read_fleet(path)
    assert cleaned.changes == ()
    assert checked(read_fleet(path), CONFIG).problems == ()


def own(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "own.csv"
    path.write_bytes(text.encode(encoding))
    return path


FRENCH = """Adresse MAC;Nom;Ville;Latitude;Longitude;Technologie radio;Débit (kbit/s);\
Puissance (dBm);RSSI (dBm);Batterie (Wh);Nombre d'échantillons;Carte
78:9B:34:CA:F5:4F;Capteur 1;Montréal;46,1718;5,5704;Wi-Fi;12 000;14,0;-81,5;37,5;1 585;RPi 4B
1E:71:B8:8D:58:36;Capteur 2;Bourg;46,2002;5,2348;LoRa SF7;5,4;14,0;-70,5;secteur;466;Pi Zero 2
8B:63:54:9E:94:BE;Capteur 3;Bourg;46,2010;5,2351;4G;;23,0;-83,4;N.D.;2.472;Jetson Nano
Total;;;;;;;;;;4523;
"""
SPANISH = """Número de serie\tUbicación\tLatitud\tLongitud\tTecnología\tBatería (mAh)\t\
Tensión (V)\tPotencia (mW)\tMuestras\tFrecuencia CPU (MHz)
SN-1\t"Nave 1, Sector 2"\t40,4238\t-3,6885\tLTE-M\t2.600\t3,6\t100\t278\t1.500
SN-2\t"Nave 1, Sector 1"\t40,4129\t-3,6864\tZigbee\tred eléctrica\t\t50\t383\t240
"""
DUTCH = """Serienummer;Locatie;Breedtegraad;Lengtegraad;Verbinding;Accu (Wh);Metingen;Goed;Defect
GW1;Kas 1;52,01;4,36;WiFi;20;527;;
GW2;Kas 1;52,02;4,37;LoRaWAN;netstroom;801;788;13
GW3;Kas 2;52,03;4,38;WiFi;onbekend;100;90;10
Totaal;;;;;;;;
"""
EXCEL = """sep=,
"Device Name","Asset Tag","Site","GPS","Connectivity","Signal (dBm)","Battery Capacity (mAh)",\
"No. of Records","CPU",
"Gateway 1","AT-1","Plant 1, Unit B","51.54805, -0.14214","WiFi 6","-60","10,000","89,632",\
"Raspberry Pi 4B (4GB)",
"Gateway 2","AT-2","Plant 2, Unit B","51.45190, -0.07399","4G LTE","-61","AC powered","20,990",\
"Intel NUC",
"""


def test_a_french_export_with_addresses_and_spaces_between_thousands(tmp_path: Path) -> None:
    cleaned = read_fleet(own(tmp_path, FRENCH, "cp1252"))
    devices = parse_fleet(cleaned.table, None, CONFIG).devices
    assert devices.ids[0] == "78:9B:34:CA:F5:4F"
    assert devices.regions == ("Montréal", "Bourg", "Bourg")
    assert devices.link == ("wifi-n", "lora-sf7", "lte")
    assert devices.board == ("pi-4", "pi-zero-2w", "jetson-nano")
    assert devices.samples.tolist() == [1585, 466, 2472]
    assert devices.rate_bps[:2].tolist() == [12e6, 5400.0]
    assert devices.battery_joules[0] == 37.5 * 3600
    assert np.isnan(devices.battery_joules[1:]).all()


def test_a_spanish_export_with_charges_and_volts(tmp_path: Path) -> None:
    fleet = parse_fleet(own(tmp_path, SPANISH, "utf-16"), None, CONFIG)
    devices = fleet.devices
    assert devices.battery_joules[0] == pytest.approx(2.6 * 3.6 * 3600)
    assert devices.cpu_hz.tolist() == pytest.approx([1.5e9, 240e6])
    assert devices.power_watts[0] == pytest.approx(0.1)
    assert devices.link == ("lte", "802.15.4")
    assert devices.regions[0] == "Nave 1, Sector 2"
    assert fleet.origin is not None
    assert fleet.origin.longitude == pytest.approx(-3.68745)


def test_a_dutch_export_whose_counts_of_labels_add_up_to_the_samples(tmp_path: Path) -> None:
    fleet = parse_fleet(own(tmp_path, DUTCH), None, CONFIG)
    assert fleet.devices.label_counts[1:].tolist() == [[788, 13], [90, 10]]
    assert fleet.devices.samples.tolist() == [527, 801, 100]
    said = "\n".join(fleet.notes)
    assert "LoRaWAN is read as lora-sf9" in said
    assert "Goed is read as label_Goed (such columns add up to the samples)" in said


def test_a_spreadsheet_with_a_line_on_its_separator_and_places_in_one_cell(tmp_path: Path) -> None:
    cleaned = read_fleet(own(tmp_path, EXCEL))
    row = cleaned.table.rows[0]
    assert (row["id"], row["latitude"], row["longitude"]) == ("AT-1", "51.54805", "-0.14214")
    assert float(row["battery_joules"]) == pytest.approx(10 * 3.7 * 3600)
    assert (row["samples"], row["link"], row["board"]) == ("89632", "wifi-ax", "pi-4")
    assert cleaned.table.rows[1]["battery_joules"] == "mains"
    said = "\n".join(cleaned.notes)
    assert "Intel NUC is no board that camu knows" in said
    assert "a battery in mAh is taken to have 3.7 V" in said


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("37.000", "48,5"), (37000.0, 48.5)),  # points divide thousands where commas are decimal
        (("37.000", "48.5"), (37.0, 48.5)),
        (("37,000", "48.5"), (37000.0, 48.5)),
        (("1.234,5", "7"), (1234.5, 7.0)),
        (("1,234.5", "7"), (1234.5, 7.0)),
        (("12\u202f000", "3,25"), (12000.0, 3.25)),
        (("12'000", "3.25"), (12000.0, 3.25)),
        (("37 Wh", "2 kJ"), (37 * 3600.0, 2000.0)),
    ],
)
def test_numbers_are_read_in_the_style_of_their_column(
    tmp_path: Path, cells: tuple[str, str], expected: tuple[float, float]
) -> None:
    rows = "".join(f"d{k};{k};0;{cell};9\n" for k, cell in enumerate(cells))
    path = own(tmp_path, "id;x;y;battery (J);samples\n" + rows)
    found = parse_fleet(path, None, CONFIG).devices.battery_joules
    assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("written", "degrees"),
    [("48,135", 48.135), ("48.135° N", 48.135), ("48°8'6\"N", 48.135), ("S 3°30'", -3.5)],
)
def test_degrees_are_read_however_they_are_written(
    tmp_path: Path, written: str, degrees: float
) -> None:
    quoted = written.replace('"', '""')
    path = own(tmp_path, f'id;Breite;Länge;samples\na;"{quoted}";11,5;9\n')
    assert float(read_fleet(path).table.rows[0]["latitude"]) == pytest.approx(degrees)


def test_units_that_are_not_written_are_taken_to_be_likely_ones_or_nothing(tmp_path: Path) -> None:
    path = own(
        tmp_path, "ID,X,Y,Tx Power,Clock,Battery,Samples\na,0,0,14,1.5,80,9\nb,1,0,20,2,mains,9\n"
    )
    cleaned = read_fleet(path)
    row = cleaned.table.rows[0]
    assert float(row["power_watts"]) == pytest.approx(10 ** (1.4 - 3))
    assert float(row["cpu_hz"]) == 1.5e9
    assert row["battery_joules"] == ""  # percent, Wh or mAh
    assert cleaned.table.rows[1]["battery_joules"] == "mains"
    said = "\n".join(cleaned.notes)
    assert "Tx Power is read as power_watts (taken to be in dBm)" in said
    assert "no unit is given, so it is not used" in said


def test_a_gateway_s_list_of_lora_devices_names_their_spreading_factors(tmp_path: Path) -> None:
    text = "dev_eui,latitude,longitude,spreading_factor,rssi,snr,samples\n"
    path = own(tmp_path, text + "70B3,47.3,8.5,7,-90,5,20\n70B4,47.3,8.6,12,,-3.5,20\n")
    rows = read_fleet(path).table.rows
    assert [row["link"] for row in rows] == ["lora-sf7", "lora-sf12"]
    assert [(row["rssi_dbm"], row["snr_db"]) for row in rows] == [("-90", ""), ("", "-3.5")]


def test_titles_above_the_header_and_rows_of_other_lengths_are_said(tmp_path: Path) -> None:
    text = "Devices of the plant\n\nid,x,y,samples,,\na,0,0,5,,\nb,1,0\nc,1,1,6,7,8,9\nd,2,0,4\n"
    found = checked(read_fleet(own(tmp_path, text)), CONFIG)
    assert [(one.row, one.column) for one in found.problems] == [(1, ""), (2, "")]
    assert "3 cells for the 4 columns of the header" in found.problems[0].text
    assert "what stands above the header in line 3 is left out" in "\n".join(found.notes)
    left, _ = repair(found, CONFIG)
    assert [row["id"] for row in left.cleaned.table.rows] == ["a", "d"]


def test_all_missing_columns_are_named_with_how_to_say_which_they_are(
    tmp_path: Path, camu: Camu
) -> None:
    path = own(tmp_path, "Kasten;gut;schlecht\nA;5;6\nB;7;8\n")
    done = camu("fleet", "check", str(path))
    assert done.code == 2
    for words in (
        *("column id: is missing", "columns label_0, label_1, ...: are missing"),
        *("columns x and y: are missing", '--map "Kasten=id"'),
        '--map "gut=label_gut,schlecht=label_schlecht"',
    ):
        assert words in done.err
    shown = camu("fleet", "check", str(path), "--map", "Kasten=id,gut=samples,schlecht=distance_m")
    assert shown.code == 0
    assert "--map 'Kasten=id,gut=samples,schlecht=distance_m' --out clean.csv" in " ".join(
        shown.out.split()
    )


def test_keys_of_json_are_matched_as_headers_are(tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    row = {"deviceId": "a", "lat": 48.1, "lng": 11.5, "connectivity": "wifi", "battery (Wh)": 2}
    path.write_text(json.dumps([{**row, "samples": 5}]))
    assert read_fleet(path).table.rows[0] == {
        "id": "a", "latitude": 48.1, "longitude": 11.5, "link": "wifi-n",
        "battery_joules": "7200.0", "samples": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("Seriennummer", "id"),
        ("Nombre d'échantillons", "samples"),
        ("No. of Records", "samples"),
        ("N° de série", "id"),
        ("Puissance d'émission [dBm]", "power_watts"),
        ("tx_power_dbm", "power_watts"),
        ("Frecuencia de CPU (MHz)", "cpu_hz"),
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


def test_an_unused_column_of_duty_cycles_names_the_key(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("id,x,y,link,Duty Cycle (%),samples\na,0,0,lora-sf7,1,5\nb,1,0,lora-sf7,10,5\n")
    said = "\n".join(parse_fleet(path, None, CONFIG).notes)
    assert "columns that are not used: Duty Cycle (%)" in said
    assert "column Duty Cycle (%): radio.duty_cycle is that of all LoRa devices" in said


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


def test_ten_thousand_rows_are_listed_in_seconds(tmp_path: Path) -> None:
    """Every seventh row has a wrong count and every eleventh an unknown link."""
    rows = [HEAD]
    for k in range(10_000):
        labels = "-3;20" if k % 7 == 0 else f"{k % 50};20"
        funk = "Brieftaube" if k % 11 == 0 else "WLAN"
        rows.append(
            f"GW-{k};Halle {k % 9};48,{k:05};11,{k:05};-80,5;14;Netz;1500;{funk};{k % 50 + 20};"
            + labels
        )
    path, began = write(tmp_path, "\n".join(rows) + "\n"), time.process_time()
    found = checked(read_fleet(path), CONFIG)
    left, _ = repair(found, CONFIG)
    assert time.process_time() - began < 5
    wrong = {(k, "label_0") for k in range(0, 10_000, 7)}
    wrong |= {(k, "link") for k in range(0, 10_000, 11)}
    assert {(one.row, one.column) for one in found.problems} == wrong
    assert len(left.cleaned.table.rows) == 10_000 - len(range(0, 10_000, 11))


@pytest.mark.slow
def test_fuzzed_fleets_are_read_or_refused(tmp_path: Path) -> None:
    """5 000 damaged files: none ends in anything but a table or an InputError."""
    clean, dice = german(6, dirty=False), random.Random(0)
    letters = ";,.\t\"'-+0159eEäµ\x00\ufeffNa \n"
    read = refused = 0
    for number in range(5000):
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
        if number % 10 == 0:
            with suppress(InputError):
                assert not repair(checked(read_fleet(path), CONFIG), CONFIG)[0].problems
    assert read > 100
    assert refused > 100
