"""The world of a deployment: the configured fleet as the nodes reported it, and who trains whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from camu.arrays import from_decibels, read_only_floats
from camu.config import Config
from camu.data import dataset_spec
from camu.deploy.array_records import Refusal
from camu.deploy.deployment import Granularity
from camu.deploy.messages import REPORTS, DeviceReport, Report, check_report, name_some, parse
from camu.errors import CamuError, InputError
from camu.files import write_text
from camu.learning.job import Job
from camu.learning.method import Method
from camu.planning.plan import Plan
from camu.planning.secure import FEWEST
from camu.schemes import Scheme, plans
from camu.schemes.limits import with_limited_weights
from camu.world import World, build_world
from camu.world.devices import update_samples
from camu.world.fleet_file import parse_fleet


def device_ids(config: Config) -> tuple[str, ...]:
    """The names of the fleet's devices: those of the fleet file, or 0, 1, ...

    A fleet file is checked whole, before nodes are asked; no links are computed.
    """
    if config.fleet.file is not None:
        return parse_fleet(config.fleet.file, config.fleet.snr_file, config).devices.ids
    return tuple(str(number) for number in range(config.fleet.devices))


def reported_world(config: Config, reports: Mapping[str, Report], measured: bool) -> World:
    """The world to plan for: label counts and their noise as reported, and no training data.

    It has all devices of the fleet; one that no node has reported has no samples.

    With `measured`, a device's time and, where it has a meter, its energy are those that it
    measured, not those of the configured models: a frequency is never derived from measured time,
    because energy would follow its square. A known SNR at the base station replaces the path loss.
    """
    ids = device_ids(config)
    by_id = {device.id: device for report in reports.values() for device in report.devices}
    classes = dataset_spec(config.data).classes
    devices = [by_id.get(name, DeviceReport(name, (0,) * classes, None)) for name in ids]
    counts = np.array([device.label_counts for device in devices], dtype=np.int64)
    noise = {d.id: r.epsilon for r in reports.values() for d in r.devices if r.epsilon is not None}
    epsilon = read_only_floats([noise.get(name, np.nan) for name in ids])
    world = build_world(config, label_counts=counts).with_devices(label_epsilon=epsilon)
    # What a node did not measure is None, and nan in an array.
    seconds, joules, snr_db = (
        np.array([getattr(device, name) for device in devices], dtype=np.float64)
        for name in ("update_seconds", "update_joules", "snr_db")
    )
    if measured:
        samples = np.maximum(update_samples(world.devices, config.training), 1)
        world = world.with_devices(sample_seconds=seconds / samples, sample_joules=joules / samples)
    if np.isnan(snr_db).all():
        return world
    links = world.links
    gain = from_decibels(snr_db) * links.own_noise_watts / links.devices.power_watts
    uplink = np.where(np.isnan(snr_db), links.uplink_gain, gain)
    return replace(world, links=replace(links, uplink_gain=read_only_floats(uplink)))


def plan_known(
    world: World, scheme: Scheme, known: Sequence[int], measured: bool = False, clip: float = 0.0
) -> Plan:
    """The scheme's plan for the devices that were reported; the others are in no unit.

    Nodes do not change their frequency, so where time and joules are measured, none slows down.
    Weights follow from what nodes claim of their data, so `clip` limits them
    to so many times that of the median device; 0: not at all.
    """
    whole = len(known) == world.devices.count
    plan = plans.plan(scheme, world if whole else replace(world, links=world.links.select(known)))
    if not whole:
        units = [
            replace(unit, members=tuple(known[k] for k in unit.members), leader=known[unit.leader])
            for unit in plan.units
        ]
        plan = replace(plan, units=tuple(units))
    if measured and plan.dvfs != "none":
        plan = replace(plan, dvfs="none").repriced(world)
    return with_limited_weights(plan, clip)


def assign(
    reports: Mapping[str, Report],
    plan: Plan,
    ids: Sequence[str],
    granularity: Granularity,
    secure: bool = False,
) -> dict[int, str]:
    """The name of the node that trains each device that was reported, by the device's index.

    The nodes of a trial can hold any data: node i modulo their number trains unit i (`leader`) or
    device i (`device`). Nodes with their own data train the devices that they hold; in granularity
    `leader` the devices of a unit must then be on one node. With secure sums they may be on several
    nodes, and those of a trial are.
    """
    trial = sorted((r.partition, name) for name, r in reports.items() if r.partition is not None)
    if trial:
        names = [name for _, name in trial]
        hosts = {k: names[k % len(names)] for k in range(len(ids))}
        for number, unit in enumerate(plan.units):
            if secure:
                places = (names[(number + k) % len(names)] for k in range(len(unit.members)))
                hosts.update(zip(unit.members, places, strict=True))
                check_hidden(unit.members, hosts, ids)
            elif granularity == "leader":
                hosts.update(dict.fromkeys(unit.members, names[number % len(names)]))
        return hosts
    holder = {device.id: name for name, report in reports.items() for device in report.devices}
    hosts = {k: holder[name] for k, name in enumerate(ids) if name in holder}
    if granularity == "leader":
        check = check_hidden if secure else check_together
        for unit in plan.units:
            check(unit.members, hosts, ids)
    return hosts


def check_hidden(members: Sequence[int], hosts: Mapping[int, str], ids: Sequence[str]) -> None:
    """Refuse a unit in whose sum a device could be seen."""
    nodes = len({hosts[k] for k in members})
    if len(members) < FEWEST or 1 < nodes < FEWEST:
        named = name_some([ids[k] for k in members])
        raise InputError(
            f"training.secure_sum = unit: the unit of {named} has {len(members)} devices on "
            f"{nodes} nodes, and a sum hides the part of a node among {FEWEST} or more, or the "
            "devices of one gateway; set a lower clustering.count, use more nodes, or leave it out"
        )


def check_together(members: Sequence[int], hosts: Mapping[int, str], ids: Sequence[str]) -> None:
    """Refuse a unit whose devices are on different nodes."""
    apart = {hosts[k]: ids[k] for k in members}
    if len(apart) > 1:
        raise InputError(
            f"one unit has the devices {' and '.join(list(apart.values())[:2])}, which are on "
            "different nodes; let one gateway hold them, or use --granularity device"
        )


def is_apart(members: Sequence[int], hosts: Mapping[int, str], ids: Sequence[str]) -> bool:
    """Whether a unit is on several nodes, so that its members mask what they send."""
    check_hidden(members, hosts, ids)
    return len({hosts[k] for k in members}) > 1


def check_states(config: Config, jobs: Sequence[Job]) -> None:
    """Refuse what lasts for several updates, where these come as tasks of their own."""
    method = Method.of(config.training)
    lost = config.training.optimiser_state == "reset"
    if any(lost and job.updates > 1 and method.under(job.rule).has_state for job in jobs):
        raise InputError(
            "training.momentum and Adam of a device last for a round, and with --granularity "
            "device or training.secure_sum each local update is a task of its own; use "
            "--granularity leader, one local update per round, or training.optimiser_state = "
            "keep (without secure sums)"
        )
    if any(job.own for job in jobs):
        raise InputError(
            f"scheme.name = {config.scheme.name}: its devices also train for "
            "themselves, once per round; use --granularity leader"
        )


def save_reports(path: Path, reports: Mapping[str, Report]) -> None:
    """Keep the reports, so that a restarted server plans the same although a node is away."""
    ordered = tuple(report for _, report in sorted(reports.items()))
    write_text(path, REPORTS.dump_json(ordered, indent=2).decode() + "\n")


def load_reports(path: Path, config: Config) -> dict[str, Report]:
    """The reports that an earlier start of the server kept; empty if there are none.

    The nodes of a trial get new keys at every start, so their old ones are forgotten.
    """
    if not path.exists():
        return {}
    classes = dataset_spec(config.data).classes
    try:
        kept = parse(REPORTS, path.read_bytes(), "its reports")
        known = [r if r.partition is None else replace(r, key="") for r in kept]
        return {report.name: check_report(report, classes) for report in known}
    except (OSError, Refusal) as error:
        raise CamuError(
            f"{path}: cannot be read ({error}); delete it to ask the nodes again"
        ) from None
