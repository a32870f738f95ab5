"""What a history says about budgets, against an interpolation done by hand."""

from __future__ import annotations

import importlib
import json
import re
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest

from camu.errors import InputError
from camu.experiments.claims import accuracy_ahead
from camu.experiments.comparison import tabulate
from camu.report.runs import Group
from camu.report.scenes import curve_rows
from camu.simulation.history import History, Record


def history(joules: float, accuracies: list[float | None], seconds: float = 1.0) -> History:
    """A run whose every round costs the same."""
    records = [
        Record(
            number,
            accuracy,
            None,
            number * seconds,
            {"compute": number * joules / 4, "transmit": number * 3 * joules / 4},
            bits={"uplink": 6_000_000 * number, "downlink": 0, "gather": 2_000_000 * number},
        )
        for number, accuracy in enumerate(accuracies)
    ]
    return History(tuple(records), "sha", "rounds")


CHEAP = history(2.0, [0.1, None, 0.3, None, 0.5])  # 8 J in all
DEAR = history(3.0, [0.1, None, 0.6, None, 0.7], 0.5)  # evaluated at 0, 6 and 12 J


def test_a_budget_between_two_evaluations_is_interpolated() -> None:
    by_hand = 0.6 + (8 - 6) / (12 - 6) * (0.7 - 0.6)
    assert DEAR.score_within("joules", 8.0) == pytest.approx(by_hand)
    assert by_hand == pytest.approx(np.interp(8, [0, 6, 12], [0.1, 0.6, 0.7]))
    assert DEAR.score_within("seconds", 0.75) == pytest.approx(
        np.interp(0.75, [0, 1, 2], [0.1, 0.6, 0.7])
    )
    assert DEAR.score_within("rounds", 3) == pytest.approx(0.65)


def test_the_ends_of_a_history() -> None:
    assert CHEAP.score_within("joules", 8.0) == 0.5
    assert CHEAP.score_within("joules", 100.0) == 0.5  # it spent no more
    assert CHEAP.score_within("joules", 0.0) == 0.1
    late = History(DEAR.records[1:], "sha", "rounds")
    assert late.score_within("joules", 5.9) is None
    assert late.score_within("joules", 6.0) == pytest.approx(0.6)


def test_the_cost_of_an_accuracy_is_that_of_an_evaluation() -> None:
    assert DEAR.needed_for("joules", 0.6) == 6.0
    assert DEAR.needed_for("joules", 0.61) == 12.0
    assert DEAR.needed_for("joules", 0.8) is None


def test_comparison_claims_and_page_interpolate_at_equal_joules() -> None:
    expected = np.interp(8, [0, 6, 12], [0.1, 0.6, 0.7])
    table = tabulate({"cheap": [CHEAP], "dear": [DEAR]}, [0])
    assert table.equal_joules == 8.0
    found = table.rows[1].at_equal_joules
    assert found is not None
    assert found.mean == pytest.approx(expected)
    # Claims read accuracy at four places of the last 15 % of that budget.
    places = [6.8, 7.2, 7.6, 8.0]
    mine = np.interp(places, [0, 6, 12], [0.1, 0.6, 0.7])
    known = [(r.total_joules, r.accuracy) for r in CHEAP.evaluated]
    theirs = np.interp(places, [x for x, _ in known], [y for _, y in known])
    assert accuracy_ahead(DEAR, CHEAP, "joules") == pytest.approx(np.mean(mine - theirs))
    # The page draws two runs that end at 8 J and at 12 J on one grid up to 8 J.
    runs = [SimpleNamespace(records=h.evaluated) for h in (DEAR, CHEAP)]
    group = cast(Group, SimpleNamespace(label="both", counted=runs, metric=DEAR.metric))
    last = curve_rows([group], "joules")[-1]
    assert last["x"] == 8.0
    assert last["mean"] == pytest.approx((expected + 0.5) / 2, rel=1e-4)


def test_rows_are_flat_and_make_a_frame() -> None:
    rows = DEAR.rows()
    assert [row["joules"] for row in rows] == [0, 3, 6, 9, 12]
    assert [row["joules_compute"] for row in rows] == pytest.approx([0, 0.75, 1.5, 2.25, 3])
    assert all(not isinstance(value, dict | list | tuple) for row in rows for value in row.values())
    frame = DEAR.to_frame()
    assert list(frame["round"]) == [0, 1, 2, 3, 4]
    assert list(frame.columns) == list(rows[0])


def test_a_frame_without_pandas_and_polars_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = importlib.import_module

    def without(name: str, *rest: Any) -> Any:
        if name in ("pandas", "polars"):
            raise ImportError(name)
        return whole(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(InputError, match="pandas or polars"):
        DEAR.to_frame()


def test_a_notebook_shows_curve_and_table_with_all_text_escaped() -> None:
    odd = History(DEAR.records, "sha", "<script>alert(1)</script>")
    table = tabulate({"<b>mine</b>": [CHEAP], "dear & co": [odd]}, [0])
    for thing in (odd, table):
        text = thing._repr_html_()
        assert "<script" not in text
        assert "<b>" not in text
        (picture,) = re.findall("<svg.*?</svg>", text)
        lines = ElementTree.fromstring(picture).findall("polyline")
        points = [len(line.attrib["points"].split()) for line in lines]
        assert points == ([3] if thing is odd else [3, 3])
        assert text.count("<table>") == 1
    assert "70.00%" in odd._repr_html_()
    assert "dear &amp; co" in table._repr_html_()


def test_latex_escapes_names() -> None:
    text = tabulate({"my_scheme:A&B": [CHEAP], "dear": [DEAR]}, [0]).to_latex()
    assert r"my\_scheme:A\&B & 50.00 & - & 50.00" in text
    assert text.count(r"\\") == 3


def test_the_tail_is_the_mean_of_the_last_evaluations() -> None:
    accuracies = [0.1, 0.5, None, 0.7, 0.6]
    records = [
        Record(
            number,
            accuracy,
            None,
            0.0,
            {"compute": 0.0, "transmit": 0.0},
            label_accuracy=() if accuracy is None else (accuracy, None, 1.0),
            average_score=None if accuracy is None else accuracy + 0.1,
        )
        for number, accuracy in enumerate(accuracies)
    ]
    found = History(tuple(records), "sha", "rounds")
    assert found.tail_score(2) == pytest.approx(0.65)
    assert found.tail_score(5) == pytest.approx(0.6)  # round 0 is not training
    assert found.tail_label_accuracy(2) == pytest.approx([0.65, np.nan, 1.0], nan_ok=True)
    assert found.average_score == pytest.approx(0.7)
    again = [Record.from_dict(json.loads(json.dumps(record.to_dict()))) for record in records]
    assert again == records
