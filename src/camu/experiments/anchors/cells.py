"""The table of published numbers: one file per source, with settings and rules fixed beforehand.

A file has the `source`, the `base` settings, `runs` with what they change, `cells` that a verdict
is given on, and `controls`, which change one thing of a run to find the reason of a difference.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from camu.config import Config
from camu.errors import InputError, suggest

FOLDER = "cells"
# What every source has in common: nothing of the radio matters, nothing is refused or left out.
COMMON: dict[str, Any] = {
    "radio.uplink": "digital",
    "training.local_update": "epoch",
    "training.max_update_norm": 1e30,  # a model that diverges is the published one
    "fleet.unreachable": "keep",
    "machine.workers": 1,
    "machine.checkpoint_every": 10,
}
OWN = "camu.experiments.anchors."  # where `:Name` in a setting is looked for
_FILES = {"training.model": "models", "training.loss": "models", "data.dataset": "data"}
_FILES |= {"data.partition": "partitions", "scheme.name": "schemes"}

Kind = Literal["last", "best", "rounds-to"]


@dataclass(frozen=True)
class Measure:
    """A number of a run: a field of its records after a round, the best of all, or when."""

    kind: Kind = "last"
    round: int = 0  # the last one that counts; 0: that of the run
    field: str = "accuracy"
    target: float = 0.0
    higher: bool = True

    @property
    def text(self) -> str:
        """For people."""
        if self.kind == "rounds-to":
            return f"rounds to {100 * self.target:g} % test accuracy"
        best = "best " if self.kind == "best" else ""
        over = "over" if self.kind == "best" else "after"
        name = "test accuracy" if self.field == "accuracy" else self.field.replace("_", " ")
        return f"{best}{name} {over} {self.round} rounds"

    @property
    def unit(self) -> str:
        """Its unit."""
        if self.kind == "rounds-to":
            return "rounds"
        return "%" if self.field == "accuracy" else ""


@dataclass(frozen=True)
class Run:
    """A setting that is trained with several seeds."""

    anchor: str
    name: str
    settings: dict[str, Any] = field(hash=False)
    stages: dict[int, int] = field(hash=False)  # rounds to stop at, with their turn

    @property
    def rounds(self) -> int:
        """Its last round."""
        return max(self.stages)

    @property
    def label(self) -> str:
        """Its name among the runs of all sources."""
        return f"{self.anchor}.{self.name}"

    def config(self, seed: int, rounds: int) -> Config:
        """Its configuration, up to a round."""
        keys = {**COMMON, **self.settings, "run.seed": seed, "run.rounds": rounds}
        for key, file in _FILES.items():
            if str(keys.get(key, "")).startswith(":"):
                keys[key] = f"{OWN}{file}{keys[key]}"
        if "fleet.devices" not in keys:
            raise InputError(f"{self.label}: fleet.devices is missing")
        return Config().replace(keys)  # the plain defaults, and no preset


@dataclass(frozen=True)
class Cell:
    """A published number or order, with the rule of its verdict."""

    anchor: str
    name: str
    rule: str  # V1 to V5
    # One, or several of which the best counts; of an order the better and the worse; of `near` the
    # one and all others.
    runs: tuple[str, ...]
    measure: Measure
    seeds: int
    published: float | None = None  # in the unit of the measure
    spread: float | None = None
    n: int | None = None
    rounding: float = 0.0  # half a unit of the last digit, where it is rounded
    judged: int | None = None  # samples by which they judged, where these are few
    near: float | None = None  # how near to the best of the others, as a share of their range
    claim: str = ""  # of an order
    reason: str = ""  # why it differs, measured by controls after the run
    tag: str = "S"  # S: read in the source; M: from memory

    @property
    def label(self) -> str:
        """Its name among the cells of all sources."""
        return f"{self.anchor}.{self.name}"


@dataclass(frozen=True)
class Control:
    """A run with one thing changed, beside the run and the cell that it explains."""

    name: str
    run: str
    cell: str
    changed: str


@dataclass(frozen=True)
class Anchor:
    """All that is known of a source."""

    name: str
    title: str
    source: dict[str, str]
    setting: str
    differences: tuple[str, ...]  # between their setting and ours, as far as they are known
    runs: dict[str, Run]
    cells: tuple[Cell, ...]
    controls: tuple[Control, ...]
    missing: tuple[str, ...]  # what is not run, and what it would take
    notes: tuple[str, ...]  # such as times


def names() -> list[str]:
    """The sources that there are."""
    folder = resources.files(__package__) / FOLDER
    found = [file.name.removesuffix(".toml") for file in folder.iterdir()]
    return sorted((name.upper() for name in found), key=lambda name: (name[0], int(name[1:])))


@cache
def read(name: str) -> Anchor:
    """A source by its name, such as A1."""
    if name not in names():
        raise InputError(f"--only {name}: {suggest(name, names())} choose {', '.join(names())}")
    file = resources.files(__package__) / FOLDER / f"{name.lower()}.toml"
    return parse(name, tomllib.loads(file.read_text(encoding="utf-8")))


def parse(name: str, document: dict[str, Any]) -> Anchor:
    """A source from its file."""
    base = document.get("base", {})
    runs = {own: _run(name, own, base, given) for own, given in document.get("runs", {}).items()}
    tag = document["source"].get("tag", "S")
    cells = tuple(_cell(name, given, runs, tag) for given in document.get("cells", []))
    return Anchor(
        name=name,
        title=document["title"],
        source=document["source"],
        setting=document["setting"],
        differences=tuple(document.get("known_differences", [])),
        runs=runs,
        cells=cells,
        controls=tuple(Control(**given) for given in document.get("controls", [])),
        missing=tuple(document.get("missing", [])),
        notes=tuple(document.get("notes", [])),
    )


def _run(anchor: str, name: str, base: dict[str, Any], given: dict[str, Any]) -> Run:
    given = dict(given)
    stages = {int(rounds): int(turn) for rounds, turn in given.pop("stages").items()}
    return Run(anchor, name, {**base, **given}, stages)


def _cell(anchor: str, given: dict[str, Any], runs: dict[str, Run], tag: str) -> Cell:
    given = dict(given)
    named = given.pop("runs", None) or [given.pop("run")]
    if unknown := [own for own in named if own not in runs]:
        raise InputError(f"{anchor}: cell {given['name']} names run {unknown[0]}, which is none")
    measure = Measure(**{"round": runs[named[0]].rounds, **given.pop("measure", {})})
    return Cell(anchor=anchor, runs=tuple(named), measure=measure, **{"tag": tag, **given})
