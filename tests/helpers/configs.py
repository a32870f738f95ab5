"""A configuration that runs in a second or two."""

from __future__ import annotations

import math
from typing import Any

from camu.config import Config, load_config

# Shannon's rate and no power but what is radiated and what the clock takes, as in the paper.
IDEAL = {
    "fleet.idle_watts": 0.0,
    "fleet.static_watts": 0.0,
    "fleet.min_hz": 1.0,
    "radio.snr_gap_db": 0.0,
    "radio.max_bits_per_hz": math.inf,
    "radio.amplifier_efficiency": 1.0,
    "radio.circuit_watts": 0.0,
    "radio.receive_watts": 0.0,
}


def small(**changes: Any) -> Config:
    """Preset `demo` with ideal devices, two rounds, one worker; ``run__seed=3`` is ``run.seed``."""
    base = {**IDEAL, "run.rounds": 2, "run.eval_every": 1, "machine.workers": 1}
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return load_config(preset="demo").replace({**base, **dotted})
