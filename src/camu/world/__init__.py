"""The wireless fleet: devices, path loss, fading, links, compute; from a config or a fleet file."""

from camu.world.devices import (
    Devices,
    update_joules,
    update_samples,
    update_seconds,
)
from camu.world.gains import Share, noise_watts
from camu.world.links import Links, build_links
from camu.world.path_loss import PathLoss
from camu.world.world import World, build_world, read_fleet, with_data

__all__ = [
    "Devices",
    "Links",
    "PathLoss",
    "Share",
    "World",
    "build_links",
    "build_world",
    "noise_watts",
    "read_fleet",
    "update_joules",
    "update_samples",
    "update_seconds",
    "with_data",
]
