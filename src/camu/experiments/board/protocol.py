"""The protocol of a board: worlds, budgets, seeds, trials and schemes, fixed before any run.

It is a TOML file. Its SHA-256 is in every result, and results of different files are never joined.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from camu.config import Config, load_config
from camu.errors import InputError
from camu.experiments.tuning.ranges import Budget
from camu.experiments.tuning.search import FIRST_SEED, RARELY
from camu.files import read_bytes
from camu.learning.task import task_of
from camu.schemes.tunable import OneOf

HERE = Path(__file__).parent / "protocols"
AXES = ("joules", "seconds")
_TEN_MOST = "worst-device-accuracy"  # the mean over the worst tenth of the devices

Positive = Annotated[float, Field(gt=0)]
Seeds = Annotated[list[int], Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Amounts(_Part):
    """A budget of a world: models are judged at these joules, and at these seconds."""

    joules: Positive
    seconds: Positive


class World(_Part):
    """A kind of world, without its seed."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    about: str
    preset: str
    target: Positive  # a score, for the cost of reaching it
    keys: dict[str, Any] = {}
    budgets: Annotated[dict[str, Amounts], Field(min_length=1)]

    def config(self, aids: Mapping[str, Any]) -> Config:
        """The configuration of all its runs, without scheme and seed."""
        keys = {"machine.workers": 1, "run.rounds": 1, "run.eval_every": RARELY}
        return load_config(preset=self.preset, overrides={**keys, **aids, **self.keys})

    def flat_budgets(self) -> list[Budget]:
        """All amounts, in the order of budgets and axes."""
        return [
            Budget(axis, getattr(amounts, axis))
            for amounts in self.budgets.values()
            for axis in AXES
        ]


class Rules(_Part):
    """What a protocol file says."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    about: str
    schemes: Annotated[list[str], Field(min_length=2)]
    rates: Annotated[list[Positive], Field(min_length=2)]  # tried for schemes as published
    trials: Annotated[int, Field(ge=1)] = 32  # per scheme and world, for the tuned table
    tuning_seeds: Seeds
    reporting_seeds: Seeds
    eval_every: Annotated[int, Field(ge=1)]  # rounds, in reported runs
    aids: dict[str, Any] = {}  # keys of all schemes
    worlds: Annotated[list[World], Field(min_length=1)]


@dataclass(frozen=True)
class Protocol:
    """The rules with the digest of their file."""

    rules: Rules
    sha256: str

    @cached_property
    def worlds(self) -> dict[str, World]:
        """The worlds by name."""
        return {world.name: world for world in self.rules.worlds}

    @property
    def rates(self) -> OneOf:
        """The learning rates that are tried for schemes as published."""
        return OneOf(tuple(self.rules.rates))

    def reported(self, world: World, seed: int) -> dict[str, Any]:
        """The keys of a reported run."""
        return {
            "run.seed": seed,
            "run.eval_every": self.rules.eval_every,
            "data.validation_share": 0.0,
            "training.metrics": ["accuracy", _TEN_MOST],
        }


def names() -> list[str]:
    """The protocols that come with camu."""
    return sorted(path.stem for path in HERE.glob("*.toml"))


def read_protocol(name: str) -> Protocol:
    """A protocol by its name, or from a file."""
    path = HERE / f"{name}.toml" if name in names() else Path(name)
    if path.suffix != ".toml":
        raise InputError(f"protocol {name}: there are {', '.join(names())}, or give a .toml file")
    data = read_bytes(path, "a protocol of the board")
    try:
        rules = Rules.model_validate(tomllib.loads(data.decode()))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {key}: {first['msg']}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: this is no TOML file: {error}") from None
    _check(rules, path)
    return Protocol(rules, hashlib.sha256(data).hexdigest())


def _check(rules: Rules, path: Path) -> None:
    """Refuse what would make a comparison unfair or impossible."""
    both = set(rules.tuning_seeds) & set(rules.reporting_seeds)
    if both or min(rules.tuning_seeds) < FIRST_SEED or max(rules.reporting_seeds) >= FIRST_SEED:
        raise InputError(
            f"{path}: tuning_seeds begin at {FIRST_SEED} and reporting_seeds end below it, so that "
            "nothing is reported on a seed it was tuned on"
        )
    for what, given in (
        ("worlds", [world.name for world in rules.worlds]),
        ("schemes", rules.schemes),
        ("reporting_seeds", rules.reporting_seeds),
        ("tuning_seeds", rules.tuning_seeds),
    ):
        if len(set(given)) < len(given):
            raise InputError(f"{path}: {what}: one is given twice")
    for world in rules.worlds:
        try:
            score = task_of(world.config(rules.aids)).score
        except InputError as error:
            raise InputError(f"{path}: world {world.name}: {error}") from None
        if score.name != "accuracy":
            raise InputError(f"{path}: world {world.name}: judged by {score.name}, not accuracy")


Table = Literal["published", "tuned"]
TABLES: tuple[Table, ...] = ("published", "tuned")
