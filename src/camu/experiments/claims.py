"""The paper's claims as data: which runs are compared, and which sign is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from camu.experiments.design import (
    HETEROGENEITY,
    SENSITIVITY,
    THRESHOLDS,
    Cell,
    Match,
    noisy_cell,
)
from camu.experiments.verdicts import Verdict, judge
from camu.simulation.history import History, accuracy_at, measure

Accuracy = Callable[[Cell, int], float]  # of a cell's run with this seed
BUDGETS = {"joules": "energy", "seconds": "virtual time"}
BUDGET_SHARES = (0.85, 0.9, 0.95, 1.0)  # where accuracy at a budget is read
Histories = dict[tuple[Cell, int], History]


PRINTED: dict[str, dict[str, Any]] = {
    "A1": {"mnist": (0.255, 6.262), "fashion-mnist": (0.431, 0.858)},
    "A2": {"mnist": (0.507, 6.615), "fashion-mnist": (0.427, 4.645)},
    "U1": {"mnist": -4.468, "fashion-mnist": -2.252},
    "U2": {"mnist": 1.527, "fashion-mnist": 2.573},
    "U3": {"mnist": 5.995, "fashion-mnist": 4.825},
    "J1": {"mnist": 2.910, "fashion-mnist": 4.407},
    "J2": {"mnist": 5.198, "fashion-mnist": 3.820},
}


def _points(accuracy: Accuracy, better: Cell, worse: Cell, seeds: range) -> list[float]:
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
            [
                _points(accuracy, Cell(dataset, h, better), Cell(dataset, h, worse), seeds)
                for h in HETEROGENEITY
            ]
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
    petrel, clustered = Cell(dataset, 30, "petrel"), Cell(dataset, 30, "clustered")
    camu = {cut: Cell(dataset, 30, "camu", cut) for cut in THRESHOLDS}
    gap = _points(accuracy, petrel, clustered, seeds)
    printed = {name: PRINTED[name][dataset] for name in ("U1", "U2", "U3")}
    text = "Benchmark 2 is worse than Configuration 4 when all devices are Non-IID"
    yield judge("U1", dataset, text, gap, -1, printed["U1"])
    for claim, base, other in (
        ("U2", clustered, "Configuration 4"),
        ("U3", petrel, "Benchmark 2"),
    ):
        rows = {cut: _points(accuracy, cell, base, seeds) for cut, cell in camu.items()}
        best = max(rows, key=lambda cut: float(np.mean(rows[cut])))
        text = (
            f"Configuration 3 beats {other}; best threshold of three ({best:g}), interval widened"
        )
        yield judge(claim, dataset, text, rows[best], 1, printed[claim], tests=len(THRESHOLDS))
        for cut, values in rows.items():
            text = f"Configuration 3 at threshold {cut:g} beats {other}"
            yield judge(f"{claim}@{cut:g}", dataset, text, values, 1, None)
    text = "accuracy falls as the threshold rises from 0.5e4 to 1.5e4"
    fall = _points(accuracy, camu[THRESHOLDS[-1]], camu[THRESHOLDS[0]], seeds)
    yield judge("U4", dataset, text, fall, -1, "falls")
    text = (
        "multi-round updates help at lower heterogeneity (Benchmark 2 over Configuration 4, h = 12)"
    )
    gain = _points(accuracy, Cell(dataset, 12, "petrel"), Cell(dataset, 12, "clustered"), seeds)
    yield judge("U5", dataset, text, gain, 1, "helps")
    nova = Cell(dataset, 30, "camu-nova", THRESHOLDS[1])
    text = "normalised updates enlarge CAMU's gain over Benchmark 2"
    gain = _points(accuracy, nova, camu[THRESHOLDS[1]], seeds)
    yield judge("B2", dataset, text, gain, 1, None)


def resources(dataset: str, accuracy: Accuracy, seeds: range) -> Iterator[Verdict]:
    """J1 and J2: joint optimisation over the noisy channel at Benchmark 2's energy."""
    joint = {solver: noisy_cell(dataset, "camu-joint", solver) for solver in ("ppo", "exact")}
    for solver, mine in joint.items():
        for claim, other, name in (("J1", "petrel", "Benchmark 2"), ("J2", "hti", "Benchmark 3")):
            values = _points(accuracy, mine, noisy_cell(dataset, other), seeds)
            text = f"Configuration 5 ({solver}) beats {name} at its energy"
            printed = PRINTED[claim][dataset] if solver == "ppo" else None
            suffix = "" if solver == "ppo" else "-exact"
            yield judge(claim + suffix, dataset, text, values, 1, printed)


