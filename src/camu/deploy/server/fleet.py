"""The world of a deployment: the configured fleet, with what the nodes reported about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from camu.arrays import from_decibels, read_only_floats
from camu.config import Config
from camu.data import CATALOG
from camu.deploy.server.assignment import check_complete
from camu.deploy.wire.reports import DeviceReport, Refusal, Report, read_report
from camu.errors import CamuError
from camu.files import write_json
from camu.world import World, build_world
from camu.world.compute import update_samples
from camu.world.links import build_links
from camu.world.world import place_devices


def device_ids(config: Config) -> tuple[str, ...]:
    """The names of the fleet's devices: those of the fleet file, or 0, 1, ..."""
    if config.fleet.file is not None:
        return build_world(config).devices.ids
    return tuple(str(number) for number in range(config.fleet.devices))


def reported_world(config: Config, reports: Mapping[str, Report], measured: bool) -> World:
    """The world to plan for: label counts as reported, and no training data.

    With `measured`, a device's speed is the one it measured, not the configured one. Where a node
    knows its SNR at the base station, that replaces the path loss.
    """
    ids = device_ids(config)
    check_complete(reports, ids)
    by_id = {device.id: device for report in reports.values() for device in report.devices}
    told = [by_id[name] for name in ids]
    counts = np.array([device.label_counts for device in told], dtype=np.int64)
    seed = config.run.seed
    if config.fleet.file is not None:
        world = build_world(config)
        world = replace(world, devices=replace(world.devices, label_counts=counts))
    else:
        devices = place_devices(config, counts, seed)
        station = read_only_floats(config.fleet.base_station)
        links = build_links(config.radio, devices, station, seed)
        world = World(config, seed, devices, links, station, None)
    if measured:
        world = _with_measured_speed(world, told)
    return _with_known_snr(world, told)


def _with_measured_speed(world: World, told: list[DeviceReport]) -> World:
    seconds = np.array([device.update_seconds for device in told])
    samples = update_samples(world.devices, world.config.training)
    cpu_hz = world.devices.cycles_per_sample * samples / seconds
    return replace(world, devices=replace(world.devices, cpu_hz=cpu_hz))


def _with_known_snr(world: World, told: list[DeviceReport]) -> World:
    known = np.array([np.nan if d.snr_db is None else d.snr_db for d in told], dtype=np.float64)
    if np.isnan(known).all():
        return world
    links = world.links
    gain = from_decibels(known) * links.noise_watts / links.power_watts
    uplink = np.where(np.isnan(known), links.uplink_gain, gain)
    return replace(world, links=replace(links, uplink_gain=read_only_floats(uplink)))


def save_reports(path: Path, reports: Mapping[str, Report]) -> None:
    """Keep the reports, so that a restarted server plans the same although a node is away."""
    write_json(path, [report.to_dict() for _, report in sorted(reports.items())])


def load_reports(path: Path, config: Config) -> dict[str, Report]:
    """The reports of an earlier life of the server; empty if there was none."""
    if not path.exists():
        return {}
    classes = CATALOG[config.data.dataset].classes
    try:
        reports = [read_report(item, classes) for item in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError, Refusal) as error:
        raise CamuError(
            f"{path}: cannot be read ({error}); delete it to ask the nodes anew"
        ) from None
    return {report.name: report for report in reports}
