"""Read a user's own fleet: a table of devices, and optionally the SNR measured between them.

`docs/fleet.md` describes the columns. Whatever is wrong is refused with the file, the row, the
column and the fix.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from camu.arrays import Float64, Int64, from_decibels
from camu.config import Config
from camu.errors import InputError, suggest
from camu.seeding import derive
from camu.world.devices import Devices
from camu.world.snr_file import read_snr
from camu.world.table import Table, read_table

LARGEST_COORDINATE_M = 1e7
LARGEST_COUNT = 10**12
LOWEST_DB = -300.0
_LABEL = "label_"
_PLACES = ("x", "y", "z", "distance_m", "gain_db")
# Optional columns with the name of their default in the fleet configuration.
_DEFAULTS = ("cycles_per_sample", "capacitance", "power_watts", "max_power_watts")
_KNOWN = ("id", *_PLACES, "samples", "cpu_hz", *_DEFAULTS, "battery_joules", "region")


class Fleet(NamedTuple):
    """A fleet as its files tell it; what was not measured is nan, or None if nothing was."""

    devices: Devices
    gains: Float64 | None  # (K,) measured ||h_k||^2, antennas included
    snr_db: Float64 | None  # (K, K) measured between devices, symmetric
    distances_m: Float64 | None  # (K,) to the base station, where no position is known


def parse_fleet(path: str | Path, snr_path: str | Path | None, config: Config) -> Fleet:
    """The devices in a CSV or JSON file; the configuration gives what the file leaves open.

    CPU frequencies that the file does not give are drawn from fleet.cpu_hz, as for devices in
    regions.
    """
    table = read_table(Path(path))
    if not len(table):
        raise InputError(f"{path}: holds 0 devices; write at least one row below the header")
    _check_columns(table)
    ids = _ids(table)
    positions = _positions(table)
    distances = _distances(table, positions)
    gains = _gains(table)
    _check_placed(table, positions, distances, gains)
    snr_db = _snr(table, positions, ids, snr_path)
    devices = _devices(table, ids, positions, config)
    return Fleet(devices, gains, snr_db, distances)


def _check_columns(table: Table) -> None:
    for name in table.columns:
        if name in _KNOWN or (name.startswith(_LABEL) and len(name) > len(_LABEL)):
            continue
        hint = suggest(name, (*_KNOWN, "label_0")) or "; leave it out"
        raise InputError(
            f"{table.path}, column {name}: is not known{hint}; "
            f"there are label_0, label_1, ... and {', '.join(_KNOWN)}"
        )
    if "id" not in table:
        raise InputError(
            f"{table.path}, column id: is missing; give every device a name of its own"
        )
    if "samples" not in table and not _label_columns(table):
        raise InputError(
            f"{table.path}, columns label_0, label_1, ...: are missing; write the samples per "
            "label, or a column samples with their number"
        )
    for one, other in (("x", "y"), ("y", "x"), ("z", "x")):
        if one in table and other not in table:
            raise InputError(
                f"{table.path}, column {other}: is missing; {one} alone is no position"
            )
    if not any(name in table for name in _PLACES):
        raise InputError(
            f"{table.path}, columns x and y: are missing; give positions in metres (x, y, z), or "
            "the measured gain to the base station in dB (gain_db), or the distance to it in "
            "metres (distance_m)"
        )


def _ids(table: Table) -> tuple[str, ...]:
    ids = table.text("id")
    if "" in ids:
        table.fail(ids.index(""), "id", "is empty; give every device a name of its own")
    if len(set(ids)) < len(ids):
        first: dict[str, int] = {}
        for row, name in enumerate(ids):
            if name in first:
                table.fail(
                    row,
                    "id",
                    f"{name!r} stands already in {table.rows[first[name]]}; ids must differ",
                )
            first[name] = row
    return tuple(ids)


def _positions(table: Table) -> Float64:
    positions = np.full((len(table), 3), np.nan)
    if "x" not in table:
        return positions
    for axis, name in enumerate(("x", "y", "z")):
        if name in table:
            values = table.numbers(name)
            rule = f"a coordinate lies within {LARGEST_COORDINATE_M:g} m of the origin"
            table.check(name, values, np.abs(values) > LARGEST_COORDINATE_M, rule)
            positions[:, axis] = values
    known = ~np.isnan(positions[:, :2])
    for axis, name in enumerate(("x", "y")):
        half = known.any(axis=1) & ~known[:, axis]
        table.check(name, positions[:, axis], half, "give x and y, or neither")
    flat = known.all(axis=1) & np.isnan(positions[:, 2])
    positions[flat, 2] = 0.0
    positions[~known.all(axis=1)] = np.nan
    return positions


def _distances(table: Table, positions: Float64) -> Float64 | None:
    if "distance_m" not in table:
        return None
    values = table.numbers("distance_m")
    table.check("distance_m", values, values < 0, "a distance is not negative; write it in metres")
    rule = f"a distance is at most {LARGEST_COORDINATE_M:g} m"
    table.check("distance_m", values, values > LARGEST_COORDINATE_M, rule)
    both = ~np.isnan(values) & ~np.isnan(positions[:, 0])
    table.check(
        "distance_m", values, both, "the row has a position too; leave one of the two empty"
    )
    return values


def _gains(table: Table) -> Float64 | None:
    if "gain_db" not in table:
        return None
    values = table.numbers("gain_db")
    table.check(
        "gain_db",
        values,
        values > 0,
        "a gain is at most 0 dB, since the base station cannot receive more than was sent; "
        "write a path loss of 80 dB as -80",
    )
    table.check("gain_db", values, values < LOWEST_DB, f"the lowest gain is {LOWEST_DB:g} dB")
    return from_decibels(values)


def _check_placed(
    table: Table, positions: Float64, distances: Float64 | None, gains: Float64 | None
) -> None:
    """Every device needs a way to know its link to the base station."""
    placed = ~np.isnan(positions[:, 0])
    for values in (distances, gains):
        if values is not None:
            placed |= ~np.isnan(values)
    if not placed.all():
        name = next(name for name in _PLACES if name in table)
        rule = "give the device a position (x, y), a distance_m or a gain_db"
        table.check(name, np.full(len(table), np.nan), ~placed, rule)


def _snr(
    table: Table, positions: Float64, ids: tuple[str, ...], snr_path: str | Path | None
) -> Float64 | None:
    """The measured SNR between devices; None where their positions tell the links."""
    if snr_path is not None:
        return read_snr(Path(snr_path), ids)
    unknown = np.isnan(positions[:, 0])
    if len(table) == 1 and unknown.all():
        return np.zeros((1, 1))  # no other device, no link: any number does for the diagonal
    if unknown.any():
        table.fail(
            int(np.argmax(unknown)),
            "x",
            "the device has no position, so its links to the other devices are not known; give x "
            "and y, or the measured SNR between devices in a second file (fleet.snr_file, see "
            "docs/fleet.md)",
        )
    return None


def _label_columns(table: Table) -> list[str]:
    """The label columns in the order of their labels: by number, or else as in the file."""
    names = [name for name in table.columns if name.startswith(_LABEL)]
    numbers = [name[len(_LABEL) :] for name in names]
    if not all(number.isdecimal() and len(number) < 10 for number in numbers):
        return names
    names.sort(key=lambda name: int(name[len(_LABEL) :]))
    for before, after in pairwise(names):
        expected = int(before[len(_LABEL) :]) + 1
        if int(after[len(_LABEL) :]) != expected:
            raise InputError(
                f"{table.path}, column {after}: comes after {before}; labels are numbered without "
                f"gaps: add a column {_LABEL}{expected}, with 0 where a device has none"
            )
    return names


def _counts(table: Table, name: str) -> Int64:
    values = table.numbers(name)
    table.check(name, values, np.isnan(values), "write a whole number, 0 if there are none")
    wrong = (values < 0) | (values != np.floor(values)) | (values > LARGEST_COUNT)
    table.check(name, values, wrong, f"write a whole number from 0 to {LARGEST_COUNT:g}")
    return values.astype(np.int64)


def _label_counts(table: Table) -> Int64:
    """Samples per label; with `samples` alone, all samples count as one label."""
    names = _label_columns(table)
    samples = _counts(table, "samples") if "samples" in table else None
    if not names:
        assert samples is not None
        rule = "the device holds no data; leave it out or give it samples"
        table.check("samples", samples.astype(np.float64), samples == 0, rule)
        return samples[:, None]
    counts = np.column_stack([_counts(table, name) for name in names])
    total = counts.sum(axis=1)
    if (total == 0).any():
        row = int(np.argmax(total == 0))
        span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        table.fail(row, span, "all counts are 0; leave the device out or give it samples")
    if samples is not None and (samples != total).any():
        row = int(np.argmax(samples != total))
        table.fail(
            row,
            "samples",
            f"{samples[row]}, but the label columns add up to {total[row]}; correct one of them, "
            "or leave the column samples out",
        )
    return counts


def _positive(table: Table, name: str, default: Float64) -> Float64:
    """An optional column of positive numbers, with the default where a cell is empty."""
    if name not in table:
        return default
    values = table.numbers(name)
    table.check(name, values, values <= 0, "write a positive number, or nothing for the default")
    return np.where(np.isnan(values), default, values)


def _devices(table: Table, ids: tuple[str, ...], positions: Float64, config: Config) -> Devices:
    fleet = config.fleet
    count = len(ids)
    columns = {
        name: _positive(table, name, np.full(count, getattr(fleet, name))) for name in _DEFAULTS
    }
    columns["power_watts"] = _power(table, columns["power_watts"], columns["max_power_watts"])
    battery = np.full(count, np.nan)
    if "battery_joules" in table:
        battery = table.numbers("battery_joules")
        rule = "an energy is not negative; leave it empty if it is not known"
        table.check("battery_joules", battery, battery < 0, rule)
    drawn = derive(config.run.seed, "cpu").numpy().uniform(*fleet.cpu_hz, size=count)
    return Devices(
        ids=ids,
        positions=positions,
        regions=tuple(table.text("region")) if "region" in table else ("",) * count,
        label_counts=_label_counts(table),
        cpu_hz=_positive(table, "cpu_hz", drawn),
        battery_joules=battery,
        **columns,
    )


def _power(table: Table, power: Float64, largest: Float64) -> Float64:
    """The power within its limit: a default bows to it, a number in the file must keep it."""
    if "power_watts" in table:
        given = ~np.isnan(table.numbers("power_watts"))
        rule = "is more than max_power_watts of the device; lower the one or raise the other"
        table.check("power_watts", power, given & (power > largest), rule)
    return np.minimum(power, largest)
