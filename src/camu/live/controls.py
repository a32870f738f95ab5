"""The controls of the page, made from the configuration: sentence, unit, limits and choices."""

from __future__ import annotations

import math
from typing import Any

from camu.config import Config
from camu.config.keys import accepted_values, section_keys
from camu.live.state import FIXED
from camu.schemes import SCHEMES, describe

# The settings that matter most: a name, the span of the slider, and whether it is logarithmic.
MAIN: dict[str, tuple[str, float, float, bool]] = {
    "scheme.threshold_quantile": ("threshold, as a quantile", 0.0, 1.0, False),
    "scheme.max_extra_updates": ("most extra updates", 0, 12, False),
    "scheme.local_updates": ("updates under local-sgd", 1, 12, False),
    "allocation.energy_joules": ("energy budget of a round", 0.05, 50.0, True),
    "fleet.power_watts": ("transmit power", 0.01, 2.0, True),
    "radio.noise_dbm": ("noise", -120.0, -60.0, False),
    "data.noniid_devices": ("Non-IID devices", 0, 30, False),
    "data.labels_per_device": ("labels per device", 1, 10, False),
    "fleet.cpu_hz": ("CPU spread", 0.05e9, 4e9, True),
    "fleet.battery_joules": ("batteries", 0.1, 1000.0, True),
    "run.seed": ("seed", 0, 99, False),
}
# Next to the button that trains.
TRAINING = {"run.rounds": "train for", "run.eval_every": "measure every"}
# Set on the map.
_ON_THE_MAP = ("fleet.regions", "fleet.positions", "fleet.base_station")


def describe_controls(base: Config) -> list[dict[str, Any]]:
    """A control per key that a page may set, section by section, in the configuration's order."""
    values = base.flat()
    found = []
    for section, field in Config.model_fields.items():
        for name, schema in section_keys(Config, section).items():
            key = f"{section}.{name}"
            if key in FIXED or key in _ON_THE_MAP or key == "scheme.parameters":
                continue
            control = {
                "key": key,
                "section": section,
                "about": field.description,
                "text": schema["description"],
                "unit": "" if schema["unit"] == "1" else schema["unit"],
                "accepts": accepted_values(schema),
                "base": plain(values[key]),
                **_kind(schema, values[key]),
            }
            if key in MAIN:
                name, low, high, log = MAIN[key]
                control |= {"name": name, "slider": {"low": low, "high": high, "log": log}}
            if key in TRAINING:
                control |= {"name": TRAINING[key], "training": True}
            found.append(control)
    order = list(MAIN)
    return sorted(found, key=lambda one: order.index(one["key"]) if one["key"] in MAIN else 99)


def _kind(schema: dict[str, Any], value: Any) -> dict[str, Any]:
    """The type of a control, its choices and whether it may be unset."""
    kinds = schema.get("anyOf", [schema])
    own = next(kind for kind in kinds if kind["type"] != "null")
    optional = any(kind["type"] == "null" for kind in kinds)
    if "enum" in own:
        names = [name for name in own["enum"] if name != "module:name"]
        if isinstance(value, str) and value not in names:
            names.append(value)  # the user's own code, named where the server was started
        return {"type": "choice", "choices": names, "optional": optional}
    return {"type": own["type"], "choices": [], "optional": optional}


def describe_schemes(base: Config) -> list[dict[str, Any]]:
    """The schemes that a page offers, with parameters that are no keys of [scheme]."""
    known = set(section_keys(Config, "scheme"))
    kinds = dict(SCHEMES)
    found = []
    for name, kind in kinds.items():
        about = describe(name, kind)
        own = {
            key: plain(value)
            for key, value in about["parameters"].items()
            if isinstance(value, bool | int | float | str)
        }
        found.append(
            {
                "name": name,
                "sentence": about["sentence"],
                "keys": [key for key in own if key in known],
                "parameters": {key: value for key, value in own.items() if key not in known},
            }
        )
    if base.scheme.name not in kinds:
        found.append(
            {"name": base.scheme.name, "sentence": "Your own.", "keys": [], "parameters": {}}
        )
    return found


def plain(value: Any) -> Any:
    """A value as JSON can hold it: infinity is the word `inf`."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
