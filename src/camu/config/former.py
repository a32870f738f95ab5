"""Keys of earlier versions: what a user writes instead, and how saved runs are read."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Former:
    """A key that was renamed or dropped."""

    now: str  # ends the sentence "`section.key` ..."
    translate: Callable[[Any], Mapping[str, Any]] = lambda _value: {}  # its value in present keys


def _renamed(key: str) -> Former:
    return Former(f"is now `{key}`", lambda value: {key: value})


def _moved(old: str, new: str, *keys: str) -> dict[str, Former]:
    return {f"{old}.{key}": _renamed(f"{new}.{key}") for key in keys}


def _parameter(name: str, usual: Any) -> Former:
    """A parameter that had a key; the value that schemes have anyway is left out."""
    key = f"scheme.parameters.{name}"
    return Former(f"is now `{key}`", lambda value: {} if value == usual else {key: value})


def _batch(value: Any) -> Mapping[str, Any]:
    if isinstance(value, int | float) and 1 < value < math.inf:
        return {"training.batch_samples": round(value)}
    return {"training.batch_fraction": value}


# What these keys were taken for before their defaults became those of real devices.
_IDEAL: Mapping[str, Mapping[str, float]] = {
    "fleet": {"idle_watts": 0.0, "static_watts": 0.0, "min_hz": 1.0},
    "radio": {
        "snr_gap_db": 0.0,
        "max_bits_per_hz": math.inf,
        "amplifier_efficiency": 1.0,
        "circuit_watts": 0.0,
    },
}
_UPLINKS = {"update": "hybrid", "weights": "hybrid-weights"}
_NOISE_DBM = {"matters": -90.0, "harsh": -80.0, "literal": -10.0}


def _noise(value: Any) -> Mapping[str, Any]:
    return {"radio.noise_dbm": _NOISE_DBM[value]} if value in _NOISE_DBM else {}


def _quantile(value: Any) -> Mapping[str, Any]:
    return {"clustering.preference_quantile": value} if 0 <= value <= 1 else {}


def _sizes(value: Any) -> Mapping[str, Any]:
    return {"data.size_exponent": 1.0} if value == "power-law" else {}


def _fixed(key: str, constant: float) -> Former:
    """A key that became a constant; a saved run with another value is not what it says now."""

    def read(value: Any) -> Mapping[str, Any]:
        if value != constant:
            logger.warning("%s = %s of a saved run is read as %s", key, value, constant)
        return {}

    return Former(f"is no key any more; it is always {constant:g}", read)


_CONSTANTS = {
    "clustering.convergence_iter": 15,
    "clustering.max_iter": 400,
    "clustering.two_level_above": 3000,
    "radio.reference_m": 1.0,
    "radio.waterfall_db": 0.023,
    "readings.compute_watts": 0.5,
    "fleet.compute_watts": 0.5,
    "allocation.convexity": 0.01,
    "allocation.smoothness": 1.0,
    "allocation.dissimilarity": 1.0,
}
FORMER: Mapping[str, Former] = {
    **_moved(
        *("fleet", "faults", "dropout_probability", "dropout_trace", "availability_trace"),
        *("leader_failure_probability", "corrupt_probability"),
    ),
    **_moved(
        *("run", "machine", "engine", "workers", "kernel", "checkpoint_every"),
    ),
    **{
        f"{section}.{name}": Former(f'is now `machine.callbacks = ["{name}"]`')
        for section in ("run", "machine")
        for name in ("tensorboard", "mlflow")
    },
    **_moved("allocation", "readings", "bound", "power_law", "updates_charged", "ppo_reward"),
    "fleet.compute_model": _renamed("readings.compute_model"),
    "run.device": Former(
        "is now `machine.device`",
        lambda value: {"machine.device": "cpu" if value == "auto" else value},
    ),
    "run.target_accuracy": _renamed("run.target"),
    "contribution.w_min": _renamed("readings.w_min"),
    **{key: _fixed(key, constant) for key, constant in _CONSTANTS.items()},
    "clustering.preference_value": Former("is now `clustering.preference_quantile`"),
    "clustering.data_preference": Former("is no key any more; it is always a quantile"),
    "clustering.data_preference_value": Former(
        "is now `clustering.preference_quantile`", _quantile
    ),
    "radio.noise": Former(
        "is now `radio.noise_dbm`: unset for thermal noise, -90 for `matters`, -80 for `harsh`, "
        "-10 for `literal`",
        _noise,
    ),
    "data.sizes": Former(
        "is now `data.size_exponent`: 0 for `equal`, 1 or another exponent for `power-law`", _sizes
    ),
    "scheme.threshold": _parameter("threshold", None),
    "scheme.threshold_quantile": _parameter("threshold_quantile", 0.5),
    "scheme.max_extra_updates": _parameter("max_extra_updates", 4),
    "scheme.local_updates": _parameter("local_updates", 2),
    "scheme.plan_seconds": Former("was dropped: planning has no time limit"),
    "training.batch": Former(
        "is now `training.batch_fraction` (of a device's data) or `training.batch_samples`", _batch
    ),
}


def translated(document: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that any version saved, in the keys of this version."""
    found = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in document.items()
    }
    if found.get("data", {}).get("sizes") == "equal":
        found["data"]["size_exponent"] = 0.0  # saved files have an exponent that was not used
    for old, former in FORMER.items():
        section, _, key = old.partition(".")
        keys = found.get(section)
        if isinstance(keys, dict) and key in keys:
            for name, value in former.translate(keys.pop(key)).items():
                *sections, key = name.split(".")
                target = found
                for section in sections:
                    target = target.setdefault(section, {})
                target.setdefault(key, value)
    radio = found.get("radio", {})
    if "idle_watts" not in found.get("fleet", {}):  # saved when devices were ideal by default
        for section, ideal in _IDEAL.items():
            found[section] = {**ideal, **found.get(section, {})}
        radio = found["radio"]
        if not radio.get("downlink", False):
            radio["receive_watts"] = 0.0  # gathers were heard for nothing
    if radio.get("uplink") in _UPLINKS:
        radio["uplink"] = _UPLINKS[radio["uplink"]]
    scheme = found.get("scheme", {})
    if scheme.get("name") == "camu-balanced" and "slow_down" in scheme.get("parameters", {}):
        given = dict(scheme["parameters"])
        scheme["parameters"] = {"dvfs": given.pop("slow_down"), **given}
    return found
