"""The configuration: every key with its limits, the presets, and how layers are composed."""

from camu.config.run_sections import TrainingConfig
from camu.config.schema import DEFAULT_PRESET, PRESETS, Config, keys_that_decide, load_config
from camu.config.world_sections import (
    ClusteringConfig,
    DataConfig,
    FleetConfig,
    RadioConfig,
    Region,
)

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
