"""The claims as data: which runs are compared, which sign is printed, and why they come out so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from camu.arrays import Float64
from camu.experiments.design import (
    HARM,
    HETEROGENEITY,
    RECALIBRATED,
    SENSITIVITY,
    THRESHOLDS,
    Cell,
    Scale,
    noisy_cell,
)
from camu.experiments.scheduler import study_config
from camu.experiments.statistics import CONTRADICTED, REPRODUCED, Verdict, judge
from camu.planning.contribution import label_bias
from camu.schemes import Camu, Clustered, ComputeRounds, WassersteinWeights, plans
from camu.simulation.history import History, measure, score_at
from camu.world import build_world

BUDGETS = {"joules": "energy", "seconds": "virtual time"}
BUDGET_SHARES = (0.85, 0.9, 0.95, 1.0)  # where accuracy at a budget is read
GATE_WORLDS = 20
Histories = Mapping[tuple[Cell, int], History]
LabelAccuracy = Callable[[Cell, int], Float64]  # of each label, in a cell's run with this seed

PRINTED: dict[str, dict[str, Any]] = {
    "A1": {"mnist": "0.255 to 6.262", "fashion-mnist": "0.431 to 0.858"},
    "A2": {"mnist": "0.507 to 6.615", "fashion-mnist": "0.427 to 4.645"},
    "U1": {"mnist": -4.468, "fashion-mnist": -2.252},
    "U2": {"mnist": 1.527, "fashion-mnist": 2.573},
    "U3": {"mnist": 5.995, "fashion-mnist": 4.825},
    "J1": {"mnist": 2.910, "fashion-mnist": 4.407},
    "J2": {"mnist": 5.198, "fashion-mnist": 3.820},
}


@dataclass(frozen=True)
class Accuracies:
    """The accuracies (0 to 1) of all runs on a data set; `of` gives that of a cell and a seed."""

    dataset: str
    of: Callable[[Cell, int], float]
    seeds: range

    def gains(self, better: Cell, worse: Cell) -> list[float]:
        """How far one cell is above another, in points, by seed."""
        return [100 * (self.of(better, seed) - self.of(worse, seed)) for seed in self.seeds]

    def judge(
        self, claim: str, text: str, better: Cell, worse: Cell, sign: int = 1, paper: Any = None
    ) -> Verdict:
        """The verdict on the claim that a cell is above another, or below it if the sign is -1."""
        return judge(claim, self.dataset, text, self.gains(better, worse), sign, paper)

    def printed(self, claim: str) -> Any:
        """The value in the paper."""
        return PRINTED.get(claim, {}).get(self.dataset)


def aggregation(found: Accuracies) -> Iterator[Verdict]:
    """A1 and A2: weights beat FedAvg, clusters beat weights; more so the more Non-IID."""
    dataset = found.dataset
    for claim, better, worse, statement in (
        ("A1", "wasserstein", "fedavg", "Configuration 2 beats Benchmark 1"),
        ("A2", "clustered", "wasserstein", "Configuration 1 beats Configuration 2"),
        ("A2b", "clustered", "fedavg", "Configuration 1 beats Benchmark 1"),
    ):
        gains = np.array(
            [found.gains(Cell(dataset, h, better), Cell(dataset, h, worse)) for h in HETEROGENEITY]
        )
        text, mean = f"{statement}, mean over h", gains.mean(axis=0)
        yield judge(claim, dataset, text, mean.tolist(), 1, found.printed(claim))
        for h, row in zip(HETEROGENEITY, gains, strict=True):
            text = f"{statement} with {h} Non-IID devices"
            yield judge(f"{claim}@h={h}", dataset, text, row.tolist(), 1)
        slopes = np.polyfit(HETEROGENEITY, gains, 1)[0] * 24
        text = f"the gain ({better} over {worse}) grows from h = 6 to 30"
        yield judge(f"{claim}-trend", dataset, text, slopes.tolist(), 1, "grows")


def updates(found: Accuracies) -> Iterator[Verdict]:
    """U1 to U5 and B2: multi-round updates, gated and not."""
    dataset = found.dataset
    petrel, clustered = Cell(dataset, 30, "petrel"), Cell(dataset, 30, "clustered")
    camu = {cut: Cell(dataset, 30, "camu", cut) for cut in THRESHOLDS}
    text = "Benchmark 2 is worse than Configuration 4 when all devices are Non-IID"
    yield found.judge("U1", text, petrel, clustered, -1, found.printed("U1"))
    for claim, base, other in (
        ("U2", clustered, "Configuration 4"),
        ("U3", petrel, "Benchmark 2"),
    ):
        rows = {cut: found.gains(cell, base) for cut, cell in camu.items()}
        best = max(rows, key=lambda cut: float(np.mean(rows[cut])))
        text = (
            f"Configuration 3 beats {other}; best threshold of three ({best:g}), interval widened"
        )
        tests, printed = len(THRESHOLDS), found.printed(claim)
        yield judge(claim, dataset, text, rows[best], 1, printed, tests=tests)
        for cut, values in rows.items():
            text = f"Configuration 3 at threshold {cut:g} beats {other}"
            yield judge(f"{claim}@{cut:g}", dataset, text, values, 1)
    text = "accuracy falls as the threshold rises from 0.5e4 to 1.5e4"
    yield found.judge("U4", text, camu[THRESHOLDS[-1]], camu[THRESHOLDS[0]], -1, "falls")
    text = (
        "multi-round updates help at lower heterogeneity (Benchmark 2 over Configuration 4, h = 12)"
    )
    many, one = (Cell(dataset, 12, name) for name in ("petrel", "clustered"))
    yield found.judge("U5", text, many, one, paper="helps")
    nova = Cell(dataset, 30, "camu-nova", THRESHOLDS[1])
    text = "normalised updates enlarge CAMU's gain over Benchmark 2"
    yield found.judge("B2", text, nova, camu[THRESHOLDS[1]])


def resources(found: Accuracies) -> Iterator[Verdict]:
    """J1 and J2: joint optimisation over the noisy channel at Benchmark 2's energy."""
    for solver, more in (("ppo", ""), ("exact", "-exact")):
        mine = noisy_cell(found.dataset, "camu-joint", solver)
        for claim, other, name in (("J1", "petrel", "Benchmark 2"), ("J2", "hti", "Benchmark 3")):
            text = f"Configuration 5 ({solver}) beats {name} at its energy"
            name, rival = f"{claim}{more}", noisy_cell(found.dataset, other)
            yield found.judge(name, text, mine, rival, paper=found.printed(name))


