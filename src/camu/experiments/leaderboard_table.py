"""The table of a leaderboard: accuracies at equal joules and seconds, and ranks with ties.

The rank of a scheme is an interval: one more than the number of schemes that are measurably better,
up to the number of schemes less those that are measurably worse. Measurably means a paired t-test
over seeds at 5 %, with Holm's correction over all comparisons of that scheme, so that the interval
holds its true rank with a confidence of 95 % (Mogstad, Romano, Shaikh, Wilhelm, Inference for
ranks, Review of Economic Studies 2024).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from camu.arrays import Float64
from camu.experiments.claims import accuracy_around
from camu.experiments.statistics import ALPHA, Estimate, estimate, holm, paired
from camu.simulation.history import History, measure

BUDGETS = ("joules", "seconds")
OVERALL = "all worlds"
PILOT = "its pilot alone cost more than the budget in some seed: the untrained model counts"
ENDED = "it ended by itself before the budget in some seed: its last model counts"


class RunKey(NamedTuple):
    """Which run: a scheme in the world of one seed."""

    world: str
    scheme: str
    seed: int


@dataclass(frozen=True)
class Run:
    """What a finished run says; accuracies are in %."""

    rounds: int
    joules: float
    seconds: float
    budget_joules: float
    budget_seconds: float
    at_rounds: float
    at_joules: float  # the mean at 85, 90, 95 and 100 % of the budget
    at_seconds: float
    notes: tuple[str, ...]

    @classmethod
    def of(cls, history: History, at: Mapping[str, float]) -> Run:
        """A run, read at its budgets of rounds, joules and seconds."""
        final, begin = history.final, history.records[0]
        spent = {key: measure(final, key) for key in BUDGETS}
        pilot = any(measure(begin, key) > at[key] for key in BUDGETS)
        ended = any(spent[key] < at[key] for key in BUDGETS)
        reached = history.accuracy_within("rounds", at["rounds"])
        assert reached is not None  # round 0 is always evaluated
        return cls(
            final.round,
            spent["joules"],
            spent["seconds"],
            at["joules"],
            at["seconds"],
            100 * reached,
            100 * accuracy_around(history, "joules", at["joules"]),
            100 * accuracy_around(history, "seconds", at["seconds"]),
            (PILOT,) * pilot + (ENDED,) * ended,
        )


@dataclass(frozen=True)
class WorldEntry:
    """A world of the board; its budgets are means over seeds."""

    name: str
    about: str
    learning_rate: float
    samples_per_device: int
    rounds: int  # of the reference scheme
    joules: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Standing:
    """The accuracy of a scheme at a budget, its place by the mean, and the interval of its rank."""

    accuracy: Estimate
    place: int
    best: int
    worst: int

    def show(self) -> list[str]:
        """Accuracy, and rank with its interval, for people."""
        rank = str(self.place)
        if (self.best, self.worst) != (self.place, self.place):
            rank += f" ({self.best}-{self.worst})"
        return [self.accuracy.show(), rank]


@dataclass(frozen=True)
class Row:
    """A scheme in one world, or over all worlds."""

    world: str
    scheme: str
    family: str
    is_own: bool
    at_rounds: Estimate | None
    joules: Standing
    seconds: Standing
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Board:
    """The leaderboard: a row per scheme and world, and one over all worlds."""

    scale: str
    reference: str
    seeds: int
    worlds: tuple[WorldEntry, ...]
    rows: tuple[Row, ...]
    runs: Mapping[RunKey, Run]

    def of_world(self, name: str) -> list[Row]:
        """The rows of a world, or of `all worlds`; the best mean of both budgets comes first."""
        own = [row for row in self.rows if row.world == name]
        return sorted(own, key=lambda row: -(row.joules.accuracy.mean + row.seconds.accuracy.mean))

    @property
    def overall(self) -> list[Row]:
        """The rows over all worlds."""
        return self.of_world(OVERALL)

    def to_dict(self) -> dict[str, Any]:
        """Worlds and rows as plain data; `read_board` reads it. The runs are in the CSV."""
        return {key: value for key, value in asdict(self).items() if key != "runs"}

    def to_csv(self) -> str:
        """A line per run, with a head."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [name for name in Run.__dataclass_fields__ if name != "notes"]
        writer.writerow([*RunKey._fields, *names])
        for key, run in self.runs.items():
            values = (getattr(run, name) for name in names)
            writer.writerow([*key, *(f"{value:.6g}" for value in values)])
        return text.getvalue()


