"""The configuration: every key a user may set, presets, and the layers that make up a run's."""

from camu.config.compose import DEFAULT_PRESET, PRESETS, load_config, replace
from camu.config.schema import (
    ClusteringConfig,
    Config,
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
    "load_config",
    "replace",
]
