"""The devices of a fleet, and the time and energy of their local updates."""

from __future__ import annotations

from dataclasses import dataclass, fields
from dataclasses import field as with_default
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, read_only_floats, read_only_ints
from camu.config import Config, ReadingsConfig, TrainingConfig
from camu.data.batches import batch_samples
from camu.seeding import derive
from camu.world.boards import default_hardware
from camu.world.link_types import LINK_TYPES, SHANNON

_LITERAL_WATTS = 0.5  # p_cmp of P1
_MISSING = {
    "idle_watts": 0.0,
    "static_watts": 0.0,
    "harvest_watts": 0.0,
    "solar_watts_peak": 0.0,
    "sleep_watts": np.nan,
    "sample_seconds": np.nan,
    "sample_joules": np.nan,
    "label_epsilon": np.nan,
    "rate_bps": np.nan,
}
_TEXTS = ("ids", "regions", "link", "board")


@dataclass(frozen=True, eq=False)
class Devices:
    """K devices, one array per property; row k of every array is device k. Arrays are read-only."""

    ids: tuple[str, ...]
    positions: Float64  # (K, 3) metres, nan where unknown
    regions: tuple[str, ...]
    label_counts: Int64  # (K, L) samples per label
    cpu_hz: Float64  # f_k
    cycles_per_sample: Float64  # l_k
    capacitance: Float64  # kappa
    power_watts: Float64  # p_k where no optimiser sets it
    max_power_watts: Float64
    battery_joules: Float64  # when full; nan where unknown: mains power
    harvest_watts: Float64 = with_default(default_factory=lambda: np.zeros(0))  # empty: none
    solar_watts_peak: Float64 = with_default(default_factory=lambda: np.zeros(0))  # empty: none
    # Measured on the devices; nan where the models of time and energy hold. Empty: nowhere.
    sample_seconds: Float64 = with_default(default_factory=lambda: np.zeros(0))
    sample_joules: Float64 = with_default(default_factory=lambda: np.zeros(0))
    # Of the noise on label_counts; nan where they are exact. Empty: everywhere.
    label_epsilon: Float64 = with_default(default_factory=lambda: np.zeros(0))
    link: tuple[str, ...] = ()  # link type of each; empty: `shannon` everywhere
    board: tuple[str, ...] = ()  # profile of each; "" or empty: none
    # What each draws while it takes part, and what it draws more while it computes. Empty: nothing.
    idle_watts: Float64 = with_default(default_factory=lambda: np.zeros(0))
    static_watts: Float64 = with_default(default_factory=lambda: np.zeros(0))
    sleep_watts: Float64 = with_default(default_factory=lambda: np.zeros(0))  # nan: stays awake
    # Measured rate of an upload; nan where that of the link type holds. Empty: everywhere.
    rate_bps: Float64 = with_default(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _MISSING and not len(value):
                value = np.full(len(self.ids), _MISSING[field.name])
            if field.name == "label_counts":
                value = read_only_ints(value)
            elif field.name in _TEXTS:
                usual = SHANNON if field.name == "link" else ""
                value = tuple(value)
                if field.name in ("link", "board"):
                    value = value or (usual,) * len(self.ids)
            else:
                value = read_only_floats(value)
            if len(value) != len(self.ids):
                raise ValueError(f"{field.name} has {len(value)} rows for {len(self.ids)} devices")
            object.__setattr__(self, field.name, value)
        if self.positions.shape != (self.count, 3) or self.label_counts.ndim != 2:
            raise ValueError("positions are (K, 3) and label_counts (K, L)")
        if any(name != SHANNON for name in self.link):
            self._limit_powers()

    def _limit_powers(self) -> None:
        """Nobody sends with more than the largest power of its link type."""
        own = (LINK_TYPES[name].power_watts if name != SHANNON else np.inf for name in self.link)
        most = np.fromiter(own, np.float64, self.count)
        for name in ("power_watts", "max_power_watts"):
            limited = read_only_floats(np.minimum(getattr(self, name), most))
            object.__setattr__(self, name, limited)

    @property
    def count(self) -> int:
        """K, the number of devices."""
        return len(self.ids)

    @cached_property
    def samples(self) -> Int64:
        """|D_k|, the number of samples of each device."""
        return read_only_ints(self.label_counts.sum(axis=1))

    @cached_property
    def resting_watts(self) -> Float64:
        """What each draws while it takes part in no round: asleep, or idle if it stays awake."""
        asleep = np.isfinite(self.sleep_watts)
        return read_only_floats(np.where(asleep, self.sleep_watts, self.idle_watts))

    def select(self, indices: npt.ArrayLike) -> Devices:
        """The devices with these indices, in this order."""
        rows = np.asarray(indices, dtype=np.int64)
        parts: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            texts = field.name in _TEXTS
            parts[field.name] = tuple(value[row] for row in rows) if texts else value[rows]
        return Devices(**parts)


def update_samples(
    devices: Devices, training: TrainingConfig, batch: int | float | None = None
) -> Int64:
    """Samples that each device processes in one local update: a batch, or all once (`epoch`).

    `batch` replaces the configured one, in this and the next two functions.
    """
    if training.local_update == "epoch":
        return devices.samples
    return batch_samples(training.batch if batch is None else batch, devices.samples)


def update_seconds(
    devices: Devices, training: TrainingConfig, batch: int | float | None = None
) -> Float64:
    """Time of one local update of each device: as measured, or cycles * samples / f (K,)."""
    samples = update_samples(devices, training, batch)
    modelled = devices.cycles_per_sample * samples / devices.cpu_hz
    return _measured(devices.sample_seconds, samples, modelled)


def update_joules(
    devices: Devices,
    readings: ReadingsConfig,
    training: TrainingConfig,
    parameters: int,
    batch: int | float | None = None,
) -> Float64:
    """Energy of one local update of each device (K,): as measured, or by the configured model.

    `cycles`: kappa * cycles * samples * f^2, and static power meanwhile. `literal`:
    l_k q / f_k * p_cmp as printed in P1, with q the number of model parameters; the printed formula
    does not know how many samples are used.
    """
    samples = update_samples(devices, training, batch)
    if readings.compute_model == "literal":
        seconds = devices.cycles_per_sample * parameters / devices.cpu_hz
        modelled = seconds * _LITERAL_WATTS
    else:
        work = devices.cycles_per_sample * samples
        modelled = devices.capacitance * work * devices.cpu_hz**2
        modelled = modelled + devices.static_watts * work / devices.cpu_hz
    return _measured(devices.sample_joules, samples, modelled)


def static_watts(devices: Devices, readings: ReadingsConfig) -> Float64:
    """The power of each device that computes, whatever its frequency, above that of an idle one.

    The printed readings.compute_model has none.
    """
    literal = readings.compute_model == "literal"
    return 0.0 * devices.static_watts if literal else devices.static_watts


def _measured(per_sample: Float64, samples: Int64, modelled: Float64) -> Float64:
    """What was measured for so many samples; the model's value where nothing was."""
    found = np.where(np.isnan(per_sample), modelled, per_sample * samples)
    return np.asarray(found, dtype=np.float64)


def place_devices(config: Config, label_counts: npt.ArrayLike) -> Devices:
    """Devices at their positions or at random in their regions, with CPUs from the interval."""
    fleet, seed = config.fleet, config.run.seed
    count = fleet.devices
    everyone = np.ones(count)
    board = (fleet.board or "",) * count
    drawn = derive(seed, "cpu").numpy().uniform(*fleet.cpu_hz, size=count)
    return Devices(
        ids=tuple(str(index) for index in range(count)),
        positions=_positions(config),
        regions=tuple(region.name for region in fleet.regions for _ in range(region.devices)),
        label_counts=read_only_ints(label_counts),
        power_watts=fleet.power_watts * everyone,
        max_power_watts=fleet.max_power_watts * everyone,
        battery_joules=np.full(count, fleet.battery_joules, dtype=np.float64),  # None: nan
        harvest_watts=fleet.harvest_watts * everyone,
        solar_watts_peak=fleet.solar_watts_peak * everyone,
        link=(config.radio.link,) * count,
        board=board,
        **default_hardware(config, board, drawn),
    )


def _positions(config: Config) -> Float64:
    """The configured positions, or random ones in the boxes of the regions (K, 3)."""
    fleet = config.fleet
    if fleet.positions is not None:
        return np.array(fleet.positions, dtype=np.float64)
    generator = derive(config.run.seed, "positions").numpy()
    boxes = [np.array([region.x, region.y, region.z]) for region in fleet.regions]
    return np.concatenate(
        [
            generator.uniform(box[:, 0], box[:, 1], size=(region.devices, 3))
            for box, region in zip(boxes, fleet.regions, strict=True)
        ]
    )
