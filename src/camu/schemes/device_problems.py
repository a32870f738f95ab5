"""The problems per device of a plan: its devices, its work, and limits that its round sets."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from camu.allocation.device_problem import DeviceProblem
from camu.allocation.solve import DEVICE_PROBLEMS
from camu.arrays import Float64, from_decibels
from camu.errors import InputError, suggest
from camu.planning.cells import refuse_cells
from camu.planning.packets import WATERFALL
from camu.planning.plan import Plan
from camu.world import World
from camu.world.devices import static_watts

_SLOWEST, _WEAKEST = 0.1, 1e-3  # least frequency and power of fedl, as shares of the largest


def device_problem(kind: str, plan: Plan, world: World) -> DeviceProblem:
    """A problem per device whose limits are what a round of the plan takes.

    `ofdma-energy`: its seconds. `ofdma-time`: its joules. `fedl`: a second is worth the joules of a
    second of it. `resource-blocks`: its seconds and the most joules of a device, one block of equal
    width per device without interference. Limits of joules are those of equal shares of the band:
    a device that sends over all of it has its circuits on for less time. Idle power is on top.
    """
    if kind not in DEVICE_PROBLEMS:
        known = ", ".join(DEVICE_PROBLEMS)
        raise InputError(
            f"--kind {kind}: no such kind{suggest(kind, DEVICE_PROBLEMS)}; use {known}"
        )
    keys = _devices(kind, plan, world)
    count, bandwidth = len(plan.units), keys["bandwidth_hz"]
    seconds = plan.round_seconds - float(plan.column("downlink_seconds").max())
    shared = _busy_joules(equal_shares(plan, world))
    if kind == "ofdma-energy":
        keys["deadline_seconds"] = seconds
    elif kind == "ofdma-time":
        keys["energy_joules"] = float(shared.sum())
    elif kind == "fedl":
        keys["min_hz"] = _SLOWEST * keys["max_hz"]
        keys["min_power_watts"] = _WEAKEST * keys["max_power_watts"]
        keys["joules_per_second"] = float(_busy_joules(plan).sum()) / seconds
    else:
        keys["samples"] = plan.column("samples").astype(float)
        keys["interference_watts"] = [0.0] * count
        keys["waterfall"] = WATERFALL
        keys["deadline_seconds"] = seconds
        keys["device_energy_joules"] = float(shared.max())
        keys |= {"bandwidth_hz": bandwidth / count, "noise_watts": keys["noise_watts"] / count}
    return DEVICE_PROBLEMS[kind][0](**keys, source="plan")


def equal_shares(plan: Plan, world: World) -> Plan:
    """The plan with equal shares of the band, all at the same time."""
    share = world.links.radio.bandwidth_hz / len(plan.units)
    shares = plan.with_columns(bandwidth_hz=[share] * len(plan.units))
    return replace(shares, access="ofdma").repriced(world)


def refuse_link_types(reason: str, world: World) -> None:
    """Refuse a fleet with other link types than `shannon`."""
    types = world.links.types
    if types is not None:
        other = next(iter(types.kinds))
        raise InputError(
            f"{reason}, and some devices have the link {other}; set radio.link (or the column "
            "link) to shannon, or take another scheme"
        )


def _devices(kind: str, plan: Plan, world: World) -> dict[str, Any]:
    """The devices of a plan, their work in a round, and the band."""
    if any(len(unit.members) > 1 for unit in plan.units):
        raise InputError(
            f"{kind}: the plan of {plan.scheme} has units of several devices; plan a scheme "
            "without clusters, such as fedavg"
        )
    bits = plan.column("payload_bits")
    if (bits != bits[0]).any():
        raise InputError(f"{kind}: the units of {plan.scheme} send updates of unlike sizes")
    if world.config.readings.compute_model == "literal":
        raise InputError(
            f'{kind}: readings.compute_model = "literal" knows no frequency; set "cycles"'
        )
    if world.config.radio.uplink == "analog":
        raise InputError(
            f'scheme {kind}: it divides the band for bits, and radio.uplink = "analog" sends none; '
            "set radio.uplink to digital"
        )
    refuse_link_types(f"scheme {kind}: it divides one band at Shannon's rate", world)
    refuse_cells(world, f"scheme {kind}: it divides one band")
    devices, links = world.devices, world.links
    leaders, most_bits = plan.column("leader"), links.radio.max_bits_per_hz
    most = devices.cpu_hz[leaders]
    cycles = plan.column("compute_seconds") * most
    full, busy = _full_joules(plan), plan.column("compute_seconds")
    # Devices whose measured joules are fewer than those of static power never slow down.
    static = np.minimum(static_watts(devices, world.config.readings)[leaders], full / busy)
    return {
        "cycles": cycles,
        "capacitance": np.maximum(full - static * busy, 0.0) / (cycles * most**2),
        "static_watts": static,
        "circuit_watts": links.radio.circuit_watts,
        "amplifier_efficiency": links.radio.amplifier_efficiency,
        "max_hz": most,
        "gain": links.uplink_gain[leaders],
        "max_power_watts": devices.max_power_watts[leaders],
        "bandwidth_hz": links.radio.bandwidth_hz,
        "noise_watts": links.noise_watts,
        "snr_gap": float(from_decibels(links.radio.snr_gap_db)),
        "max_bits_per_hz": most_bits if math.isfinite(most_bits) else None,
        "payload_bits": float(bits[0]),
    }


def _full_joules(plan: Plan) -> Float64:
    """What computing costs each unit in a round at full speed."""
    per_update = np.array([unit.per_update.compute_joules for unit in plan.units])
    return np.asarray(plan.column("local_updates") * per_update, dtype=np.float64)


def _busy_joules(plan: Plan) -> Float64:
    """What computing at full speed and sending cost each unit in a round."""
    return _full_joules(plan) + plan.column("uplink_joules")