def budgets(dataset: str, seeds: range, histories: Histories) -> Iterator[Verdict]:
    """B3: joint optimisation against its strongest rival at equal energy and at equal time."""
    others = sorted(
        {
            cell.scheme
            for cell, _ in histories
            if cell == noisy_cell(dataset, cell.scheme) and cell.scheme != "camu-joint"
        }
    )
    exact = noisy_cell(dataset, "camu-joint", "exact")
    for key, what in BUDGETS.items():
        rows = {}
        for name in others:
            rival = noisy_cell(dataset, name)
            rows[name] = [
                100 * accuracy_ahead(histories[exact, seed], histories[rival, seed], key)
                for seed in seeds
            ]
        worst = min(rows, key=lambda other: float(np.mean(rows[other])))
        text = (
            f"at equal {what} CAMU with exact allocation beats every other scheme; "
            f"shown: its strongest rival, {worst}"
        )
        yield judge(f"B3-{key}", dataset, text, rows[worst], 1, None)


def exact_against_ppo(
    dataset: str, allocations: Mapping[tuple[str, int], Mapping[str, Any]], seeds: range
) -> Verdict:
    """B1: PPO's objective against the exact one's, from the allocation of each run's plan."""
    worse = [
        100 * (allocations["ppo", s]["objective"] / allocations["exact", s]["objective"] - 1)
        for s in seeds
    ]
    gap = max(allocations["exact", s]["gap"] for s in seeds)
    text = (
        "the exact allocation is never worse than PPO's (excess of PPO's objective in %); "
        f"largest certified gap of the exact one {gap:.1e}"
    )
    return judge("B1", dataset, text, worse, 1, None, "% of the objective")


def theory(dataset: str, margins: Sequence[Mapping[str, float]]) -> Iterator[Verdict]:
    """T1 for the printed and the corrected bound, from the margins of each seed."""
    for claim, bound, printed in (("T1", "theorem1", "holds"), ("T1-corrected", "corrected", None)):
        values = [row[bound] for row in margins]
        held = sum(value >= 0 for value in values)
        text = f"the {bound} bound stays above the measured gap (held in {held} of {len(values)})"
        yield judge(claim, dataset, text, values, 1, printed, "log10(bound / gap)")


def sensitivity(dataset: str, accuracy: Accuracy, seeds: range) -> Iterator[Verdict]:
    """A1, A2 and U1 to U3 at h = 30, as is and under each variation."""
    pairs = (
        ("A1", "wasserstein", "fedavg", 1),
        ("A2", "clustered", "wasserstein", 1),
        ("U1", "petrel", "clustered", -1),
        ("U2", "camu", "clustered", 1),
        ("U3", "camu", "petrel", 1),
    )
    for variation in (None, *SENSITIVITY):
        for claim, better, worse, sign in pairs:
            first = Cell(dataset, 30, better, variation=variation)
            second = Cell(dataset, 30, worse, variation=variation)
            values = _points(accuracy, first, second, seeds)
            words = variation or "as is"
            text = f"{better} over {worse}, h = 30: {words}"
            yield judge(f"{claim}, {words}", dataset, text, values, sign, None)


def contest(match: Match, seeds: range, histories: Histories) -> Iterator[Verdict]:
    """`camu-balanced` against each rival at equal energy and at equal time."""
    for key, what in BUDGETS.items():
        for rival in match.rivals:
            values = [
                100 * accuracy_ahead(histories[match.mine, seed], histories[rival, seed], key)
                for seed in seeds
            ]
            text = f"{match.mine.scheme} over {rival.scheme} ({rival.variation}) at equal {what}"
            yield judge(duel(key, rival), rival.dataset, text, values, 1, None)


def duel(key: str, rival: Cell) -> str:
    """The name of a comparison with a rival at equal joules or seconds."""
    return f"C-{key}@{rival.name}"


def accuracy_ahead(mine: History, other: History, key: str) -> float:
    """Accuracy difference at the joules or seconds that the cheaper of the two runs spent."""
    budget = min(measure(mine.final, key), measure(other.final, key))
    return accuracy_around(mine, key, budget) - accuracy_around(other, key, budget)


def accuracy_around(history: History, key: str, budget: float) -> float:
    """The mean accuracy at 85, 90, 95 and 100 % of a budget of joules or seconds."""
    places = budget * np.array(BUDGET_SHARES)
    return float(accuracy_at(history.evaluated, key, places).mean())
