"""The target of a comparison, from histories made by hand."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from camu.cli.compare import show_comparison
from camu.experiments.comparison import Comparison, tabulate
from camu.simulation.history import History, Record


def history(*accuracies: float) -> History:
    """A run that spends two joules in each round."""
    records = (
        Record(number, accuracy, None, float(number), {"compute": number, "transmit": number})
        for number, accuracy in enumerate(accuracies)
    )
    return History(tuple(records), "sha", "rounds")


def shown(table: Comparison) -> str:
    text = io.StringIO()
    show_comparison(table, Console(file=text, width=200))
    return text.getvalue()


# The second run never gets better than the first one was before its training.
FLAT = {"fedavg": [history(0.1, 0.2, 0.4)], "camu": [history(0.05, 0.08, 0.09)]}
LEARNS = {"fedavg": [history(0.1, 0.2, 0.4)], "camu": [history(0.05, 0.08, 0.13)]}


def test_a_target_that_an_untrained_model_has_is_left_out() -> None:
    table = tabulate(FLAT, [0])
    assert table.to_dict()["target_accuracy"] is None
    assert all(row.joules_to_target is None for row in table.rows)
    assert "Cost of reaching" not in shown(table)
    assert "not every run became better than an untrained model" in shown(table)
    assert "target" not in table.to_latex()
    assert "reached" not in table.to_latex()
    assert "cost of reaching" not in table._repr_html_()


@pytest.mark.parametrize(("histories", "target"), [(FLAT, 0.05), (LEARNS, None)])
def test_any_other_target_is_shown(
    histories: dict[str, list[History]], target: float | None
) -> None:
    table = tabulate(histories, [0], target)
    assert table.target_accuracy == (target or 0.13)
    assert f"Cost of reaching {table.target_accuracy:.0%}" in shown(table)
    assert "not every run" not in shown(table)
    assert "target accuracy" in table.to_latex()
