"""Read a fleet from CSV or JSON; errors name the row, the column, the value and the fix."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from camu.arrays import Float64, Int64, decibels, from_decibels
from camu.config import Config
from camu.errors import InputError, suggest
from camu.seeding import derive
from camu.world.boards import default_hardware, find_board
from camu.world.devices import Devices
from camu.world.fleet_assumed import assumed
from camu.world.fleet_clean import Cleaned, is_nowhere, read_fleet
from camu.world.fleet_links import fleet_links
from camu.world.fleet_words import tokens
from camu.world.gains import noise_watts
from camu.world.link_types import LINK_NAMES, SHANNON
from camu.world.places import Origin, read_stations, to_metres
from camu.world.tables import BROKEN, LOWEST_DB, MAINS_CELL, Table, read_snr

PLACES = ("x", "y", "z", "latitude", "longitude", "distance_m", "gain_db", "snr_db", "rssi_dbm")
UPLINKS = ("gain_db", "snr_db", "rssi_dbm")  # ways to write a measured uplink
_HARDWARE = (
    *("cpu_hz", "cycles_per_sample", "capacitance", "power_watts", "max_power_watts"),
    *("battery_joules", "harvest_watts", "idle_watts", "static_watts"),
    *("sleep_watts", "solar_watts_peak"),
)
_RADIO = ("link", "rate_bps")
_KNOWN = ("id", *PLACES, "samples", "board", *_HARDWARE, *_RADIO, "region")
_LABEL = "label_"
_MOST_NAMED = 10
_STATES = {"level", "percent", "percentage", "pct", "state", "status"}  # such columns change daily

Columns = dict[str, Float64]  # nan where a cell is empty or the column is missing


class Fleet(NamedTuple):
    """The content of a fleet's files; nan for a device without a measurement, None without any."""

    devices: Devices
    gains: Float64 | None  # (K,) measured ||h_k||^2, antennas included
    snr_db: Float64 | None  # (K, K) measured between devices, symmetric
    distances_m: Float64 | None  # (K,) to the base station, where no position is known
    labels: tuple[int, ...] | None = None  # class of each label column; None: samples only
    stations: Float64 | None = None  # (S, 3) base stations of fleet.base_station_file
    notes: tuple[str, ...] = ()  # what the user should know of the file
    origin: Origin | None = None  # of the metres, where places are given in degrees


def parse_fleet(
    source: str | Path | Table,
    snr_path: str | Path | None,
    config: Config,
    origin: Origin | None = None,
) -> Fleet:
    """The devices in a CSV or JSON file, or its table; the configuration gives what it leaves open.

    CPU frequencies that the file does not give are drawn from fleet.cpu_hz, as for devices in
    regions. `origin` is where on the earth the metres of a table are counted from, if that is
    known; base stations may then be given in degrees.
    """
    cleaned = Cleaned(source) if isinstance(source, Table) else read_fleet(Path(source))
    table = replace(
        cleaned.table, problems=[] if cleaned.table.problems is None else cleaned.table.problems
    )
    path = table.path
    if not table.rows:
        raise InputError(f"{path}: holds 0 devices; write at least one row below the header")
    notes = [*cleaned.notes, *_check_columns(table)]
    for row, cells in enumerate(table.rows):
        if BROKEN in cells:
            table.fail(row, "", cells[BROKEN])
    labels = _label_columns(table)
    columns = {name: table.numbers(name) for name in (*PLACES, *_HARDWARE, "rate_bps")}
    _check_places(table, columns)
    latitude, longitude = columns["latitude"], columns["longitude"]
    nowhere = np.array([is_nowhere(row) for row in table.rows])
    table.refuse_sound(nowhere, "latitude", "0,0 is in the sea; leave both empty if not known")
    if not np.isnan(latitude).all():
        origin = Origin.amid(latitude, longitude)
        columns["x"], columns["y"] = to_metres(table, origin, latitude, longitude)
    devices, more = _devices(table, columns, labels, config)
    notes += more
    gains = _gains(table, columns, devices, config)
    snr_db = None if snr_path is None else read_snr(Path(snr_path), devices.ids)
    stations = None
    if config.fleet.base_station_file is not None:
        stations = read_stations(config.fleet.base_station_file, origin)
    elif origin is not None and (gains is None or np.isnan(gains).any()):
        notes += [
            f"{path}: the base station is at fleet.base_station = "
            f"{list(config.fleet.base_station)}, in metres east and north of the middle of the "
            f"fleet (latitude {origin.latitude:.5f}, longitude {origin.longitude:.5f}); "
            "fleet.base_station_file places it by latitude and longitude"
        ]
    unknown = np.isnan(devices.positions[:, 0])
    if snr_db is None and unknown.any() and devices.count > 1:
        notes += [
            f"{path}: {int(unknown.sum())} of {devices.count} devices have no position and no SNR "
            "was measured between devices (fleet.snr_file), so "
            + ("devices are clustered by their uplinks alone, and " if unknown.mean() > 0.5 else "")
            + "a link to a device without position counts as good as the weaker of the two uplinks"
        ]
    distances_m = columns["distance_m"] if "distance_m" in table.columns else None
    # A label column stands for the class of its number, or of its place if it has a name.
    classes = (_numbers_of(labels) or tuple(range(len(labels)))) if labels else None
    return Fleet(devices, gains, snr_db, distances_m, classes, stations, tuple(notes), origin)


