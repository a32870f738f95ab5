"""How far the answer moves if what was assumed is wrong, one assumption at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from camu.answers.dry import DryPlan
from camu.arrays import Float64, from_decibels, read_only_floats
from camu.planning.central import Bill, sample_bytes, send_data
from camu.work import Progress, silent
from camu.world import World
from camu.world.fleet_clean import read_fleet
from camu.world.link_types import SHANNON

_UPLINK_DB = 6.0  # by how much a path loss model may be wrong
_ONE_WATT = 1.0  # in place of idle power that is assumed to be 0
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Moved:
    """What both ways cost with one assumption changed, down and up."""

    what: str
    devices: int  # it is assumed for; 0: for no device in particular
    changes: tuple[str, str]
    learning: tuple[Bill, Bill]
    sending: tuple[Bill, Bill]


class _Assumption(NamedTuple):
    what: str
    devices: int
    changes: tuple[str, str]
    worlds: tuple[World, World]
    rounds: tuple[float, float]
    bytes: tuple[float | None, float | None]


def moved(
    dry: DryPlan,
    rounds: float,
    interval: tuple[float, float] | None = None,
    progress: Progress = silent,
) -> list[Moved]:
    """What each assumption moves: the scheme plans again, and a dry run prices it.

    `interval` are the fewest and the most rounds, where they were measured; otherwise half of them
    and twice as many.
    """
    found, all_ = [], list(_assumptions(dry.world, rounds, interval))
    for number, one in enumerate(all_):
        progress("what is assumed", number, len(all_))
        plans = [dry if world is dry.world else DryPlan.of(world) for world in one.worlds]
        learning = [plan.bill(own) for plan, own in zip(plans, one.rounds, strict=True)]
        sent = [send_data(w, size).bill for w, size in zip(one.worlds, one.bytes, strict=True)]
        sides = (learning[0], learning[1]), (sent[0], sent[1])
        found.append(Moved(one.what, one.devices, one.changes, *sides))
    return found


def _assumptions(
    world: World, rounds: float, interval: tuple[float, float] | None
) -> Iterator[_Assumption]:
    same: tuple[float | None, float | None] = (None, None)
    few, many = interval or (rounds / 2, 2 * rounds)
    yield _Assumption("rounds", 0, (f"{few:.4g}", f"{many:.4g}"), (world, world), (few, many), same)
    if world.config.data.sample_bytes is None:
        size = sample_bytes(world)
        sizes = size / 2, 2 * size
        shown = f"{sizes[0]:.4g}", f"{sizes[1]:.4g}"
        yield _Assumption("bytes per sample", 0, shown, (world, world), (rounds, rounds), sizes)
    for what, mask, changes, change in _of_devices(world):
        if not mask.any():
            continue
        worlds = change(mask, 0), change(mask, 1)
        yield _Assumption(what, int(mask.sum()), changes, worlds, (rounds, rounds), same)


def _of_devices(
    world: World,
) -> Iterator[tuple[str, Mask, tuple[str, str], Callable[[Mask, int], World]]]:
    """What is assumed of devices: its name, of which, and the world with it changed."""
    devices, given = world.devices, _given(world)
    boards = np.array([bool(name) for name in devices.board])
    halves = ("half", "twice")
    factors = 0.5, 2.0

    def scaled(*names: str) -> Callable[[Mask, int], World]:
        def change(mask: Mask, side: int) -> World:
            return world.with_devices(
                **{name: _times(getattr(devices, name), mask, factors[side]) for name in names}
            )

        return change

    cycles = ~given("cycles_per_sample") & np.isnan(devices.sample_seconds)
    yield "cycles per sample", cycles, halves, scaled("cycles_per_sample")
    clock = ~given("cpu_hz") & ~boards & np.isnan(devices.sample_seconds)
    yield "CPU clock", clock, halves, scaled("cpu_hz")
    watts = ~given("capacitance") & ~boards & np.isnan(devices.sample_joules)
    yield "power of computing", watts, halves, scaled("capacitance", "static_watts")
    idle = ~given("idle_watts") & ~boards
    none = idle & (devices.idle_watts == 0)

    def one_watt(mask: Mask, side: int) -> World:
        return world.with_devices(
            idle_watts=read_only_floats(np.where(mask, side * _ONE_WATT, devices.idle_watts))
        )

    yield "idle power", idle & ~none, halves, scaled("idle_watts")
    yield "idle power", none, ("0 W", f"{_ONE_WATT:g} W"), one_watt
    measured = given("rssi_dbm") | given("snr_db")
    yield (
        "transmit power",
        ~given("power_watts"),
        halves,
        lambda mask, side: _with_power(world, mask, measured, factors[side]),
    )
    known = measured | given("gain_db") | ~np.isnan(devices.rate_bps)
    shift = from_decibels(np.array([-_UPLINK_DB, _UPLINK_DB]))
    yield (
        "uplink gain",
        ~known,
        (f"-{_UPLINK_DB:g} dB", f"+{_UPLINK_DB:g} dB"),
        lambda mask, side: _with_gain(world, mask, float(shift[side])),
    )
    plain = np.array([name == SHANNON for name in devices.link])
    yield "bandwidth", plain, halves, lambda mask, side: _with_band(world, factors[side])


def _given(world: World) -> Callable[[str], Mask]:
    """For each column, of which devices the fleet's file says it; none without a file."""
    path, count = world.config.fleet.file, world.devices.count
    if path is None:
        return lambda column: np.zeros(count, dtype=np.bool_)
    table = read_fleet(Path(path)).table
    rows = dict(zip(table.ids(), table.rows, strict=True))
    own = [rows.get(name, {}) for name in world.devices.ids]

    def given(column: str) -> Mask:
        cells = (row.get(column) for row in own)
        return np.array([cell is not None and str(cell).strip() != "" for cell in cells])

    return given


def _times(values: Float64, mask: Mask, factor: float) -> Float64:
    return read_only_floats(np.where(mask, factor * values, values))


def _with_power(world: World, mask: Mask, measured: Mask, factor: float) -> World:
    """Another transmit power; where the received power was measured, that stays as it is."""
    devices = world.devices
    power = _times(devices.power_watts, mask, factor)
    most = read_only_floats(np.maximum(devices.max_power_watts, power))
    louder = world.with_devices(power_watts=power, max_power_watts=most)
    changed = louder.devices.power_watts / devices.power_watts
    gain = np.where(measured & mask, world.links.uplink_gain / changed, world.links.uplink_gain)
    return replace(louder, links=replace(louder.links, uplink_gain=read_only_floats(gain)))


def _with_gain(world: World, mask: Mask, factor: float) -> World:
    gain = np.minimum(_times(world.links.uplink_gain, mask, factor), 1.0)
    return replace(world, links=replace(world.links, uplink_gain=read_only_floats(gain)))


def _with_band(world: World, factor: float) -> World:
    """Another bandwidth of all that has no link type."""
    config = world.config
    config = config.replace({"radio.bandwidth_hz": factor * config.radio.bandwidth_hz})
    return replace(world, config=config, links=replace(world.links, radio=config.radio))
