"""The world before learning starts: devices, their data, their links, and warnings on these."""

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
from camu.config import Config, RadioConfig, load_config
from camu.errors import InputError
from camu.learning.flops import training_flops
from camu.world.devices import Devices, place_devices
from camu.world.left_out import left_out_words
from camu.world.link_types import SHANNON
from camu.world.links import DOMINATING_UPLINK, Links, build_links, out_of_reach
from camu.world.movement import Movement, key_of_movement, movement_of
from camu.world.picture import world_html
from camu.world.places import read_stations
from camu.world.rates import analog_seconds
from camu.world.unused import unused_keys

if TYPE_CHECKING:
    from camu.data import Federation
    from camu.world.fleet_file import Fleet

Value = TypeVar("Value")
_FAR_OFF = 2.0  # cycles per sample and what is counted may differ by this factor
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
        notes: what a user should know of the fleet's files and of its data.
        movement: where the devices are at any time; None: they stay where they are.
        latitude: where the sun is that shines on them, degrees; None: not known.
    """

    config: Config
    links: Links
    federation: Federation | None = None
    labels: tuple[int, ...] | None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    movement: Movement | None = None
    latitude: float | None = None

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
        return self.links.stations

    @cached_property
    def _known(self) -> dict[Hashable, Any]:
        return {}

    def cached(self, key: Hashable, make: Callable[[], Value]) -> Value:
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
        if "positions" in changes:
            raise InputError(
                "with_devices(positions=...): the links were built from the old positions; set "
                "fleet.positions, or change the fleet file, and build the world again"
            )
        devices = replace(self.devices, **changes)
        return replace(self, links=replace(self.links, devices=devices))

    def without_waits(self) -> World:
        """The same world, with the same clusters, but no gather waits for another one."""
        free = replace(self, config=self.config.replace({"radio.d2d": "free"}))
        vars(free)["_known"] = self._known
        return free

    def at(self, seconds: float) -> World:
        """The world with its devices where they are at this virtual second, and links from there.

        It is this world itself where no device has moved.
        """
        if self.movement is None:
            return self
        positions = self.movement.positions(seconds)
        if np.array_equal(positions, self.devices.positions, equal_nan=True):
            return self
        return replace(self, links=self.links.at(positions))

    def warnings(self, parameters: int = PAPER_MODEL_PARAMETERS) -> list[str]:
        """What a user should know before trusting a plan in this world; empty if all is well."""
        uplinks = _uplink_warnings(self.config.radio, self.links, parameters)
        return [*self.notes, *self.cycles_warnings(), *uplinks]

    def cycles_warnings(self) -> list[str]:
        """A sentence on a fixed number of cycles that is far from what the model takes."""
        return _cycles_warnings(self.config, self.devices)


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
        from camu.world.fleet_file import parse_fleet  # few worlds come from a file

        fleet = parse_fleet(config.fleet.file, config.fleet.snr_file, config)
        return world_of_fleet(config, fleet, label_counts)
    federation = None
    if label_counts is None:
        from camu.data import federate  # deferred: label counts need no data set

        federation = federate(config.data, devices=config.fleet.devices, seed=config.run.seed)
        label_counts = federation.label_counts
    devices = place_devices(config, label_counts)
    notes = () if federation is None else (*federation.dataset.notes, *federation.notes)
    links = build_links(config.radio, devices, _stations(config), config.run.seed)
    return _completed(World(config, links, federation, notes=notes))


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
    from camu.data.federation import federate_counts, federate_sizes  # deferred: loads the data set

    config, source = world.config, str(world.config.fleet.file)
    counts = world.devices.label_counts
    if world.labels is not None:
        federation = federate_counts(config.data, counts, world.labels, world.seed, source)
    else:
        federation = federate_sizes(config.data, counts.sum(axis=1), world.seed, source)
    notes = (*world.notes, *federation.dataset.notes, *federation.notes)
    trained = world.with_devices(label_counts=federation.label_counts)
    return replace(trained, federation=federation, notes=notes)


def world_of_fleet(
    config: Config, fleet: Fleet, label_counts: npt.ArrayLike | None = None
) -> World:
    """The world of devices that were read from fleet.file."""
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
    counts = None if label_counts is None else read_only_ints(label_counts)
    lost = np.zeros(links.count, dtype=np.bool_)
    # Counts of all devices were given for all: nodes of a deployment have reported them.
    if config.fleet.unreachable == "leave-out" and (counts is None or len(counts) != links.count):
        lost = out_of_reach(links, config.clustering.min_link_snr_db)
    measured = any(known is not None for known in (fleet.gains, fleet.distances_m, fleet.snr_db))
    if measured or not np.isnan(fleet.devices.rate_bps).all():
        _refuse_movement(config)
    left_out = tuple(fleet.devices.ids[k] for k in np.flatnonzero(lost))
    notes = (
        *fleet.notes,
        *left_out_words(str(config.fleet.file), left_out, links.count, links.types is not None),
    )
    links = links.select(np.flatnonzero(~lost))
    latitude = None if fleet.origin is None else fleet.origin.latitude
    known: Any = {"labels": fleet.labels, "left_out": left_out, "latitude": latitude}
    world = World(config, links, notes=notes, **known)
    if counts is not None:
        labels = tuple(range(counts.shape[1]))
        world = replace(world.with_devices(label_counts=counts), labels=labels)
    world = _completed(world)  # what devices hold back is known once they have their samples
    return world if counts is not None or not config.data.validation_share else with_data(world)


def _completed(world: World) -> World:
    """The world at second 0 with devices that move, and what it leaves unused, if any."""
    if world.config.fleet.latitude is not None:
        world = replace(world, latitude=world.config.fleet.latitude)
    panels = bool(world.devices.solar_watts_peak.any())
    if panels and world.latitude is None:
        raise InputError(
            "fleet.latitude: is not set, and devices have panels (solar_watts_peak); set it, or "
            "give places in degrees"
        )
    unused = unused_keys(world.config, len(world.base_stations), panels)
    world = replace(world, notes=(*world.notes, *unused))
    movement = movement_of(world.config, world.devices, world.left_out)
    if movement is None:
        return world
    note = f"devices move ({key_of_movement(world.config)}): plans and maps show them at second 0"
    return replace(world, movement=movement, notes=(*world.notes, note)).at(0.0)


def _refuse_movement(config: Config) -> None:
    """Refuse devices that move away from where their links were measured."""
    if (key := key_of_movement(config)) is not None:
        raise InputError(
            f"{key}: links of this fleet were measured (gain_db, snr_db, rssi_dbm, rate_bps, "
            "distance_m or fleet.snr_file) and hold where its devices were; give places (x, y) "
            f"without measurements, or leave {key} out"
        )


def _stations(config: Config) -> Float64:
    """The base stations of the configuration (S, 3), metres."""
    if config.fleet.base_station_file is None:
        return read_only_floats(config.fleet.base_station)
    return read_only_floats(read_stations(config.fleet.base_station_file, None))


def _cycles_warnings(config: Config, devices: Devices) -> list[str]:
    """That sentence, or none."""
    fixed = config.fleet.cycles_per_sample
    modelled = np.isnan(devices.sample_seconds) & (devices.cycles_per_sample == fixed)
    if fixed == "auto" or not modelled.any():
        return []
    try:
        flops = training_flops(config)
    except InputError:  # a module without products is not counted, and its number is as good as any
        return []
    ratio = fixed * config.fleet.flops_per_cycle / flops
    if 1 / _FAR_OFF <= ratio <= _FAR_OFF:
        return []
    times = f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.2g} times"
    return [
        f"fleet.cycles_per_sample = {fixed:g} is {times} what {config.training.model} needs on "
        f"{config.data.dataset} ({flops:.4g} FLOPs per sample, {config.fleet.flops_per_cycle:g} "
        'per cycle); set it to "auto"'
    ]


def _uplink_warnings(radio: RadioConfig, links: Links, parameters: int) -> list[str]:
    """Warnings of uplinks that are weak, below the outage threshold, or far slower than others."""
    if links.types is not None:
        return _link_warnings(radio, links, parameters)
    snr, found = links.uplink_snr(), []
    bits = radio.bits_per_parameter * parameters
    seconds = links.transmit_seconds(bits, links.devices.power_watts, links.uplink_gain)
    if radio.uplink == "analog":  # whatever the SNR
        seconds = np.full(links.count, analog_seconds(parameters, radio.bandwidth_hz))
    if np.median(snr) < 1.0:
        found.append(_weak_uplinks(links, snr, seconds, parameters))
    outage_db = radio.outage_snr_db
    lost = 0 if outage_db is None else int((decibels(snr) < outage_db).sum())
    if lost:
        found.append(
            f"{lost} of {links.count} devices have a mean SNR at the base station below "
            f"radio.outage_snr_db = {outage_db:g} dB: most of their uploads will fail"
        )
    return found + _dominating_uplinks(links.devices, seconds)


def _link_warnings(radio: RadioConfig, links: Links, parameters: int) -> list[str]:
    """The same for each link type; but for `shannon` those out of its reach are named."""
    assert links.types is not None
    found, snr_db = [], decibels(links.uplink_snr())
    for name, own in links.types.devices():
        if name == SHANNON:
            plain = _uplink_warnings(radio, links.select(own), parameters)
            found += [f"devices with the link {SHANNON}: {words}" for words in plain]
            continue
        lowest = links.types.kinds[name].lowest_snr_db
        far = own[np.argsort(snr_db[own], kind="stable")]
        far = far[snr_db[far] < lowest]
        if far.size:
            shown = [f"{links.devices.ids[k]} ({snr_db[k]:.0f} dB)" for k in far[:5].tolist()]
            more = f" and {far.size - len(shown)} more" if far.size > len(shown) else ""
            found.append(
                f"device {', '.join(shown)}{more}: out of reach of the base station, which hears "
                f"{name} from {lowest:.1f} dB on; check the position or the measured uplink, "
                "choose another link, or leave the device out"
            )
    return found


def _dominating_uplinks(devices: Devices, seconds: Float64) -> list[str]:
    """A sentence that names the devices whose uploads take far longer than the median one."""
    ratio = seconds / np.median(seconds)
    slow = np.argsort(-ratio, kind="stable")[: int((ratio > DOMINATING_UPLINK).sum())]
    if not slow.size:
        return []
    shown = [f"{devices.ids[k]} ({_duration(float(seconds[k]))})" for k in slow[:5]]
    more = f" and {slow.size - len(shown)} more" if slow.size > len(shown) else ""
    return [
        f"device {', '.join(shown)}{more}: an upload takes more than {DOMINATING_UPLINK:g} "
        "times as long as the median one, so it dominates every round in which it sends; "
        "check the position or gain_db, or leave the device out"
    ]


def _weak_uplinks(links: Links, snr: Float64, seconds: Float64, parameters: int) -> str:
    """One sentence on what the median SNR does to time and noise."""
    middle = int(np.argsort(snr, kind="stable")[len(snr) // 2])
    noise = ""
    if links.radio.uplink in ("analog", "hybrid", "hybrid-weights"):
        raw = links.radio.uplink == "hybrid-weights"
        deviation = float(f"{float(snr[middle]) ** -0.5:.2g}")  # 3200 rather than 3.2e+03
        noise = (
            f", and the noise on each {'raw weight' if raw else 'entry of the normalised update'} "
            f"has a standard deviation of about {deviation:g}"
        )
    remedy = (
        "a nearer base station, more power or more antennas would help"
        if links.radio.noise_dbm is None
        else "leave radio.noise_dbm unset for the noise of a real receiver"
    )
    return (
        f"the SNR at the base station is about {float(decibels(snr[middle])):z.0f} dB (noise "
        f"{links.noise_watts:.3g} W): uploading a model of {parameters} parameters takes "
        f"about {_duration(float(seconds[middle]))} per device{noise}; {remedy}"
    )


def _duration(seconds: float) -> str:
    """A time in the largest unit that leaves a number of at least 1.5."""
    units = (("years", 31_557_600.0), ("weeks", 604_800.0), ("days", 86_400.0), ("hours", 3_600.0))
    for name, length in (*units, ("minutes", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.2g} seconds"
