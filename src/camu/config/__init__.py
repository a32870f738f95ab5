"""The configuration: every key a user may set, presets, and the layers that make up a run's."""

from camu.config.schema import DEFAULT_PRESET, PRESETS, Config, keys_that_decide, load_config
from camu.config.sections import (
    ClusteringConfig,
    DataConfig,
    FleetConfig,
    RadioConfig,
    Region,
    TrainingConfig,
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