def _check_places(table: Table, columns: Columns) -> None:
    """Refuse a device that has no way to know its link to the base station, or several."""
    known = {name: ~np.isnan(columns[name]) for name in PLACES}
    for one, other in (("x", "y"), ("latitude", "longitude")):
        table.refuse_half(one, other, columns[one], columns[other])
    placed = known["x"] | known["latitude"]
    rule = "the row has a position too; leave one of the two empty"
    table.refuse_sound(known["distance_m"] & placed, "distance_m", rule)
    for one, other in combinations(UPLINKS, 2):
        rule = f"the row has {one} too; leave one of the two empty"
        table.refuse_sound(known[one] & known[other], other, rule)
    lost = ~placed & ~known["distance_m"]
    for name in UPLINKS:
        lost &= ~known[name]
    table.refuse_sound(
        lost,
        next((name for name in PLACES if name in table.columns), "x"),
        "give the device a position (x, y), a distance_m, or a measured gain_db, snr_db or "
        "rssi_dbm",
    )


def _gains(table: Table, columns: Columns, devices: Devices, config: Config) -> Float64 | None:
    """The measured gains, nan where a row has none; None if the file has no such column.

    An SNR is that of the whole band, or that of the link type, and a received power is that at the
    base station, both at the device's power_watts and with the antennas' combining:
    gain = snr noise / power = rssi / power.
    """
    if not any(name in table.columns for name in UPLINKS):
        return None
    power_db = decibels(devices.power_watts)
    noise_db = decibels(noise_watts(config.radio))
    types = fleet_links(devices, config.radio)
    if types is not None:
        noise_db = noise_db + decibels(types.bandwidth_hz / config.radio.bandwidth_hz)
    gains_db = columns["gain_db"]
    for name, offset_db in (("snr_db", noise_db), ("rssi_dbm", -30.0)):
        found = columns[name] + offset_db - power_db
        for row in np.flatnonzero(found > 0).tolist():
            measured = columns[name][row]
            table.fail(
                row,
                name,
                f"{measured:.15g} is more than the {devices.power_watts[row]:g} W that the "
                f"device sends with; write at most {measured - found[row]:.4g}, or correct "
                "power_watts",
            )
        table.check()
        gains_db = np.where(np.isnan(gains_db), found, gains_db)
    return from_decibels(np.maximum(gains_db, LOWEST_DB))


def _numbers_of(labels: list[str]) -> tuple[int, ...] | None:
    """The numbers in the names of label columns; None if some are names."""
    numbers = [name.removeprefix(_LABEL) for name in labels]
    if all(number.isdecimal() and len(number) < 10 for number in numbers):
        return tuple(map(int, numbers))
    return None


def _check_columns(table: Table) -> list[str]:
    """Refuse a table without what a fleet needs; returns a note on columns that are not used."""
    strange = [
        name
        for name in table.columns
        if name not in _KNOWN and not (name.startswith(_LABEL) and len(name) > len(_LABEL))
    ]
    wrong = _missing(table, strange)
    pairs = (("x", "y"), ("latitude", "longitude"))
    for one, other in (*pairs, *(pair[::-1] for pair in pairs)):
        if one in table.columns and other not in table.columns:
            wrong.append(f"column {other}: is missing; {one} alone is not a position")
    if "x" in table.columns and "latitude" in table.columns:
        wrong.append(
            "columns x and latitude: positions are written in metres or in degrees; remove the "
            "columns of one of the two"
        )
    if len(wrong) == 1:
        raise InputError(f"{table.path}, {wrong[0]}")
    if wrong:
        raise InputError("\n  ".join([f"{table.path}: columns are missing", *wrong]))
    return _unused(table, strange)


