"""What runs have measured: one small file per run and seed, which can be copied and joined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from camu import __version__
from camu.experiments.anchors.cells import COMMON, Measure, Run
from camu.files import read_json, write_json
from camu.simulation.history import History, Record

VALUES = "values"


@dataclass
class Values:
    """The records of a run with one seed, as far as it went."""

    key: str  # of everything that decides them, apart from where they end
    rounds: list[dict[str, float]] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)  # of the weights, by round
    version: str = ""
    kernel: str = ""
    seconds: dict[str, float] = field(default_factory=dict)  # wall seconds up to each round

    def reached(self, rounds: int) -> bool:
        """Whether a run of so many rounds is in it."""
        return str(rounds) in self.digests


def key_of(run: Run) -> str:
    """A hash of everything that decides a run's records, apart from its seed and its end."""
    text = json.dumps([run.settings, COMMON, __version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def path_of(out: Path, run: Run, seed: int) -> Path:
    """Where the values of a run are."""
    return out / VALUES / f"{run.label}.seed{seed}.json"


def read_values(out: Path, run: Run, seed: int) -> Values:
    """The values of a run; empty where it has none, or where its setting has changed."""
    key, path = key_of(run), path_of(out, run, seed)
    if path.exists():
        found = Values(**read_json(path, "the values of a run"))
        if found.key == key:
            return found
    return Values(key)


def add(out: Path, run: Run, seed: int, rounds: int, history: History, facts: Any) -> None:
    """Keep what a run has measured up to a round."""
    values = read_values(out, run, seed)
    values.rounds = [_numbers(record) for record in history.records if _judged(record)]
    values.digests[str(rounds)] = history.weights_sha256
    values.version, values.kernel = facts["version"], facts["kernel"]
    values.seconds[str(rounds)] = round(facts["wall_seconds"], 1)
    write_json(path_of(out, run, seed), asdict(values))


def measure(values: Values, wanted: Measure) -> float | None:
    """A number of a run; None where it did not get so far, or never reached the target."""
    rows = [row for row in values.rounds if row["round"] <= wanted.round and wanted.field in row]
    if not rows or not values.reached(wanted.round):
        return None
    scale = 100 if wanted.field == "accuracy" else 1
    found = [row[wanted.field] for row in rows]
    if wanted.kind == "rounds-to":
        return crossing([row["round"] for row in rows], found, wanted.target)
    if wanted.kind == "best":
        return scale * (max(found) if wanted.higher else min(found))
    return scale * found[-1]


def crossing(rounds: Sequence[float], scores: Sequence[float], target: float) -> float | None:
    """When the best score so far reaches a target, by straight lines between evaluations."""
    best = np.maximum.accumulate(np.asarray(scores, dtype=float))
    if best[-1] < target:
        return None
    place = int(np.argmax(best >= target))
    if place == 0:
        return float(rounds[0])
    before, after = best[place - 1], best[place]
    share = (target - before) / (after - before)
    return float(rounds[place - 1] + share * (rounds[place] - rounds[place - 1]))


def _judged(record: Record) -> bool:
    return record.accuracy is not None or bool(record.metrics)


def _numbers(record: Record) -> dict[str, float]:
    """What cells may ask of a record."""
    numbers = {
        "round": record.round,
        "accuracy": record.accuracy,
        "loss": record.loss,
        "seconds": record.virtual_seconds,
        "joules": record.total_joules,
        **record.metrics,
    }
    return {name: value for name, value in numbers.items() if value is not None}
