"""Limits of the parameters of the built-in schemes, by name; the same name means the same."""

from __future__ import annotations

import math
from collections.abc import Mapping

from camu.errors import InputError

ANY_POSITIVE = (math.ulp(0.0), math.inf)
PROPER_SHARE = (math.ulp(0.0), 1.0)
SHARE = (0.0, 1.0)
FROM_ZERO = (0.0, math.inf)
FROM_ONE = (1.0, math.inf)

# The smallest and the largest value of each parameter.
LIMITS: Mapping[str, tuple[float, float]] = {
    "adaptivity": ANY_POSITIVE,
    "beta1": SHARE,
    "beta2": SHARE,
    "buffer": FROM_ONE,
    "closeness": FROM_ZERO,
    "clusters_per_area": FROM_ONE,
    "control": ANY_POSITIVE,
    "damping": FROM_ZERO,
    "decay": FROM_ZERO,
    "discrepancy": FROM_ZERO,
    "drift": FROM_ZERO,
    "energy_price": SHARE,
    "exploration": SHARE,
    "exploration_factor": SHARE,
    "fastest_updates": FROM_ONE,
    "first": FROM_ZERO,
    "gathers": FROM_ONE,
    "groups": FROM_ONE,
    "least": FROM_ONE,
    "least_exploration": SHARE,
    "levels": FROM_ONE,
    "local_updates": FROM_ONE,
    "max_extra_updates": FROM_ZERO,
    "max_staleness": FROM_ONE,
    "max_updates": FROM_ONE,
    "mixing": PROPER_SHARE,
    "momentum": SHARE,
    "most": (2.0, math.inf),
    "most_updates": FROM_ONE,
    "optimism": FROM_ZERO,
    "participants": FROM_ZERO,
    "penalty": FROM_ZERO,
    "pilot_rounds": (2.0, math.inf),
    "power_watts": ANY_POSITIVE,
    "preference_quantile": SHARE,
    "proximal": FROM_ZERO,
    "ratio": ANY_POSITIVE,
    "server_rate": ANY_POSITIVE,
    "share": PROPER_SHARE,
    "share_per_update": PROPER_SHARE,
    "shift": ANY_POSITIVE,
    "size": FROM_ONE,
    "smoothing": PROPER_SHARE,
    "speed_quantile": SHARE,
    "steps": FROM_ONE,
    "strength": ANY_POSITIVE,
    "threshold": FROM_ZERO,
    "threshold_quantile": SHARE,
    "tiers": FROM_ONE,
    "updates": FROM_ZERO,
}


def check_limits(scheme: str, values: Mapping[str, object]) -> None:
    """Refuse a number outside its limits."""
    for name, value in values.items():
        low, high = LIMITS.get(name, (-math.inf, math.inf))
        if isinstance(value, int | float) and not low <= value <= high:
            least = f"at least {low:g}" if low >= 1 or low == 0 else "positive"
            most = "" if math.isinf(high) else f" and at most {high:g}"
            raise InputError(f"scheme {scheme}: {name} = {value} must be {least}{most}")
