"""Random problems per device, and their energies written out once more."""

from __future__ import annotations

from typing import Any

import numpy as np

REAL = {"circuit_watts": 0.4, "amplifier_efficiency": 0.3, "static_watts": 0.2}


def random_devices(index: int, count: int) -> dict[str, Any]:
    """Devices and a band as keys of a problem: gains over three decades, unequal computers."""
    draw = np.random.default_rng(index)
    return {
        "cycles": draw.uniform(1e8, 1e9, count),
        "capacitance": 10 ** draw.uniform(-28.5, -27.5, count),
        "max_hz": draw.uniform(1e9, 2e9, count),
        "gain": 10 ** draw.uniform(-12, -9, count),
        "max_power_watts": draw.uniform(0.05, 0.2, count),
        "bandwidth_hz": 2e5 * count,
        "noise_watts": 4e-21 * 2e5 * count,
        "payload_bits": 3e5,
    }


def round_joules(
    keys: dict[str, Any], deadline: float, air: Any, band: Any, computing: Any = None
) -> Any:
    """Energy of each device that sends for so long over such a band and computes before."""
    rate = keys["payload_bits"] / np.asarray(air)
    density = keys.get("snr_gap", 1.0) * keys["noise_watts"] / keys["bandwidth_hz"]
    power = density * band * (2 ** (rate / band) - 1) / keys["gain"]
    computing = deadline - air if computing is None else computing
    cpu = keys["cycles"] / computing
    drawn = power / keys.get("amplifier_efficiency", 1.0) + keys.get("circuit_watts", 0.0)
    static = keys.get("static_watts", 0.0) * computing
    return keys["capacitance"] * keys["cycles"] * cpu**2 + static + drawn * air
