"""Fleets from ray tracers: path gains of DeepMIMO and Sionna RT become fleet and SNR files.

Receivers are devices and transmitters are base stations, as these tools trace them; a channel is
the same in both directions. Arrays are read from `.npz` or `.npy` without pickle, tables from CSV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, decibels, from_decibels
from camu.config.fields import LARGEST_COORDINATE_M
from camu.data.files import load_arrays
from camu.errors import InputError
from camu.files import to_csv
from camu.world.tables import LOWEST_DB, Table, read_table

NO_LINK_DB = -200.0
_ARRAYS = ("a", "a_real", "a_imag", "power", "pathloss", "gain_db", "gain", "rx_pos", "tx_pos")
_SIONNA_AXES = 6  # rx, rx_ant, tx, tx_ant, path, time
_DB_COLUMNS = {"gain_db": 1.0, "path_gain_db": 1.0, "power_dbw": 1.0, "pathloss_db": -1.0}
_WANTED = (
    "a file of path gains: an .npz with `a` (Sionna RT), `power` or `pathloss` (DeepMIMO) or "
    "`gain_db`, an .npy of `a` or of linear gains, or a CSV file with a column gain_db"
)

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Traced:
    """Path gains of a ray tracer."""

    gains: Float64  # (receivers, transmitters), 0 where there is no path
    receivers: Float64 | None  # (receivers, 3) metres
    transmitters: Float64 | None  # (transmitters, 3) metres
    ids: tuple[str, ...]  # of the receivers
    clipped: int  # gains above 1, which were set to 1


def read_traced(path: Path) -> Traced:
    """The gains between receivers and transmitters in a file, from 0 to 1."""
    if path.suffix.lower() in (".npz", ".npy"):
        arrays = load_arrays(path, _ARRAYS, f"give {_WANTED}")
        if "" in arrays:  # an .npy file
            only = arrays.pop("")
            arrays = {"a" if np.iscomplexobj(only) else "gain": only}
        gains = _gains(path, arrays)
        ids = tuple(f"device-{number}" for number in range(len(gains)))
        receivers = _positions(path, arrays, "rx_pos", len(gains))
        transmitters = _positions(path, arrays, "tx_pos", gains.shape[1])
    else:
        ids, gains, receivers = _from_table(read_table(path))
        transmitters = None
    if not gains.size:
        raise InputError(f"{path}: holds no gain; give {_WANTED}")
    gains = np.nan_to_num(gains, nan=0.0)
    clipped = int((gains > 1.0).sum())
    return Traced(np.minimum(gains, 1.0), receivers, transmitters, ids, clipped)


def _gains(path: Path, arrays: Arrays) -> Float64:
    """Linear gains (receivers, transmitters) from whichever array the file has."""
    if "a_real" in arrays and "a_imag" in arrays:
        if arrays["a_real"].shape != arrays["a_imag"].shape:
            raise InputError(f"{path}, arrays a_real and a_imag: their shapes differ")
        return _of_coefficients(path, arrays["a_real"] + 1j * arrays["a_imag"])
    if "a" in arrays:
        return _of_coefficients(path, arrays["a"])
    if "power" in arrays:  # dB of every path at a transmitter of 0 dB
        powers_db = _real(path, "power", arrays["power"], (2, 3))
        gains = np.nansum(_linear(path, "power", powers_db), axis=-1)
        return np.atleast_2d(gains).T
    for name, sign in (("pathloss", -1.0), ("gain_db", 1.0)):
        if name in arrays:
            gains = _linear(path, name, sign * _real(path, name, arrays[name], (1, 2)))
            return gains.reshape(len(gains), -1)
    if "gain" not in arrays:
        raise InputError(
            f"{path}: has none of the arrays a, power, pathloss, gain_db; give {_WANTED}"
        )
    gains = _real(path, "gain", arrays["gain"], (1, 2))
    if (gains < 0).any():
        raise InputError(
            f"{path}: a linear gain is negative; decibels belong into an .npz as gain_db: "
            "np.savez(path, gain_db=...)"
        )
    if np.isinf(gains).any():
        raise InputError(f"{path}, array gain: holds inf; write nan where there is no path")
    return gains.reshape(len(gains), -1)


def _of_coefficients(path: Path, a: npt.NDArray[Any]) -> Float64:
    """|a|^2, summed over paths and the transmitter's antennas, mean over the receiver's and time.

    The transmitter is the base station, which combines what all its antennas receive.
    """
    shape = a.shape
    if a.ndim == _SIONNA_AXES + 1 and shape[0] == 1:
        a = a[0]  # a batch of one
    if a.ndim == _SIONNA_AXES - 1:
        a = a[..., None]  # no time
    if a.ndim != _SIONNA_AXES or 0 in a.shape:
        raise InputError(
            f"{path}, array a: has shape {shape}; Sionna's paths.cir() gives (receivers, receive "
            "antennas, transmitters, transmit antennas, paths, time steps)"
        )
    # A sum of squares of finite float32 may overflow; float64 cannot.
    if not np.isfinite(a).all():
        raise InputError(f"{path}, array a: holds nan or inf; save finite coefficients")
    power = np.square(np.abs(a).astype(np.float64))
    return np.asarray(power.sum(axis=(3, 4)).mean(axis=(1, 3)), dtype=np.float64)


def _real(path: Path, name: str, array: npt.NDArray[Any], axes: tuple[int, ...]) -> Float64:
    if array.ndim not in axes or array.dtype.kind == "c" or 0 in array.shape:
        wanted = " or ".join(str(number) for number in axes)
        raise InputError(
            f"{path}, array {name}: has shape {array.shape} and type {array.dtype}; it must be "
            f"real, not empty, and have {wanted} axes"
        )
    return array.astype(np.float64)


def _linear(path: Path, name: str, array_db: Float64) -> Float64:
    """Gains of decibels; -inf and anything below -300 dB is no path."""
    array_db = np.where(array_db < LOWEST_DB, np.nan, array_db)
    if (array_db > -LOWEST_DB).any():
        raise InputError(
            f"{path}, array {name}: {np.nanmax(array_db):g} dB is not a gain; write decibels, nan "
            "where there is no path"
        )
    return from_decibels(array_db)


def _positions(path: Path, arrays: Arrays, name: str, count: int) -> Float64 | None:
    if name not in arrays:
        return None
    places = np.atleast_2d(arrays[name])
    if places.shape != (count, 3) or places.dtype.kind == "c":
        raise InputError(
            f"{path}, array {name}: has shape {arrays[name].shape}; it must be ({count}, 3), metres"
        )
    if not (np.abs(places) <= LARGEST_COORDINATE_M).all():
        row = int(np.argmin((np.abs(places) <= LARGEST_COORDINATE_M).all(axis=1)))
        raise InputError(
            f"{path}, array {name}, row {row}: is not a position within "
            f"{LARGEST_COORDINATE_M:g} m of the origin"
        )
    return places.astype(np.float64)


def _from_table(table: Table) -> tuple[tuple[str, ...], Float64, Float64 | None]:
    """Devices, their best gain in a column, and their positions, from a table of links."""
    value = next((name for name in _DB_COLUMNS if name in table.columns), None)
    device = next((name for name in ("id", "rx", "device") if name in table.columns), None)
    if value is None or device is None:
        raise InputError(
            f"{table.path}: needs a column id and one of {', '.join(_DB_COLUMNS)}; its columns are "
            f"{', '.join(table.columns)[:200]}"
        )
    names = table.texts(device)
    linear = from_decibels(_DB_COLUMNS[value] * _column(table, value, -LOWEST_DB))
    axes = "xyz" if all(axis in table.columns for axis in "xyz") else ""
    metres = [_column(table, axis, LARGEST_COORDINATE_M) for axis in axes]
    gains: dict[str, float] = {}
    places: dict[str, list[float]] = {}
    for row, (name, gain) in enumerate(zip(names, np.nan_to_num(linear).tolist(), strict=True)):
        place = [float(along[row]) for along in metres]
        if not name:
            table.fail(row, device, "is empty; name the device")
        if name in gains and "tx" not in table.columns:
            table.fail(
                row,
                device,
                f"{name!r} appears twice; write a device once, or add a column tx with the base "
                "station of each row",
            )
        if np.isnan(place).any() or places.setdefault(name, place) != place:
            table.fail(
                row,
                "x",
                f"the position of {name!r} is empty or differs from that of an earlier row; write "
                "the same one",
            )
        gains[name] = max(gain, gains.get(name, 0.0))
    positions = np.array(list(places.values())).reshape(-1, 3) if axes else None
    return tuple(gains), np.array(list(gains.values()))[:, None], positions


def _column(table: Table, column: str, largest: float) -> Float64:
    """The numbers of a column; nan for an empty cell or the word nan."""
    values = table.floats(column, empty=("", "nan"))
    rule = f"write a number from {-largest:g} to {largest:g}, nothing where there is no path"
    table.refuse(np.abs(values) > largest, column, rule)
    return values


def with_a_path(traced: Traced, between: Traced | None) -> npt.NDArray[np.bool_]:
    """Whether each device has a path to a base station, or to another device (K,)."""
    some = np.asarray((traced.gains > 0).any(axis=1), dtype=np.bool_)
    if between is not None:
        linked = between.gains > 0
        np.fill_diagonal(linked, False)
        some |= linked.any(axis=0) | linked.any(axis=1)
    return some


def fleet_text(traced: Traced, kept: npt.NDArray[np.int64], samples: int) -> str:
    """The fleet file of these receivers, each with the gain to its best base station."""
    best_db = np.maximum(_db(traced.gains.max(axis=1)), LOWEST_DB)
    axes = ["x", "y", "z"] if traced.receivers is not None else []
    rows: list[list[object]] = [["id", *axes, "gain_db", "samples"]]
    for k in kept.tolist():
        place = [] if traced.receivers is None else [f"{m:.10g}" for m in traced.receivers[k]]
        rows.append([traced.ids[k], *place, f"{best_db[k]:.6f}", samples])
    return to_csv(rows)


def snr_text(
    between: Traced,
    ids: tuple[str, ...],
    kept: npt.NDArray[np.int64],
    power_watts: float,
    noise_watts: float,
) -> str:
    """The SNR file of devices that all send with one power; the mean in dB of both directions."""
    gains_db = _db(between.gains[np.ix_(kept, kept)])
    snr_db = 0.5 * (gains_db + gains_db.T) + float(decibels(power_watts / noise_watts))
    np.fill_diagonal(snr_db, 0.0)
    snr_db = np.maximum(snr_db, NO_LINK_DB)
    rows = [["id", *(ids[k] for k in kept)]]
    for k, row in zip(kept.tolist(), snr_db.tolist(), strict=True):
        rows.append([ids[k], *(f"{value:.4f}" for value in row)])
    return to_csv(rows)


def _db(gains: Float64) -> Float64:
    """Decibels; of no path, so little that the sum of two directions is no link either."""
    known = gains > 0
    return np.where(known, decibels(np.where(known, gains, 1.0)), 4 * LOWEST_DB)
