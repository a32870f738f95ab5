"""The paper's claims as data, and the verdict on each.

A claim is a number per seed with a printed sign. It is reproduced when the mean over seeds has that
sign and its 95 % interval excludes 0, contradicted when the interval excludes 0 on the other side,
and open otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from camu.experiments.design import HETEROGENEITY, THRESHOLDS, VARIATIONS
from camu.experiments.statistics import Estimate, estimate
from camu.simulation.history import History, measure

# Final accuracy of (cell, seed) for one data set.
Accuracy = Callable[[str, int], float]
Histories = dict[tuple[str, str, int], History]


@dataclass(frozen=True)
class Verdict:
    """One claim on one data set."""

    claim: str
    dataset: str
    statement: str
    unit: str
    mean: float
    low: float | None
    high: float | None
    n: int
    verdict: str  # reproduced, contradicted or open
    paper: float | str | None

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return asdict(self)


def judge(
    claim: str,
    dataset: str,
    statement: str,
    values: Sequence[float],
    sign: int,
    paper: float | str | None,
    unit: str = "points",
    tests: int = 1,
) -> Verdict:
    """The verdict on per-seed values; `tests` is how many candidates the best was chosen from."""
    found = estimate(values, tests)
    return Verdict(
        claim=claim,
        dataset=dataset,
        statement=statement,
        unit=unit,
        mean=found.mean,
        low=found.low,
        high=found.high,
        n=found.n,
        verdict=_word(found, sign),
        paper=paper,
    )


def _word(found: Estimate, sign: int) -> str:
    if found.low is None or found.high is None:
        return "open"
    if (found.low > 0 and sign > 0) or (found.high < 0 and sign < 0):
        return "reproduced"
    if (found.low > 0 and sign < 0) or (found.high < 0 and sign > 0):
        return "contradicted"
    return "open"


PRINTED: dict[str, dict[str, Any]] = {
    "A1": {"mnist": (0.255, 6.262), "fashion-mnist": (0.431, 0.858)},
    "A2": {"mnist": (0.507, 6.615), "fashion-mnist": (0.427, 4.645)},
    "U1": {"mnist": -4.468, "fashion-mnist": -2.252},
    "U2": {"mnist": 1.527, "fashion-mnist": 2.573},
    "U3": {"mnist": 5.995, "fashion-mnist": 4.825},
    "J1": {"mnist": 2.910, "fashion-mnist": 4.407},
    "J2": {"mnist": 5.198, "fashion-mnist": 3.820},
}


def _points(accuracy: Accuracy, better: str, worse: str, seeds: range) -> list[float]:
    return [100 * (accuracy(better, seed) - accuracy(worse, seed)) for seed in seeds]


def aggregation(dataset: str, accuracy: Accuracy, seeds: range) -> Iterator[Verdict]:
    """A1 and A2: weights beat FedAvg, clusters beat weights; more so the more Non-IID."""
    pairs = {
        "A1": ("wasserstein", "fedavg", "Configuration 2 beats Benchmark 1"),
        "A2": ("clustered", "wasserstein", "Configuration 1 beats Configuration 2"),
        "A2b": ("clustered", "fedavg", "Configuration 1 beats Benchmark 1"),
    }
    for claim, (better, worse, statement) in pairs.items():
        gains = np.array(
            [_points(accuracy, f"h{h}/{better}", f"h{h}/{worse}", seeds) for h in HETEROGENEITY]
        )
        printed = PRINTED.get(claim, {}).get(dataset)
        shown = f"{printed[0]} to {printed[1]}" if isinstance(printed, tuple) else None
        text = f"{statement}, mean over h"
        yield judge(claim, dataset, text, gains.mean(axis=0).tolist(), 1, shown)
        for h, row in zip(HETEROGENEITY, gains, strict=True):
            text = f"{statement} with {h} Non-IID devices"
            yield judge(f"{claim}@h={h}", dataset, text, row.tolist(), 1, None)
        slopes = np.polyfit(HETEROGENEITY, gains, 1)[0] * 24
        text = f"the gain ({better} over {worse}) grows from h = 6 to 30"
        yield judge(f"{claim}-trend", dataset, text, slopes.tolist(), 1, "grows")


def updates(dataset: str, accuracy: Accuracy, seeds: range) -> Iterator[Verdict]:
    """U1 to U5 and B2: multi-round updates, gated and not."""
    gap = _points(accuracy, "h30/petrel", "h30/clustered", seeds)
    printed = {name: PRINTED[name][dataset] for name in ("U1", "U2", "U3")}
    text = "Benchmark 2 is worse than Configuration 4 when all devices are Non-IID"
    yield judge("U1", dataset, text, gap, -1, printed["U1"])
    for claim, base, other in (
        ("U2", "clustered", "Configuration 4"),
        ("U3", "petrel", "Benchmark 2"),
    ):
        rows = {
            cut: _points(accuracy, f"h30/camu@{cut:g}", f"h30/{base}", seeds) for cut in THRESHOLDS
        }
        best = max(rows, key=lambda cut: float(np.mean(rows[cut])))
        text = (
            f"Configuration 3 beats {other}; best threshold of three ({best:g}), interval widened"
        )
        yield judge(claim, dataset, text, rows[best], 1, printed[claim], tests=len(THRESHOLDS))
        for cut, values in rows.items():
            text = f"Configuration 3 at threshold {cut:g} beats {other}"
            yield judge(f"{claim}@{cut:g}", dataset, text, values, 1, None)
    low, high = f"h30/camu@{THRESHOLDS[0]:g}", f"h30/camu@{THRESHOLDS[-1]:g}"
    text = "accuracy falls as the threshold rises from 0.5e4 to 1.5e4"
    yield judge("U4", dataset, text, _points(accuracy, high, low, seeds), -1, "falls")
    text = (
        "multi-round updates help at lower heterogeneity (Benchmark 2 over Configuration 4, h = 12)"
    )
    gain = _points(accuracy, "h12/petrel", "h12/clustered", seeds)
    yield judge("U5", dataset, text, gain, 1, "helps")
    middle = f"h30/camu@{THRESHOLDS[1]:g}"
    text = "normalised updates enlarge CAMU's gain over Benchmark 2"
    gain = _points(accuracy, "h30/camu-nova", middle, seeds)
    yield judge("B2", dataset, text, gain, 1, None)


def resources(
    dataset: str, accuracy: Accuracy, seeds: range, histories: Histories
) -> Iterator[Verdict]:
    """J1, J2 and B3: joint optimisation over the noisy channel at Benchmark 2's energy."""
    for solver in ("ppo", "exact"):
        for claim, other, name in (("J1", "petrel", "Benchmark 2"), ("J2", "hti", "Benchmark 3")):
            mine = f"noisy/camu-joint-{solver}"
            values = _points(accuracy, mine, f"noisy/{other}", seeds)
            text = f"Configuration 5 ({solver}) beats {name} at its energy"
            printed = PRINTED[claim][dataset] if solver == "ppo" else None
            suffix = "" if solver == "ppo" else "-exact"
            yield judge(claim + suffix, dataset, text, values, 1, printed)
    others = sorted(
        {cell for name, cell, _ in histories if name == dataset and cell.startswith("noisy/")}
        - {"noisy/camu-joint-exact", "noisy/camu-joint-ppo"}
    )
    exact = "noisy/camu-joint-exact"
    for key, what in (("joules", "energy"), ("seconds", "virtual time")):
        rows = {
            other: [
                100
                * accuracy_ahead(histories[dataset, exact, s], histories[dataset, other, s], key)
                for s in seeds
            ]
            for other in others
        }
        worst = min(rows, key=lambda other: float(np.mean(rows[other])))
        text = (
            f"at equal {what} CAMU with exact allocation beats every other scheme; "
            f"shown: its strongest rival, {worst.removeprefix('noisy/')}"
        )
        yield judge(f"B3-{key}", dataset, text, rows[worst], 1, None)


def sensitivity(dataset: str, accuracy: Accuracy, seeds: range) -> Iterator[Verdict]:
    """A1, A2 and U1 to U3 at h = 30 under each variation of a reading or setting."""
    pairs = (
        ("A1", "wasserstein", "fedavg", 1),
        ("A2", "clustered", "wasserstein", 1),
        ("U1", "petrel", "clustered", -1),
        ("U2", "camu", "clustered", 1),
        ("U3", "camu", "petrel", 1),
    )
    for variation in VARIATIONS:
        for claim, better, worse, sign in pairs:
            values = _points(accuracy, f"{variation}/{better}", f"{variation}/{worse}", seeds)
            text = f"{better} over {worse}, h = 30: {variation}"
            yield judge(f"{claim}, {variation}", dataset, text, values, sign, None)


def accuracy_ahead(mine: History, other: History, key: str) -> float:
    """Accuracy difference at the joules or seconds that the cheaper of the two runs spent."""
    budget = min(measure(mine.final, key), measure(other.final, key))
    first, second = mine.accuracy_within(key, budget), other.accuracy_within(key, budget)
    assert first is not None  # a history starts with an evaluation at no cost
    assert second is not None
    return first - second