def sensitivity(found: Accuracies) -> Iterator[Verdict]:
    """A1, A2 and U1 to U3 at h = 30, as is and under each variation."""
    for variation in (None, *SENSITIVITY):
        yield from _under(found, variation, ("A1", "A2", "U1", "U2", "U3"))


def harm(found: Accuracies) -> Iterator[Verdict]:
    """U1 and U3 at h = 30 under each reading, and J1 in parts."""
    for variation in (None, *HARM):
        yield from _under(found, variation, ("U1", "U3"))
    yield from joint(found)


def recalibrated(found: Accuracies) -> Iterator[Verdict]:
    """U1 and U3 with batch norm's statistics computed again on data of all devices."""
    yield from _under(found, RECALIBRATED, ("U1", "U3"), f"{RECALIBRATED}, recalibrated")


_PAIRS = {
    "A1": ("wasserstein", "fedavg", 1),
    "A2": ("clustered", "wasserstein", 1),
    "U1": ("petrel", "clustered", -1),
    "U2": ("camu", "clustered", 1),
    "U3": ("camu", "petrel", 1),
}


def _under(
    found: Accuracies, variation: str | None, names: Sequence[str], words: str = ""
) -> Iterator[Verdict]:
    """Claims at h = 30 under a variation."""
    words = words or variation or "as is"
    for claim in names:
        better, worse, sign = _PAIRS[claim]
        first, second = (
            Cell(found.dataset, 30, name, variation=variation) for name in (better, worse)
        )
        text = f"{better} over {worse}, h = 30: {words}"
        yield found.judge(f"{claim}, {words}", text, first, second, sign)


def joint(found: Accuracies) -> Iterator[Verdict]:
    """J1 in two parts, and what a channel without noise would add: more than power can."""
    dataset, cut = found.dataset, THRESHOLDS[1]
    petrel, camu = noisy_cell(dataset, "petrel"), noisy_cell(dataset, "camu")
    both, clean = noisy_cell(dataset, "camu-joint", "exact"), Cell(dataset, 30, "camu", cut)
    text = "Configuration 3 is worse than Benchmark 2, noisy channel"
    yield found.judge("J1, gate", text, camu, petrel, -1)
    text = "Configuration 5 (exact) beats Configuration 3, noisy channel"
    yield found.judge("J1, power", text, both, camu)
    text = "Configuration 3 is better over a clean than a noisy channel"
    yield found.judge("J1, noise", text, clean, camu)


# Claims about accuracies, by experiment.
BY_ACCURACY: dict[str, Callable[[Accuracies], Iterator[Verdict]]] = {
    "aggregation": aggregation,
    "updates": updates,
    "resources": resources,
    "sensitivity": sensitivity,
    "harm": harm,
}


