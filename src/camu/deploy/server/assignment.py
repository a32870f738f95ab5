"""Who holds what: which node trains which device, from what the nodes reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from camu.deploy.deployment import Granularity
from camu.deploy.wire.reports import Report
from camu.errors import CamuError, InputError
from camu.schemes import Plan


def assign(
    reports: Mapping[str, Report], plan: Plan, ids: Sequence[str], granularity: Granularity
) -> dict[int, str]:
    """The node of every device, by the device's index; nodes go by their own names.

    The nodes of a trial can hold any data: unit i (`leader`) or device i (`device`) is trained on
    node i modulo their number. Nodes with their own data train the devices they hold; in
    granularity `leader` a unit's devices must then be on one node.
    """
    trial = sorted((r.partition, name) for name, r in reports.items() if r.partition is not None)
    if trial:
        names = [name for _, name in trial]
        if granularity == "device":
            return {k: names[k % len(names)] for unit in plan.units for k in unit.members}
        return {
            k: names[number % len(names)]
            for number, unit in enumerate(plan.units)
            for k in unit.members
        }
    holder = {device.id: name for name, report in reports.items() for device in report.devices}
    hosts = {k: holder[ids[k]] for unit in plan.units for k in unit.members}
    if granularity == "leader":
        for number, unit in enumerate(plan.units):
            apart = {hosts[k]: ids[k] for k in unit.members}
            if len(apart) > 1:
                raise InputError(
                    f"unit {number}: its devices {' and '.join(list(apart.values())[:2])} are on "
                    "different nodes; let one gateway hold them, or use --granularity device"
                )
    return hosts


def check_complete(reports: Mapping[str, Report], ids: Sequence[str]) -> None:
    """Refuse reports that leave a device of the fleet out, or that hold one twice."""
    seen: dict[str, str] = {}
    for name, report in sorted(reports.items()):
        for device in report.devices:
            if device.id in seen:
                raise CamuError(
                    f"device {device.id} is reported by the nodes {seen[device.id]} and {name}; "
                    "give every device to one node"
                )
            seen[device.id] = name
    if strangers := sorted(set(seen) - set(ids)):
        raise CamuError(
            f"node {seen[strangers[0]]} holds device {strangers[0]}, which the fleet does not "
            "have; name the devices as in fleet.file, or 0, 1, ... where there is none"
        )
    if missing := missing_devices(reports, ids):
        raise CamuError(
            f"no node holds device {missing[0]} ({len(missing)} of {len(ids)} devices are "
            "missing); start its node, or leave it out of the fleet"
        )


def missing_devices(reports: Mapping[str, Report], ids: Sequence[str]) -> list[str]:
    """The devices of the fleet that no node has reported."""
    seen = {device.id for report in reports.values() for device in report.devices}
    return [name for name in ids if name not in seen]
