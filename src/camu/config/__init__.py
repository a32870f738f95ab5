"""The configuration: every key with its limits, the presets, and how layers are composed.

The models are imported when a name of theirs is first used: `camu --help` needs none.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from camu.config.presets import DEFAULT_PRESET, PRESETS

__all__ = [
    "DEFAULT_PRESET",
    "PRESETS",
    "ClusteringConfig",
    "Config",
    "DataConfig",
    "FleetConfig",
    "RadioConfig",
    "ReadingsConfig",
    "Region",
    "TrainingConfig",
    "keys_affecting",
    "load_config",
]

if TYPE_CHECKING:
    from camu.config.radio_section import RadioConfig
    from camu.config.regions import Region
    from camu.config.run_sections import ClusteringConfig, ReadingsConfig
    from camu.config.schema import Config, keys_affecting, load_config
    from camu.config.training_section import TrainingConfig
    from camu.config.world_sections import DataConfig, FleetConfig
else:
    _MODULES = {
        **dict.fromkeys(("ClusteringConfig", "ReadingsConfig"), "run_sections"),
        "TrainingConfig": "training_section",
        **dict.fromkeys(("Config", "keys_affecting", "load_config"), "schema"),
        **dict.fromkeys(("DataConfig", "FleetConfig"), "world_sections"),
        "Region": "regions",
        "RadioConfig": "radio_section",
    }

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module 'camu.config' has no attribute {name!r}")
        value = getattr(import_module(f"camu.config.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
