"""Where the harm of multi-round updates comes from: readings, labels, statistics, and the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from camu.arrays import Float64
from camu.experiments.claims import Accuracy
from camu.experiments.design import HARM, RECALIBRATED, Cell, Scale
from camu.experiments.execute import study_config
from camu.experiments.verdicts import Verdict, judge
from camu.planning.bias import label_bias
from camu.schemes import Camu, ComputeRounds
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
    """What the gate does to the labels that are trained on, in worlds that are only planned."""
    for labels, h in ((1, 30), (2, 30), (2, 12)):
        more, ranks = [], []
        for seed in range(GATE_WORLDS):
            changes = Cell(dataset, h, "camu").changes(scale, rate, seed)
            world = build_world(study_config({**changes, "data.labels_per_device": labels}))
            gated, free = Camu().plan(world), ComputeRounds().plan(world)
            biases = [label_bias(plan, world) for plan in (gated, free)]
            more.append(biases[0].distance - biases[1].distance)
            ranks.append(biases[0].size_rank or 0.0)
        words = f"h = {h}, {labels} label{'s' if labels > 1 else ''}"
        text = f"the gate brings the trained labels closer to everyone's: {words}"
        yield judge(f"G1, {words}", dataset, text, more, -1, None, "total variation")
        text = f"contribution ranks clusters by size: {words}"
        yield judge(f"G2, {words}", dataset, text, ranks, 1, None, "Spearman's correlation")
