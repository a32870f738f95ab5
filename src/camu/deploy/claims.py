"""What a node may claim: the devices that its key was registered for, and no key's but its own.

The SuperLink checks the signature of every call, so it knows the key behind each node. The owner
binds devices to a key when he registers it; the binding is kept with the key, in the name that
Flower gives a node.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from camu.deploy.reports import Refusal, Report
from camu.errors import InputError

FEWEST = 3  # devices of other nodes; fewer have no median to compare with
BINDING = "devices="  # begins the name of a node whose key is bound to devices


@dataclass(frozen=True)
class Owner:
    """The registered key behind a node, and the devices that it is bound to (None: to none)."""

    key: str
    devices: frozenset[str] | None = None


def binding(devices: Sequence[str]) -> str:
    """The name of a node whose key is bound to devices."""
    names = [name.strip() for name in devices]
    if not all(names) or len(set(names)) < len(names):
        raise InputError(f"--devices {','.join(devices)}: name each device once, as in a,b,c")
    return BINDING + ",".join(sorted(names))


def owners(nodes: Iterable[Any]) -> dict[int, Owner]:
    """The owners of Flower's nodes by their ids; a node that nobody registered has none."""
    return {int(node.node_id): _owner(node) for node in nodes if node.name and node.public_key}


def _owner(node: Any) -> Owner:
    key = hashlib.sha256(node.public_key).hexdigest()
    if not node.name.startswith(BINDING):
        return Owner(key)
    return Owner(key, frozenset(node.name.removeprefix(BINDING).split(",")))


def check_claim(
    report: Report, node: int, known: Mapping[int, Owner], earlier: Report | None
) -> Report:
    """The report of a node with its key; a Refusal if it claims what is not its own.

    `known` has the owners of all nodes, and `earlier` is what a node of the same name reported.
    """
    owner = known.get(node, Owner(""))
    for other in known.values():
        if other.devices is None or other.key == owner.key:
            continue
        if taken := [device.id for device in report.devices if device.id in other.devices]:
            raise Refusal(f"it claims device {taken[0]}, which is registered for another key")
    if owner.devices is not None:
        strange = [device.id for device in report.devices if device.id not in owner.devices]
        if strange or report.partition is not None:
            what = f"device {strange[0]}" if strange else f"part {report.partition} of the data"
            raise Refusal(f"it claims {what}, which its key is not registered for")
    if earlier is not None and earlier.key not in ("", owner.key):
        raise Refusal(f"its key is not that of the node that reported {report.name} before")
    return replace(report, key=owner.key)


def too_many_samples(report: Report, others: Iterable[Report], multiple: float) -> str:
    """Why a node claims too many samples, compared with the other nodes; empty if it does not.

    A device counts by its samples, so without a limit one claim could outweigh all other devices.
    A multiple of 0 sets no limit.
    """
    known = [sum(device.label_counts) for other in others for device in other.devices]
    if multiple <= 0 or len(known) < FEWEST:
        return ""
    middle = statistics.median(known)
    for device in report.devices:
        if (claimed := sum(device.label_counts)) > multiple * middle:
            return (
                f"device {device.id} claims {claimed} samples, more than {multiple:g} times the "
                f"median of the other nodes' devices ({middle:g}); if it is true, raise "
                "--most-samples"
            )
    return ""
