"""Accuracy against cost: a row per scheme, and which of them no other scheme beats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from camu.report.groups import Group
from camu.report.rows import Rows, short, table_row

COSTS = ("joules", "seconds")


def frontier_rows(groups: Sequence[Group], cost: str) -> Rows:
    """A row per scheme: means over seeds at the end of its runs, and whether it is on the line."""
    found: Rows = []
    for group in groups:
        values = table_row(group)
        found.append(
            {
                "scheme": group.label,
                "family": group.family,
                "x": short(float(np.mean(values[cost]))),
                "accuracy": short(float(np.mean(values["accuracy"]))),
                "n": len(values["accuracy"]),
            }
        )
    best = unbeaten([(row["x"], row["accuracy"]) for row in found])
    return [row | {"best": number in best} for number, row in enumerate(found)]


def unbeaten(points: Sequence[tuple[float, float]]) -> set[int]:
    """The points (cost, accuracy) without another that is as good in both and better in one."""
    return {
        number
        for number, (cost, accuracy) in enumerate(points)
        if not any(
            other_cost <= cost
            and other_accuracy >= accuracy
            and (other_cost, other_accuracy) != (cost, accuracy)
            for other_cost, other_accuracy in points
        )
    }
