"""The configuration: every key with its limits, the presets, and how layers are composed.

The models are imported when a name of theirs is first used: `camu --help` needs none.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from camu.config.names import DEFAULT_PRESET, PRESETS

__all__ = [
    "DEFAULT_PRESET",
    "PRESETS",
    "ClusteringConfig",
    "Config",
    "DataConfig",
    "FleetConfig",
    "RadioConfig",
    "Region",
    "TrainingConfig",
    "keys_that_decide",
    "load_config",
]

if TYPE_CHECKING:
    from camu.config.clustering_section import ClusteringConfig
    from camu.config.run_sections import TrainingConfig
    from camu.config.schema import Config, keys_that_decide, load_config
    from camu.config.world_sections import (
        DataConfig,
        FleetConfig,
        RadioConfig,
        Region,
    )
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'camu.config' has no attribute {name!r}")
        # schema imports every section, so that it has all these names but one.
        schema = import_module("camu.config.schema")
        module = import_module("camu.config.world_sections") if name == "Region" else schema
        value = getattr(module, name)
        globals()[name] = value
        return value