def board_of(
    runs: Mapping[RunKey, Run],
    families: Mapping[str, str],
    own: Set[str],
    worlds: Sequence[WorldEntry],
    scale: str,
    reference: str,
) -> Board:
    """The board of these runs; every scheme has a run in every world with every seed.

    `families` is by scheme, and `own` are the schemes of the user.
    """
    schemes = list(families)
    tables: dict[str, dict[str, Float64]] = {}
    filled = []
    for world in worlds:
        here = {key: run for key, run in runs.items() if key.world == world.name}
        tables[world.name] = _values(here, schemes)
        joules = float(np.mean([run.budget_joules for run in here.values()]))
        seconds = float(np.mean([run.budget_seconds for run in here.values()]))
        filled.append(replace(world, joules=joules, seconds=seconds))
    tables[OVERALL] = {
        key: np.mean([table[key] for table in tables.values()], axis=0) for key in BUDGETS
    }
    rows = []
    for name, table in tables.items():
        places = {key: standings(table[key]) for key in BUDGETS}
        for number, scheme in enumerate(schemes):
            at_rounds = estimate(table["rounds"][number].tolist()) if "rounds" in table else None
            both = places["joules"][number], places["seconds"][number]
            notes = _notes(runs, name, scheme)
            row = Row(name, scheme, families[scheme], scheme in own, at_rounds, *both, notes)
            rows.append(row)
    seeds = len({key.seed for key in runs})
    return Board(scale, reference, seeds, tuple(filled), tuple(rows), dict(runs))


def _values(here: Mapping[RunKey, Run], schemes: Sequence[str]) -> dict[str, Float64]:
    """Accuracies of one world in %, by budget: an array (schemes, seeds)."""
    seeds = sorted({key.seed for key in here})
    world = next(iter(here)).world
    table = [[here[RunKey(world, scheme, seed)] for seed in seeds] for scheme in schemes]
    return {
        key: np.array([[getattr(run, f"at_{key}") for run in line] for line in table])
        for key in ("rounds", *BUDGETS)
    }


def _notes(runs: Mapping[RunKey, Run], world: str, scheme: str) -> tuple[str, ...]:
    found = [
        note
        for key, run in runs.items()
        if key.scheme == scheme and world in (key.world, OVERALL)
        for note in run.notes
    ]
    return tuple(dict.fromkeys(found))


def standings(values: Float64) -> list[Standing]:
    """The standing of each scheme from its accuracies with every seed (schemes, seeds)."""
    means = values.mean(axis=1)
    found = []
    for number, own in enumerate(values):
        others = [paired(own.tolist(), other.tolist()) for other in np.delete(values, number, 0)]
        known = [one.p_value() for one in others]
        adjusted = holm([1.0 if p is None else p for p in known])
        clear = [one.mean for one, p in zip(others, adjusted, strict=True) if p < ALPHA]
        better, worse = sum(mean < 0 for mean in clear), sum(mean > 0 for mean in clear)
        place = 1 + int((means > means[number]).sum())
        standing = Standing(estimate(own.tolist()), place, 1 + better, len(values) - worse)
        found.append(standing)
    return found


def read_board(data: Mapping[str, Any]) -> Board:
    """The board from plain data, without its runs."""

    def standing(found: Mapping[str, Any]) -> Standing:
        return Standing(**{**found, "accuracy": Estimate(**found["accuracy"])})

    rows = [
        Row(
            **{
                **row,
                "at_rounds": None if row["at_rounds"] is None else Estimate(**row["at_rounds"]),
                "joules": standing(row["joules"]),
                "seconds": standing(row["seconds"]),
                "notes": tuple(row["notes"]),
            }
        )
        for row in data["rows"]
    ]
    worlds = tuple(WorldEntry(**world) for world in data["worlds"])
    return Board(data["scale"], data["reference"], data["seeds"], worlds, tuple(rows), {})
