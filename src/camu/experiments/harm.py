"""Why claims come out as they do: readings, labels, statistics, the gate, equal work, power."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from camu.arrays import Float64
from camu.experiments.claims import Accuracy, Histories, accuracy_around
from camu.experiments.design import HARM, RECALIBRATED, THRESHOLDS, Cell, Scale, noisy_cell
from camu.experiments.execute import study_config
from camu.experiments.verdicts import Verdict, judge
from camu.planning.bias import label_bias
from camu.schemes import Camu, Clustered, ComputeRounds, WassersteinWeights
from camu.world import build_world

LabelAccuracy = Callable[[Cell, int], Float64]  # of each label, in a cell's run with this seed
GATE_WORLDS = 20


def harm(dataset: str, accuracy: Accuracy, seeds: range) -> Iterator[Verdict]:
    """U1 and U3 at h = 30 under each reading."""
    for variation in (None, *HARM):
        yield from _both(dataset, variation, variation or "as is", accuracy, seeds)


def labels(dataset: str, accuracy: LabelAccuracy, seeds: range) -> Iterator[Verdict]:
    """The label that multi-round updates cost most, under each reading."""
    for variation in (None, *HARM):
        clustered, petrel, _ = _cells(dataset, variation)
        rows = [100 * (accuracy(petrel, seed) - accuracy(clustered, seed)) for seed in seeds]
        table, words = np.array(rows), variation or "as is"
        tests = int((~np.isnan(table[0])).sum())
        worst = int(np.nanargmin(table.mean(axis=0)))
        text = f"accuracy of label {worst}, the worst of {tests}, interval widened; {words}"
        values = table[:, worst].tolist()
        yield judge(f"U1-label, {words}", dataset, text, values, -1, None, tests=tests)


def recalibrated(dataset: str, accuracy: Accuracy, seeds: range) -> Iterator[Verdict]:
    """U1 and U3 with batch norm's statistics computed again on data of all devices."""
    yield from _both(dataset, RECALIBRATED, f"{RECALIBRATED}, recalibrated", accuracy, seeds)


def equal_work(
    dataset: str, seeds: range, histories: Histories, updates: Mapping[int, float]
) -> Verdict:
    """U1 after equally many updates: `updates` has those per round of Benchmark 2, by seed.

    Updates are weighted as the server weights them; Configuration 4 makes one per round.
    """
    clustered, petrel, _ = _cells(dataset, None)
    values = []
    for seed in seeds:
        rounds = float(histories[clustered, seed].final.round)
        mine = accuracy_around(histories[petrel, seed], "rounds", rounds / updates[seed])
        other = accuracy_around(histories[clustered, seed], "rounds", rounds)
        values.append(100 * (mine - other))
    text = "Benchmark 2 is worse than Configuration 4 after equally many updates, h = 30"
    return judge("U1, equal updates", dataset, text, values, -1, None)


def joint(dataset: str, accuracy: Accuracy, seeds: range) -> Iterator[Verdict]:
    """J1 in two parts, and what a channel without noise would add: more than power can."""
    cut = THRESHOLDS[1]
    petrel, camu = noisy_cell(dataset, "petrel"), noisy_cell(dataset, "camu")
    both, clean = noisy_cell(dataset, "camu-joint", "exact"), Cell(dataset, 30, "camu", cut)
    for name, better, worse, sign, text in (
        ("gate", camu, petrel, -1, "Configuration 3 is worse than Benchmark 2, noisy channel"),
        ("power", both, camu, 1, "Configuration 5 (exact) beats Configuration 3, noisy channel"),
        ("noise", clean, camu, 1, "Configuration 3 is better over a clean than a noisy channel"),
    ):
        values = [100 * (accuracy(better, seed) - accuracy(worse, seed)) for seed in seeds]
        yield judge(f"J1, {name}", dataset, text, values, sign, None)


def _cells(dataset: str, variation: str | None) -> list[Cell]:
    return [
        Cell(dataset, 30, name, variation=variation) for name in ("clustered", "petrel", "camu")
    ]


def _both(
    dataset: str, variation: str | None, words: str, accuracy: Accuracy, seeds: range
) -> Iterator[Verdict]:
    clustered, petrel, camu = _cells(dataset, variation)
    for claim, better, worse, sign in (("U1", petrel, clustered, -1), ("U3", camu, petrel, 1)):
        values = [100 * (accuracy(better, seed) - accuracy(worse, seed)) for seed in seeds]
        text = f"{better.scheme} over {worse.scheme}, h = 30: {words}"
        yield judge(f"{claim}, {words}", dataset, text, values, sign, None)


def gate(dataset: str, scale: Scale, rate: float) -> Iterator[Verdict]:
    """What gate and clusters do to the labels that are trained on, in worlds only planned."""
    for labels, h in ((1, 30), (2, 30), (2, 12)):
        more, ranks, clusters = [], [], []
        for seed in range(GATE_WORLDS):
            changes = Cell(dataset, h, "camu").changes(scale, rate, seed)
            world = build_world(study_config({**changes, "data.labels_per_device": labels}))
            schemes = (Camu(), ComputeRounds(), Clustered(), WassersteinWeights())
            gated, free, grouped, single = (
                label_bias(scheme.plan(world), world) for scheme in schemes
            )
            more.append(gated.distance - free.distance)
            ranks.append(gated.size_rank or 0.0)
            clusters.append(grouped.distance - single.distance)
        words = f"h = {h}, {labels} label{'s' if labels > 1 else ''}"
        text = f"the gate brings the trained labels closer to everyone's: {words}"
        yield judge(f"G1, {words}", dataset, text, more, -1, None, "total variation")
        text = f"contribution ranks clusters by size: {words}"
        yield judge(f"G2, {words}", dataset, text, ranks, 1, None, "Spearman's correlation")
        text = f"clusters move the trained labels away from everyone's: {words}"
        yield judge(f"G3, {words}", dataset, text, clusters, 1, None, "total variation")