def _missing(table: Table, strange: list[str]) -> list[str]:
    """A sentence for each column that a fleet needs and the table has not."""
    found = []
    if "id" not in table.columns:
        found.append(("id", "column id: is missing; give every device a name of its own"))
    if "samples" not in table.columns and not _label_columns(table):
        words = (
            "columns label_0, label_1, ...: are missing; write the samples per label, or a column "
            "samples with their number"
        )
        found.append(("samples", words))
    if not any(name in table.columns for name in PLACES if name != "z"):
        words = (
            "columns x and y: are missing; give positions in metres (x, y, z) or in degrees "
            "(latitude, longitude), or the measured gain_db, snr_db or rssi_dbm of the uplink, or "
            "the distance to the base station (distance_m)"
        )
        found.append(("gain_db", words))
    return [words + _candidate(table, strange, name) for name, words in found]


def _candidate(table: Table, strange: list[str], name: str) -> str:
    """Which column may be the one that is missing, and how to say so."""
    typo = next((one for one in strange if suggest(one, (name,))), None)
    if typo is not None:
        return f"; is the column {typo} meant? Name it {name}"
    strange = [one for one in strange if not _STATES & set(tokens(one))]
    cells = {one: [str(row.get(one) or "").strip() for row in table.rows] for one in strange}
    if name == "samples":
        fit = [one for one in strange if all(map(str.isdecimal, filter(None, cells[one])))]
    else:
        fit = [one for one in strange if name == "id" and len(set(cells[one])) == len(table.rows)]
    if not fit:
        return ""
    said = f"is it {', or '.join(fit[:_MOST_NAMED])}? Say so: camu fleet check {table.path} --map"
    labels = ",".join(f"{one}={_LABEL}{one}" for one in fit[:_MOST_NAMED])
    more = f', or for counts of labels --map "{labels}"' if name == "samples" and fit[1:] else ""
    return f'; {said} "{fit[0]}={name}" --out clean.csv{more}'


def _unused(table: Table, strange: list[str]) -> list[str]:
    """A note on columns that mean nothing to camu; a likely typo gets a hint."""
    if not strange:
        return []
    known = (*_KNOWN, "label_0")
    hints = ["" if _STATES & set(tokens(one)) else suggest(one, known) for one in strange]
    hints = [hint.replace("; did", " (did").replace("?", "?)") for hint in hints]
    named = [name + hint for name, hint in zip(strange, hints, strict=True)][:_MOST_NAMED]
    more = f" and {len(strange) - _MOST_NAMED} more" if len(strange) > _MOST_NAMED else ""
    duty = [name for name in strange if "duty" in tokens(name)]
    words = "radio.duty_cycle is that of all LoRa devices"
    return [
        f"{table.path}: columns that are not used: {', '.join(named)}{more}",
        *(f"{table.path}, column {name}: {words}" for name in duty),
    ]


def _label_columns(table: Table) -> list[str]:
    """The label columns in the order of their labels: by number, or else as in the file."""
    names = [name for name in table.columns if name.startswith(_LABEL)]
    if (numbers := _numbers_of(names)) is None:
        return names
    ordered = sorted(zip(numbers, names, strict=True))
    for (number, before), (following, after) in pairwise(ordered):
        if following != number + 1:
            raise InputError(
                f"{table.path}, column {after}: comes after {before}; labels are numbered without "
                f"gaps: add a column {_LABEL}{number + 1}, with 0 where a device has none"
            )
    return [name for _, name in ordered]


def label_names(path: Path) -> list[str]:
    """The names of the labels in a fleet's file, in the order of their classes."""
    return [name.removeprefix(_LABEL) for name in _label_columns(read_fleet(path).table)]


def _label_counts(table: Table, labels: list[str]) -> tuple[Int64, list[str]]:
    """Samples per label, and what is assumed; with `samples` alone, all count as one label.

    Where no label of a device is counted, its samples are taken to be the mix of all others.
    """
    samples = table.counts("samples") if "samples" in table.columns else None
    if samples is not None:
        rule = "the device holds no data; leave it out or give it samples"
        table.refuse_sound(samples == 0, "samples", rule)
    if not labels:
        assert samples is not None  # the columns were checked
        return samples[:, None], []
    empty = np.array([not any(map(str.strip, _texts(row, labels))) for row in table.rows])
    unknown = empty if samples is not None else np.zeros(len(empty), dtype=bool)
    known = replace(table, rows=[{} if u else r for u, r in zip(unknown, table.rows, strict=True)])
    counts = np.column_stack([known.counts(name, unknown) for name in labels])
    totals = counts.sum(axis=1)
    span = labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"
    rule = "all counts are 0; leave the device out or give it samples"
    for row in table.sound_rows((totals == 0) & ~unknown):
        table.fail(row, span, rule)
    if samples is None:
        return counts, []
    for row in table.sound_rows((samples != totals) & ~unknown):
        table.fail(
            row,
            "samples",
            f"{samples[row]}, but the label columns add up to {totals[row]}; correct one of them, "
            "or leave the column samples out",
        )
    if not unknown.any():
        return counts, []
    if unknown.all() or not counts.sum():
        rule = "no device has counts of labels; leave the label columns out"
        table.refuse(unknown, labels[0], rule)
        return counts, []
    counts[unknown] = _shared(samples[unknown], counts.sum(axis=0))
    note = (
        f"{table.path}: {int(unknown.sum())} of {len(unknown)} devices have no counts of labels; "
        "their samples are taken to be the mix of all others, so that they are clustered by their "
        "links"
    )
    return counts, [note]


