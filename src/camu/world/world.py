"""Everything that is true before learning starts: devices, their data, their links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, decibels, read_only_floats, read_only_ints
from camu.config import Config, load_config
from camu.notebook import COLOURS, html_table
from camu.seeding import derive
from camu.world.devices import Devices
from camu.world.fleet_file import parse_fleet
from camu.world.links import Links, build_links

if TYPE_CHECKING:
    from camu.data import Federation

DOMINATING_UPLINK = 1000.0  # times the median upload: a warning names such a device
PAPER_MODEL_PARAMETERS = 21_880  # the paper's CNN, the default model of warnings


@dataclass(frozen=True, eq=False)
class World:
    """The wireless fleet that a scheme plans for; one value, a function of the configuration.

    Attributes:
        config: the configuration that the world was built from.
        links: the devices, their gains and SNR, and the times of transmissions.
        federation: the training data of every device; None for a fleet file or for reports.
    """

    config: Config
    links: Links
    federation: Federation | None = None

    @property
    def seed(self) -> int:
        """The seed of everything random, run.seed."""
        return self.config.run.seed

    @property
    def devices(self) -> Devices:
        """The devices of the fleet."""
        return self.links.devices

    @property
    def base_station(self) -> Float64:
        """Position of the base station (3,), metres."""
        return read_only_floats(self.config.fleet.base_station)

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(warning)}</p>" for warning in self.warnings())
        return f"<div>{world_html(self.links, self.base_station)}{notes}</div>"

    def with_devices(self, **changes: Any) -> World:
        """The same world with fields of its devices replaced, for example ``cpu_hz=...``."""
        devices = replace(self.devices, **changes)
        return replace(self, links=replace(self.links, devices=devices))

    def warnings(self, parameters: int = PAPER_MODEL_PARAMETERS) -> list[str]:
        """What a user should know before trusting a plan in this world; empty if all is well."""
        snr = self.links.uplink_snr()
        found = []
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
            f"the SNR at the base station is about {float(decibels(snr[middle])):.0f} dB (noise "
            f"{self.links.noise_watts:.3g} W): uploading a model of {parameters} parameters takes "
            f"about {_duration(float(seconds))} per device{noise}; {remedy}"
        )


def build_world(
    config: Config, seed: int | None = None, label_counts: npt.ArrayLike | None = None
) -> World:
    """The world of a configuration.

    The devices are in the configured regions, with training data dealt to them, or they come from
    the fleet file, without training data.

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
        The world, without training data: it can be planned, but not trained.
    """
    files = {"fleet.file": str(path), "fleet.snr_file": None if snr_file is None else str(snr_file)}
    return build_world((config or load_config()).replace(files))


def _world_of_file(config: Config, path: str, label_counts: npt.ArrayLike | None) -> World:
    fleet = parse_fleet(path, config.fleet.snr_file, config)
    devices = fleet.devices
    if label_counts is not None:
        devices = replace(devices, label_counts=read_only_ints(label_counts))
    links = _links(
        config, devices, gains=fleet.gains, distances_m=fleet.distances_m, snr_db=fleet.snr_db
    )
    return World(config, links)


def _links(config: Config, devices: Devices, **measured: Float64 | None) -> Links:
    base_station = read_only_floats(config.fleet.base_station)
    return build_links(config.radio, devices, base_station, config.run.seed, **measured)


def place_devices(config: Config, label_counts: npt.ArrayLike) -> Devices:
    """Devices at random places of the configured regions, with CPUs drawn from the interval."""
    fleet, seed = config.fleet, config.run.seed
    count = fleet.devices
    generator = derive(seed, "positions").numpy()
    boxes = [np.array([region.x, region.y, region.z]) for region in fleet.regions]
    positions = np.concatenate(
        [
            generator.uniform(box[:, 0], box[:, 1], size=(region.devices, 3))
            for box, region in zip(boxes, fleet.regions, strict=True)
        ]
    )
    everyone = np.ones(count)
    return Devices(
        ids=tuple(str(index) for index in range(count)),
        positions=positions,
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


LARGEST_MAP = 2000  # devices drawn
_WIDTH, _HEIGHT, _MARGIN = 420.0, 240.0, 12.0


def world_html(links: Links, base_station: Float64) -> str:
    """A table with devices, samples and SNR per region, and an SVG map where positions are known.

    SNR is that at the base station without fading.
    """
    devices = links.devices
    names = list(dict.fromkeys(devices.regions))
    number = {name: index for index, name in enumerate(names)}
    regions = np.array([number[region] for region in devices.regions], dtype=np.int64)
    parts = [_table(links, names, regions)]
    placed = ~np.isnan(devices.positions[:, 0])
    if placed.any():
        parts += [_map(devices, base_station[:2], regions, placed), _legend(names)]
    return "".join(parts)


def _table(links: Links, names: Sequence[str], regions: Int64) -> str:
    snr_db = decibels(links.uplink_snr())
    groups = {name or "devices": regions == number for number, name in enumerate(names)}
    if len(groups) > 1:
        groups["all"] = np.ones(len(regions), dtype=np.bool_)
    rows = []
    for name, mine in groups.items():
        samples, snr = links.devices.samples[mine], snr_db[mine]
        numbers = (f"{mine.sum()}", f"{samples.sum()}", f"{np.median(samples):g}")
        rows.append((name, *numbers, f"{np.median(snr):.1f}", f"{snr.min():.1f}"))
    head = ("region", "devices", "samples", "median samples", "median SNR, dB", "lowest SNR, dB")
    title = f"World of {links.count} devices, seed {links.seed}"
    return html_table(head, rows, title)


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    return (
        "<div>"
        + " ".join(
            f'<span style="color:{COLOURS[number % len(COLOURS)]}">&#9679;</span> {escape(name)}'
            for number, name in enumerate(names)
        )
        + "</div>"
    )


def _map(devices: Devices, station: Float64, regions: Int64, placed: npt.NDArray[np.bool_]) -> str:
    shown = np.flatnonzero(placed)
    shown = shown[:: -(-len(shown) // LARGEST_MAP)]
    x, y = _to_picture(np.vstack([devices.positions[shown, :2], station]))
    dots = [
        f'<circle cx="{x[k]:.1f}" cy="{y[k]:.1f}" r="3" '
        f'fill="{COLOURS[regions[device] % len(COLOURS)]}">'
        f"<title>{escape(devices.ids[device])}: {int(devices.samples[device])} samples"
        "</title></circle>"
        for k, device in enumerate(shown.tolist())
    ]
    mast = f"M{x[-1]:.1f} {y[-1] - 7:.1f}l6 12h-12z"
    dots.append(f'<path d="{mast}" fill="currentColor"><title>base station</title></path>')
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" width="{_WIDTH:g}" height="{_HEIGHT:g}" '
        'role="img" aria-label="Map of the devices and the base station">'
        + "".join(dots)
        + "</svg>"
    )


def _to_picture(places: Float64) -> tuple[Float64, Float64]:
    """Places in metres as picture coordinates: one scale for both axes, y upwards, centred."""
    low, high = places.min(axis=0), places.max(axis=0)
    room = np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN
    scale = float((room / np.maximum(high - low, 1e-9)).min())
    centred = (places - 0.5 * (low + high)) * scale
    return centred[:, 0] + 0.5 * _WIDTH, 0.5 * _HEIGHT - centred[:, 1]
