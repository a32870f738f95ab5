"""Boards by name, or as profiles that were measured: clock, FLOPs per second, and watts.

What a device has from its board is computed here: cycles per sample by the model's FLOPs, and what
computing adds to idle power, a part at any clock and the rest with its cube.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from camu.arrays import Float64
from camu.config import Config
from camu.config.fields import AUTO, LARGEST_HZ, LARGEST_WATTS
from camu.errors import InputError, suggest
from camu.files import read_text
from camu.learning.flops import training_flops

STATIC_SHARE = 0.4  # of what computing adds; an estimate: 0.3 to 0.5
_LIMITS = {
    "cpu_hz": (1.0, LARGEST_HZ),
    "flops_per_second": (1.0, 1e18),
    "idle_watts": (0.0, LARGEST_WATTS),
    "busy_watts": (0.0, LARGEST_WATTS),
    "sleep_watts": (0.0, LARGEST_WATTS),
}
_NEEDED = ("cpu_hz", "flops_per_second")


@dataclass(frozen=True)
class Board:
    """What a device can do and draws; watts that are not known are None."""

    title: str
    cpu_hz: float
    flops_per_second: float  # of a training step
    idle_watts: float | None = None
    busy_watts: float | None = None  # while it computes, idle power included
    sleep_watts: float | None = None
    # Of each number: "data sheet", "measured" or "estimate", and where it is from.
    source: Mapping[str, str] | None = None

    @property
    def flops_per_cycle(self) -> float:
        """FLOPs of a training step per cycle of its clock."""
        return self.flops_per_second / self.cpu_hz

    @property
    def computing_watts(self) -> float | None:
        """What computing adds to idle power."""
        if self.busy_watts is None or self.idle_watts is None:
            return None
        return self.busy_watts - self.idle_watts

    @property
    def static_watts(self) -> float | None:
        """The part of it that is drawn at any clock."""
        return None if self.computing_watts is None else STATIC_SHARE * self.computing_watts

    @property
    def capacitance(self) -> float | None:
        """kappa of the rest of it, kappa f^3."""
        if self.computing_watts is None:
            return None
        return (1 - STATIC_SHARE) * self.computing_watts / self.cpu_hz**3


@cache
def built_in() -> Mapping[str, Board]:
    """The boards that camu knows, by name."""
    text = resources.files("camu.world").joinpath("boards.toml").read_text("utf-8")
    return {name: Board(**facts) for name, facts in tomllib.loads(text).items()}


def find_board(name: str, key: str) -> Board:
    """The board of this name, or of a profile that `camu measure` wrote; `key` is named in errors.

    A profile is a TOML file with the fields of a board.
    """
    if name in built_in():
        return built_in()[name]
    if not name.endswith(".toml"):
        raise InputError(
            f"{key}: {name}: no such board{suggest(name, built_in())}; `camu fleet boards` lists "
            "them, or give a profile.toml that `camu measure` wrote"
        )
    try:
        found = tomllib.loads(read_text(name, "a TOML file with the profile of a board"))
    except ValueError as error:
        raise InputError(f"{key}: {name}: is not valid TOML: {error}") from None
    return _profile(found, f"{key}: {name}")


def _profile(found: dict[str, Any], where: str) -> Board:
    """The board of a profile; wrong numbers are refused."""
    known = {field.name for field in fields(Board)}
    facts = {key: value for key, value in found.items() if key in known}
    for key, (low, high) in _LIMITS.items():
        value = facts.get(key)
        if value is None and key not in _NEEDED:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or not number or not low <= value <= high:
            shown = "is missing" if value is None else f"= {value}"
            raise InputError(f"{where}: {key} {shown}; write a number from {low:g} to {high:g}")
    board = Board(**{"title": "measured", **facts})
    if (board.busy_watts is None) != (board.idle_watts is None):
        raise InputError(f"{where}: give both idle_watts and busy_watts, or neither")
    if board.computing_watts is not None and board.computing_watts <= 0:
        raise InputError(
            f"{where}: busy_watts = {board.busy_watts} includes idle power, so it must be more "
            f"than idle_watts = {board.idle_watts}"
        )
    return board


def default_hardware(config: Config, names: Sequence[str], drawn_hz: Float64) -> dict[str, Float64]:
    """What devices have from their boards ("": none), and otherwise from the configuration.

    A board's cycles per sample are always by the model's FLOPs. `drawn_hz` are the clocks of
    devices without board.
    """
    fleet = config.fleet
    usual: dict[str, Any] = {
        "cpu_hz": drawn_hz,
        "cycles_per_sample": _cycles(config),
        "capacitance": fleet.capacitance,
        "idle_watts": fleet.idle_watts,
        "static_watts": fleet.static_watts,
        "sleep_watts": np.nan if fleet.sleep_watts in (None, AUTO) else fleet.sleep_watts,
    }
    hardware = {key: value * np.ones(len(names)) for key, value in usual.items()}
    for name in dict.fromkeys(filter(None, names)):
        board = find_board(name, "fleet.board")
        own = np.array([other == name for other in names])
        hardware["cpu_hz"][own] = board.cpu_hz
        hardware["cycles_per_sample"][own] = training_flops(config) / board.flops_per_cycle
        sleeps = () if fleet.sleep_watts is None else ("sleep_watts",)
        for key in ("capacitance", "idle_watts", "static_watts", *sleeps):
            if (value := getattr(board, key)) is not None:
                hardware[key][own] = value
    return hardware


def _cycles(config: Config) -> float:
    """The configured cycles per sample, or with `auto` those of the model's FLOPs."""
    fleet = config.fleet
    if fleet.cycles_per_sample != "auto":
        return fleet.cycles_per_sample
    return training_flops(config) / fleet.flops_per_cycle