def _texts(row: dict[str, Any], names: list[str]) -> list[str]:
    return ["" if row.get(name) is None else str(row[name]) for name in names]


def _shared(samples: Int64, mix: Int64) -> Int64:
    """So many samples in the shares of a mix, in whole numbers."""
    exact = samples[:, None] * (mix / mix.sum())
    counts: Int64 = np.floor(exact).astype(np.int64)
    for row, left in enumerate((samples - counts.sum(axis=1)).tolist()):
        counts[row, np.argsort(counts[row] - exact[row], kind="stable")[:left]] += 1
    return counts


def _devices(
    table: Table, columns: Columns, labels: list[str], config: Config
) -> tuple[Devices, list[str]]:
    """The devices, and what is assumed of them; all that is wrong in the table is refused."""
    fleet = config.fleet
    x, y, z = (columns[axis] for axis in "xyz")
    drawn = derive(config.run.seed, "cpu").numpy().uniform(*fleet.cpu_hz, size=len(x))
    board = _boards(table, config)
    defaults = {name: getattr(fleet, name) for name in _HARDWARE}
    defaults |= default_hardware(config, board, drawn)
    if fleet.battery_joules is None:
        defaults["battery_joules"] = np.nan
    hardware = {
        name: np.where(np.isnan(columns[name]), defaults[name], columns[name]) for name in _HARDWARE
    }
    mains = [str(row.get("battery_joules")).strip() == MAINS_CELL for row in table.rows]
    hardware["battery_joules"] = np.where(mains, np.nan, hardware["battery_joules"])
    largest = hardware["max_power_watts"]
    rule = "is more than max_power_watts of the device; lower the one or raise the other"
    table.refuse_sound(columns["power_watts"] > largest, "power_watts", rule)
    hardware["power_watts"] = np.minimum(hardware["power_watts"], largest)  # a default is lowered
    height = np.where(np.isnan(x), np.nan, np.nan_to_num(z))
    link = _links(table, config)
    unmeasurable = ~np.isnan(columns["rate_bps"]) & np.array([name == SHANNON for name in link])
    rule = "a measured rate needs a link type: name it in the column link"
    table.refuse_sound(unmeasurable, "rate_bps", rule)
    ids, regions = table.ids(), table.texts("region")
    counts, notes = _label_counts(table, labels)
    table.check()
    devices = Devices(
        ids=ids,
        positions=np.column_stack([x, y, height]),
        regions=regions,
        label_counts=counts,
        link=link,
        board=board,
        rate_bps=columns["rate_bps"],
        **hardware,
    )
    return devices, [*notes, *assumed(table, columns, config)]


def _boards(table: Table, config: Config) -> tuple[str, ...]:
    """The boards; fleet.board where a row has none."""
    named = table.texts("board")
    for name in dict.fromkeys(filter(None, named)):
        try:
            find_board(name, "board")
        except InputError as error:
            for row in (k for k, one in enumerate(named) if one == name):
                table.fail(row, "board", str(error).removeprefix("board: "))
    wrong = {problem.row for problem in table.problems or () if problem.column == "board"}
    usual = config.fleet.board or ""
    return tuple("" if row in wrong else name or usual for row, name in enumerate(named))


def _links(table: Table, config: Config) -> tuple[str, ...]:
    """The link types; radio.link where a row has none."""
    found = tuple(name or config.radio.link for name in table.texts("link"))
    for row, name in enumerate(found):
        if name not in LINK_NAMES:
            hint = suggest(name, LINK_NAMES) or f"; use one of {', '.join(LINK_NAMES)}"
            table.fail(row, "link", f"{name}: no such link type{hint}")
    return found
