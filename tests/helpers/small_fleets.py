"""Worlds made by hand for the tests of clustering: places, labels and powers as given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from camu.config import load_config
from camu.world import Devices, Links, World, build_links

REGIONS = {"data.dataset": "digits", "data.samples_per_device": 40}


def make_world(
    places: Sequence[Sequence[float]],
    label_counts: npt.ArrayLike,
    settings: Sequence[str] = (),
    power_watts: npt.ArrayLike = 0.5,
) -> World:
    """Devices at these (x, y) places with these labels; everything else as in preset `paper`."""
    config = load_config(preset="paper", settings=settings)
    count = len(places)
    everyone = np.ones(count)
    devices = Devices(
        ids=tuple(f"d{k}" for k in range(count)),
        positions=np.column_stack([np.asarray(places, float), np.zeros(count)]),
        regions=("",) * count,
        label_counts=np.asarray(label_counts),
        cpu_hz=1e9 * everyone,
        cycles_per_sample=config.fleet.cycles_per_sample * everyone,
        capacitance=config.fleet.capacitance * everyone,
        power_watts=power_watts * everyone,
        max_power_watts=everyone,
        battery_joules=np.nan * everyone,
    )
    base_station = np.array(config.fleet.base_station)
    links = build_links(config.radio, devices, base_station, 0)
    return World(config, links)


def plain_devices(positions: npt.ArrayLike, power: npt.ArrayLike = 0.5) -> Devices:
    """Devices at these places (K, 3), alike in everything but their power."""
    places = np.asarray(positions, dtype=float)
    ones = np.ones(len(places))
    return Devices(
        ids=tuple(f"d{k}" for k in range(len(places))),
        positions=places,
        regions=("",) * len(places),
        label_counts=np.ones((len(places), 1), dtype=np.int64),
        cpu_hz=1e9 * ones,
        cycles_per_sample=ones,
        capacitance=ones,
        power_watts=power * ones,
        max_power_watts=100 * ones,
        battery_joules=np.nan * ones,
    )


def random_world(count: int, seed: int, settings: Sequence[str] = ()) -> World:
    """Devices spread over a square, each with two of ten labels."""
    draw = np.random.default_rng(seed)
    places = draw.uniform(0.0, 10.0 * count**0.5, (count, 2))
    counts = np.zeros((count, 10), np.int64)
    for row in counts:
        row[draw.choice(10, 2, replace=False)] = draw.integers(20, 60, 2)
    return make_world(places.tolist(), counts, settings)


def device_gain(links: Links, rows: npt.ArrayLike, cols: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Mean gains between devices, a block (len(rows), len(cols))."""
    return links.pair_gain(np.asarray(rows, np.int64)[:, None], np.asarray(cols, np.int64))
