"""The leaderboard as data: accuracies at equal joules and seconds, and ranks with ties.

The rank of a scheme is an interval: one more than the number of schemes that are measurably better,
up to the number of schemes less those that are measurably worse. Measurably means a paired t-test
over seeds at 5 %, with Holm's correction over all comparisons of that scheme, so that the interval
holds its true rank with a confidence of 95 % (Mogstad, Romano, Shaikh, Wilhelm, Inference for
ranks, Review of Economic Studies 2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from camu.arrays import Float64
from camu.experiments.claims import BUDGETS, accuracy_around
from camu.experiments.statistics import ALPHA, Estimate, estimate, holm
from camu.files import to_csv
from camu.simulation.history import History, measure

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
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, history: History, at: Mapping[str, float]) -> Run:
        """A run, read at its budgets of rounds, joules and seconds."""
        final, begin = history.final, history.records[0]
        pilot = any(measure(begin, key) > at[key] for key in BUDGETS)
        ended = any(measure(final, key) < at[key] for key in BUDGETS)
        reached = history.score_within("rounds", at["rounds"])
        assert reached is not None  # round 0 is always evaluated
        return cls(
            rounds=final.round,
            joules=measure(final, "joules"),
            seconds=measure(final, "seconds"),
            budget_joules=at["joules"],
            budget_seconds=at["seconds"],
            at_rounds=100 * reached,
            at_joules=100 * accuracy_around(history, "joules", at["joules"]),
            at_seconds=100 * accuracy_around(history, "seconds", at["seconds"]),
            notes=(PILOT,) * pilot + (ENDED,) * ended,
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
        alone = self.best == self.place == self.worst
        rank = f"{self.place}" if alone else f"{self.place} ({self.best}-{self.worst})"
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
    runs: Mapping[RunKey, Run] = field(default_factory=dict)

    def of_world(self, name: str) -> list[Row]:
        """The rows of a world, or of `all worlds`; the best mean of both budgets comes first."""
        own = [row for row in self.rows if row.world == name]
        return sorted(own, key=lambda row: -(row.joules.accuracy.mean + row.seconds.accuracy.mean))

    @property
    def overall(self) -> list[Row]:
        """The rows over all worlds."""
        return self.of_world(OVERALL)

    def to_dict(self) -> dict[str, Any]:
        """Worlds and rows as plain data. The runs are in the CSV."""
        return {key: value for key, value in asdict(self).items() if key != "runs"}

    def to_csv(self) -> str:
        """A line per run, with a head."""
        names = [name for name in Run.__dataclass_fields__ if name != "notes"]
        rows: list[list[object]] = [[*RunKey._fields, *names]]
        for key, run in self.runs.items():
            values = (getattr(run, name) for name in names)
            rows.append([*key, *(f"{value:.6g}" for value in values)])
        return to_csv(rows)


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
    schemes, seeds = list(families), sorted({key.seed for key in runs})
    tables: dict[str, dict[str, Float64]] = {}  # of schemes and seeds, by world and figure
    filled = []
    for world in worlds:
        here = [[runs[RunKey(world.name, scheme, seed)] for seed in seeds] for scheme in schemes]
        table = {
            name: np.array([[getattr(run, name) for run in line] for line in here])
            for name in ("at_rounds", "at_joules", "at_seconds", "budget_joules", "budget_seconds")
        }
        tables[world.name] = table
        joules, seconds = (float(table[f"budget_{key}"].mean()) for key in BUDGETS)
        filled.append(replace(world, joules=joules, seconds=seconds))
    tables[OVERALL] = {
        f"at_{key}": np.mean([table[f"at_{key}"] for table in tables.values()], axis=0)
        for key in BUDGETS
    }
    rows = []
    for name, table in tables.items():
        joined = zip(schemes, *(standings(table[f"at_{key}"]) for key in BUDGETS), strict=True)
        for number, (scheme, by_joules, by_seconds) in enumerate(joined):
            after = estimate(table["at_rounds"][number].tolist()) if name != OVERALL else None
            notes = [
                note
                for key, run in runs.items()
                if key.scheme == scheme and name in (key.world, OVERALL)
                for note in run.notes
            ]
            said, family = tuple(dict.fromkeys(notes)), families[scheme]
            ranks = (by_joules, by_seconds)
            rows.append(Row(name, scheme, family, scheme in own, after, *ranks, said))
    return Board(scale, reference, len(seeds), tuple(filled), tuple(rows), dict(runs))


def standings(values: Float64) -> list[Standing]:
    """The standing of each scheme from its accuracies with every seed (schemes, seeds)."""
    means = values.mean(axis=1)
    found = []
    for number, own in enumerate(values):
        gains = [estimate((own - other).tolist()) for other in np.delete(values, number, 0)]
        known = [gain.p_value() for gain in gains]
        adjusted = holm([1.0 if p is None else p for p in known])
        clear = [gain.mean for gain, p in zip(gains, adjusted, strict=True) if p < ALPHA]
        better, worse = sum(mean < 0 for mean in clear), sum(mean > 0 for mean in clear)
        place = 1 + int((means > means[number]).sum())
        found.append(Standing(estimate(own.tolist()), place, 1 + better, len(values) - worse))
    return found