def labels(dataset: str, accuracy: LabelAccuracy, seeds: range) -> Iterator[Verdict]:
    """The label that multi-round updates cost most, under each reading."""
    for variation in (None, *HARM):
        petrel, clustered = (
            Cell(dataset, 30, name, variation=variation) for name in ("petrel", "clustered")
        )
        rows = [100 * (accuracy(petrel, seed) - accuracy(clustered, seed)) for seed in seeds]
        table, words = np.array(rows), variation or "as is"
        tests = int((~np.isnan(table[0])).sum())
        worst = int(np.nanargmin(table.mean(axis=0)))
        text = f"accuracy of label {worst}, the worst of {tests}, interval widened; {words}"
        values = table[:, worst].tolist()
        yield judge(f"U1-label, {words}", dataset, text, values, -1, tests=tests)


def equal_work(
    dataset: str, seeds: range, histories: Histories, updates: Mapping[int, float]
) -> Verdict:
    """U1 after equally many updates: `updates` has those per round of Benchmark 2, by seed.

    Updates are weighted as the server weights them; Configuration 4 makes one per round.
    """
    petrel, clustered = (Cell(dataset, 30, name) for name in ("petrel", "clustered"))
    values = []
    for seed in seeds:
        rounds = float(histories[clustered, seed].final.round)
        mine = accuracy_around(histories[petrel, seed], "rounds", rounds / updates[seed])
        other = accuracy_around(histories[clustered, seed], "rounds", rounds)
        values.append(100 * (mine - other))
    text = "Benchmark 2 is worse than Configuration 4 after equally many updates, h = 30"
    return judge("U1, equal updates", dataset, text, values, -1)


def gate(dataset: str, scale: Scale, rate: float) -> Iterator[Verdict]:
    """What gate and clusters do to the labels that are trained on, in worlds only planned."""
    for labels, h in ((1, 30), (2, 30), (2, 12)):
        more, ranks, clusters = [], [], []
        for seed in range(GATE_WORLDS):
            changes = Cell(dataset, h, "camu").changes(scale, rate, seed)
            world = build_world(study_config({**changes, "data.labels_per_device": labels}))
            schemes = (Camu(), ComputeRounds(), Clustered(), WassersteinWeights())
            gated, free, grouped, single = (
                label_bias(plans.plan(scheme, world), world) for scheme in schemes
            )
            more.append(gated.distance - free.distance)
            ranks.append(gated.size_rank or 0.0)
            clusters.append(grouped.distance - single.distance)
        words = f"h = {h}, {labels} label{'s' if labels > 1 else ''}"
        for claim, text, values, sign, unit in (
            ("G1", "the gate brings the trained labels closer to everyone's", more, -1, _DISTANCE),
            ("G2", "contribution ranks clusters by size", ranks, 1, "Spearman's correlation"),
            ("G3", "clusters move the trained labels away from everyone's", clusters, 1, _DISTANCE),
        ):
            yield judge(f"{claim}, {words}", dataset, f"{text}: {words}", values, sign, unit=unit)


_DISTANCE = "total variation"


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
        rows = {
            name: [
                100
                * accuracy_ahead(histories[exact, s], histories[noisy_cell(dataset, name), s], key)
                for s in seeds
            ]
            for name in others
        }
        worst = min(rows, key=lambda other: float(np.mean(rows[other])))
        text = (
            f"at equal {what} CAMU with exact allocation beats every other scheme; "
            f"shown: its strongest rival of {len(rows)}, {worst}"
        )
        yield judge(f"B3-{key}", dataset, text, rows[worst], 1, tests=len(rows))


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
    return judge("B1", dataset, text, worse, 1, unit="% of the objective")


def theory(dataset: str, margins: Sequence[Mapping[str, float]]) -> Iterator[Verdict]:
    """T1 for the printed and the corrected bound, from the margins of each seed."""
    for claim, bound, printed in (("T1", "theorem1", "holds"), ("T1-corrected", "corrected", None)):
        values = [row[bound] for row in margins]
        held = sum(value >= 0 for value in values)
        text = f"the {bound} bound stays above the measured gap (held in {held} of {len(values)})"
        row = judge(claim, dataset, text, values, 1, printed, "log10(bound / gap)")
        # A bound is true or false: one federation above it is a counterexample, and no average is.
        word = REPRODUCED if held == len(values) else CONTRADICTED
        yield replace(row, verdict=word, p=None)


def accuracy_ahead(mine: History, other: History, key: str) -> float:
    """Accuracy difference at the joules or seconds that the cheaper of the two runs spent."""
    budget = min(measure(mine.final, key), measure(other.final, key))
    return accuracy_around(mine, key, budget) - accuracy_around(other, key, budget)


def accuracy_around(history: History, key: str, budget: float) -> float:
    """The mean accuracy at 85, 90, 95 and 100 % of a budget of joules or seconds."""
    places = budget * np.array(BUDGET_SHARES)
    return float(score_at(history.evaluated, key, places).mean())
