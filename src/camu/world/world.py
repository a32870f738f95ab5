"""Everything that is true before learning starts: devices, their data, their links."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, decibels, read_only_floats, read_only_ints
from camu.config import Config, load_config
from camu.errors import InputError
from camu.seeding import derive
from camu.world.devices import Devices
from camu.world.links import Links, build_links
from camu.world.picture import world_html
from camu.world.places import read_stations
from camu.world.reach import DOMINATING_UPLINK, out_of_reach

if TYPE_CHECKING:
    from camu.data import Federation

Value = TypeVar("Value")
PAPER_MODEL_PARAMETERS = 21_880  # the paper's CNN, the default model of warnings


@dataclass(frozen=True, eq=False)
class World:
    """The wireless fleet that a scheme plans for; one value, a function of the configuration.

    Attributes:
        config: the configuration that the world was built from.
        links: the devices, their gains and SNR, and the times of transmissions.
        federation: the training data of every device; None until `with_data` has dealt them to
            a fleet file's devices, and for reports.
        labels: the class that each label column of a fleet file stands for; None without such
            columns.
        left_out: devices of the fleet file that reach nobody and are not part of the world.
        notes: what a user should know of the fleet's files.
    """

    config: Config
    links: Links
    federation: Federation | None = None
    labels: tuple[int, ...] | None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        """The seed of everything random, run.seed."""
        return self.config.run.seed

    @property
    def devices(self) -> Devices:
        """The devices of the fleet."""
        return self.links.devices

    @property
    def base_stations(self) -> Float64:
        """Positions of the base stations (S, 3), metres."""
        if self.links.stations is None:
            return read_only_floats([self.config.fleet.base_station])
        return self.links.stations

    @cached_property
    def _known(self) -> dict[Hashable, Any]:
        return {}

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value that `make` gives, made once per world and key: schemes share their work."""
        if key not in self._known:
            self._known[key] = make()
        value: Value = self._known[key]
        return value

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(warning)}</p>" for warning in self.warnings())
        return f"<div>{world_html(self.links, self.base_stations)}{notes}</div>"

    def with_devices(self, **changes: Any) -> World:
        """The same world with fields of its devices replaced, for example ``cpu_hz=...``."""
        devices = replace(self.devices, **changes)
        return replace(self, links=replace(self.links, devices=devices))

    def warnings(self, parameters: int = PAPER_MODEL_PARAMETERS) -> list[str]:
        """What a user should know before trusting a plan in this world; empty if all is well."""
        snr = self.links.uplink_snr()
        found = list(self.notes)
        if np.median(snr) < 1.0:
            found.append(self._weak_uplinks(snr, parameters))
        outage_db = self.config.radio.outage_snr_db
        lost = 0 if outage_db is None else int((decibels(snr) < outage_db).sum())
        if lost:
            found.append(
                f"{lost} of {self.devices.count} devices have a mean SNR at the base station below "
                f"radio.outage_snr_db = {outage_db:g} dB: most of their uploads will fail"
            )
        return found + self._dominating_uplinks(parameters)

    def _dominating_uplinks(self, parameters: int) -> list[str]:
        """A sentence that names the devices whose uploads take far longer than the median one."""
        seconds = self.links.transmit_seconds(
            self.config.radio.bits_per_parameter * parameters,
            self.devices.power_watts,
            self.links.uplink_gain,
        )
        ratio = seconds / np.median(seconds)
        slow = np.argsort(-ratio, kind="stable")[: int((ratio > DOMINATING_UPLINK).sum())]
        if not slow.size:
            return []
        shown = [f"{self.devices.ids[k]} ({_duration(float(seconds[k]))})" for k in slow[:5]]
        more = f" and {slow.size - len(shown)} more" if slow.size > len(shown) else ""
        return [
            f"device {', '.join(shown)}{more}: an upload takes more than {DOMINATING_UPLINK:g} "
            "times as long as the median one, so it dominates every round in which it sends; "
            "check the position or gain_db, or leave the device out"
        ]

    def _weak_uplinks(self, snr: Float64, parameters: int) -> str:
        """One sentence on what the median SNR does to time and noise."""
        middle = int(np.argsort(snr, kind="stable")[len(snr) // 2])
        seconds = self.links.transmit_seconds(
            self.config.radio.bits_per_parameter * parameters,
            self.devices.power_watts[middle],
            self.links.uplink_gain[middle],
        )
        noise = _noise_words(self.config.radio.uplink, float(snr[middle]) ** -0.5)
        thermal = self.config.radio.noise == "thermal" and self.config.radio.noise_dbm is None
        remedy = (
            "a nearer base station, more power or more antennas would help"
            if thermal
            else "radio.noise=thermal is the noise of a real receiver"
        )
        return (
            f"the SNR at the base station is about {float(decibels(snr[middle])):z.0f} dB (noise "
            f"{self.links.noise_watts:.3g} W): uploading a model of {parameters} parameters takes "
            f"about {_duration(float(seconds))} per device{noise}; {remedy}"
        )


def build_world(
    config: Config, seed: int | None = None, label_counts: npt.ArrayLike | None = None
) -> World:
    """The world of a configuration.

    The devices are in the configured regions, with training data dealt to them, or they come from
    the fleet file; `simulate` and `with_data` deal training data to those.

    Parameters:
        config: the configuration.
        seed: replaces run.seed.
        label_counts: the numbers of samples (devices, labels) that the devices hold. No data set is
            loaded then, and the world has no training data.

    Returns:
        The world; the same arguments give the same one.
    """
    if seed is not None and seed != config.run.seed:
        config = config.replace({"run.seed": seed})
    if config.fleet.file is not None:
        return _world_of_file(config, config.fleet.file, label_counts)
    federation = None
    if label_counts is None:
        from camu.data import federate  # deferred: label counts need no data set

        federation = federate(config.data, devices=config.fleet.devices, seed=config.run.seed)
        label_counts = federation.label_counts
    devices = place_devices(config, label_counts)
    return World(config, _links(config, devices), federation)


def read_fleet(
    path: str | Path, snr_file: str | Path | None = None, config: Config | None = None
) -> World:
    """The world of a user's own fleet: a CSV or JSON file of devices (docs/fleet.md).

    Parameters:
        path: the fleet file.
        snr_file: a file with the SNR measured between devices, in dB.
        config: everything that the files leave open; by default the preset demo.

    Returns:
        The world. It can be planned as it is; `simulate` deals samples of the configured data set
        to its devices, as the file's label counts or numbers of samples say.
    """
    files = {"fleet.file": str(path), "fleet.snr_file": None if snr_file is None else str(snr_file)}
    return build_world((config or load_config()).replace(files))


def with_data(world: World) -> World:
    """The world with training data for every device.

    A fleet file's devices get samples of the configured data set: as many of each label as the file
    says, or where it gives only numbers of samples, a partition of these sizes. Where the data set
    has too few samples, that is an error, or samples are shared (`data.with_replacement`).
    """
    if world.federation is not None:
        return world
    if world.config.fleet.file is None:
        raise InputError(
            "this world was built from label counts alone, without training data; leave "
            "label_counts out of build_world"
        )
    from camu.data.fleet_data import federate_counts, federate_sizes  # deferred: loads the data set

    config, source = world.config, str(world.config.fleet.file)
    counts = world.devices.label_counts
    if world.labels is not None:
        federation = federate_counts(config.data, counts, world.labels, world.seed, source)
    else:
        federation = federate_sizes(config.data, counts.sum(axis=1), world.seed, source)
    devices = replace(world.devices, label_counts=federation.label_counts)
    return replace(world, links=replace(world.links, devices=devices), federation=federation)


def _world_of_file(config: Config, path: str, label_counts: npt.ArrayLike | None) -> World:
    from camu.world.fleet_file import parse_fleet  # few worlds come from a file

    fleet = parse_fleet(path, config.fleet.snr_file, config)
    stations = _stations(config) if fleet.stations is None else fleet.stations
    links = build_links(
        config.radio,
        fleet.devices,
        stations,
        config.run.seed,
        gains=fleet.gains,
        distances_m=fleet.distances_m,
        snr_db=fleet.snr_db,
    )
    counts = fleet.devices.label_counts if label_counts is None else read_only_ints(label_counts)
    kept = np.arange(links.count)
    left_out: tuple[str, ...] = ()
    # Counts of all devices were given for all: nodes of a deployment have reported them.
    if config.fleet.unreachable == "leave-out" and (
        label_counts is None or len(counts) != links.count
    ):
        lost = out_of_reach(links, config.clustering.min_link_snr_db)
        kept = np.flatnonzero(~lost)
        left_out = tuple(fleet.devices.ids[k] for k in np.flatnonzero(lost))
        links = links.select(kept)
    if label_counts is None:
        counts = counts[kept]
    devices = replace(links.devices, label_counts=counts)
    labels = fleet.labels if label_counts is None else tuple(range(counts.shape[1]))
    notes = (*fleet.notes, *_left_out(path, left_out))
    links = replace(links, devices=devices)
    return World(config, links, labels=labels, left_out=left_out, notes=notes)


def _left_out(path: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence that names the devices that reach nobody."""
    if not names:
        return ()
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    one = len(names) == 1
    return (
        f"{path}: device{'' if one else 's'} {', '.join(names[:5])}{more} reach"
        f"{'es' if one else ''} nobody and {'is' if one else 'are'} left out: an upload would take "
        f"more than {DOMINATING_UPLINK:g} times as long as the median one, and no device could "
        "lead; check the position or the measured uplink, or keep "
        f"{'it' if one else 'them'} with fleet.unreachable=keep",
    )


def _stations(config: Config) -> Float64:
    """The base stations of the configuration (S, 3), metres."""
    if config.fleet.base_station_file is None:
        return read_only_floats(config.fleet.base_station)
    return read_stations(config.fleet.base_station_file, None).positions


def _links(config: Config, devices: Devices) -> Links:
    return build_links(config.radio, devices, _stations(config), config.run.seed)


def place_devices(config: Config, label_counts: npt.ArrayLike) -> Devices:
    """Devices at their positions or at random in their regions, with CPUs from the interval."""
    fleet, seed = config.fleet, config.run.seed
    count = fleet.devices
    everyone = np.ones(count)
    return Devices(
        ids=tuple(str(index) for index in range(count)),
        positions=_positions(config),
        regions=tuple(r.name for r in fleet.regions for _ in range(r.devices)),
        label_counts=read_only_ints(label_counts),
        cpu_hz=derive(seed, "cpu").numpy().uniform(*fleet.cpu_hz, size=count),
        cycles_per_sample=fleet.cycles_per_sample * everyone,
        capacitance=fleet.capacitance * everyone,
        power_watts=fleet.power_watts * everyone,
        max_power_watts=fleet.max_power_watts * everyone,
        battery_joules=everyone
        * (np.nan if fleet.battery_joules is None else fleet.battery_joules),
        harvest_watts=fleet.harvest_watts * everyone,
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


def _noise_words(uplink: str, deviation: float) -> str:
    """What the channel noise does to what is sent, in the words of the uplink's kind."""
    if uplink not in ("update", "weights"):
        return ""
    what = "raw weight" if uplink == "weights" else "entry of the normalised update"
    rounded = float(f"{deviation:.2g}")  # 3200, where .2g alone would print 3.2e+03
    return f", and the noise on each {what} has a standard deviation of about {rounded:g}"


def _duration(seconds: float) -> str:
    """A time in the largest unit that leaves a number of at least 1.5."""
    units = (("years", 31_557_600.0), ("weeks", 604_800.0), ("days", 86_400.0), ("hours", 3_600.0))
    for name, length in (*units, ("minutes", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.2g} seconds"
