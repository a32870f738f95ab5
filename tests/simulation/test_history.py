"""What a history says about budgets, against an interpolation done by hand."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import camu
from camu.data import load
from camu.errors import InputError
from camu.experiments.claims import accuracy_ahead
from camu.experiments.tabulate import tabulate
from camu.report.runs import Group
from camu.report.scenes import curve_rows
from camu.schemes import make_scheme
from camu.simulation import simulate
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.history import History, Record
from camu.simulation.result import judged_by
from camu.world import build_world
from helpers.configs import small


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


def test_values_are_shown_in_a_line() -> None:
    world = build_world(small(run__eval_samples=50))
    result = simulate(world, make_scheme(world.config, "fedavg"))
    for value in (result.history, result.plan, result):
        assert len(repr(value)) < 250
        assert "\n" not in repr(value)
    assert "2 rounds: accuracy" in repr(result.history)
    assert "20 units of 20 devices" in repr(result.plan)


def test_models_can_be_judged_by_some_test_samples() -> None:
    def final(**changes: Any) -> Any:
        world = build_world(small(run__rounds=1, **changes))
        return simulate(world, make_scheme(world.config, "fedavg"))

    whole, some = final(), final(run__eval_samples=40)
    assert some.history.weights_sha256 == whole.history.weights_sha256
    share = some.history.final.accuracy * 40
    assert share == pytest.approx(round(share), abs=1e-6)
    data = load("digits")
    rows = judged_by(some.config, len(data.test_inputs))
    images = torch.from_numpy(data.test_inputs[rows])[:, None].float() / 255
    said = some.model()(images).argmax(dim=1).numpy()
    assert (said == data.test_targets[rows]).mean() == pytest.approx(some.history.final.accuracy)
    assert final(run__eval_samples=10**6).history.records == whole.history.records
    metrics = ["accuracy", "mean-device-accuracy"]
    devices = final(run__eval_samples=200, training__metrics=metrics).history.final
    assert 0 <= devices.metrics["mean-device-accuracy"] <= 1


def test_finished_runs_are_read_back_with_a_table_of_all_rounds(tmp_path: Path) -> None:
    config = small(scheme__name="fedavg")
    for seed in (1, 2):
        own = config.replace({"run.seed": seed})
        run_in_directory(own, RunDirectory(tmp_path / "all" / f"seed-{seed}"))
    (tmp_path / "all" / "begun").mkdir()
    (tmp_path / "all" / "begun" / "config.toml").write_text(config.to_toml())
    runs = camu.read_runs(tmp_path / "all")
    assert [run.config.run.seed for run in runs] == [1, 2]
    assert [run.plan.scheme for run in runs] == ["fedsgd"] * 2
    frame = runs.to_frame()
    assert frame["seed"].tolist() == [1, 1, 1, 2, 2, 2]
    assert frame["accuracy"].tolist() == [r.accuracy for run in runs for r in run.history.records]
    assert len(repr(runs[0])) < 400
    for wrong in (tmp_path / "none", tmp_path / "all" / "begun"):
        with pytest.raises(camu.InputError, match="read_runs: "):
            camu.read_runs(wrong)
    compared = camu.compare(config, ["fedsgd", "fedpaq"], seeds=1)
    assert compared.to_frame()["scheme"].tolist() == ["fedsgd", "fedpaq"]
    assert repr(compared).startswith("Comparison(2 schemes, 1 seeds; accuracy at ")
    assert f"fedpaq {compared.rows[1].at_equal_joules.mean:.2%}" in repr(compared)
    assert len(repr(compared)) < 250
    assert "metrics" not in compared.to_frame().columns
