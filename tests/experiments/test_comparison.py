"""Targets, equal costs and paired differences of a comparison, from histories made by hand."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

import camu
from camu.cli.compare import show_comparison
from camu.experiments.comparison import Comparison
from camu.experiments.tabulate import tabulate
from camu.report.tables import comparison_table
from camu.simulation.history import History, Record


def history(*accuracies: float, seconds: float = 1.0, joules: float = 2.0, mb: int = 1) -> History:
    """A run whose every round costs the same, half of the joules for computing."""
    records = (
        Record(
            n,
            accuracy,
            None,
            n * seconds,
            {"compute": n * joules / 2, "transmit": n * joules / 2},
            bits={"uplink": n * mb * 6_000_000, "downlink": 0, "gather": n * mb * 2_000_000},
        )
        for n, accuracy in enumerate(accuracies)
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
    assert table.to_dict()["target"] is None
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
    assert table.target == (target or 0.13)
    assert f"Cost of reaching {table.target:.0%}" in shown(table)
    assert "not every run" not in shown(table)
    assert "target accuracy" in table.to_latex()


def test_budgets_that_are_given_are_those_of_the_table() -> None:
    """Two rounds of the first are 4 J and 2 s; the second spends 4 J in eight rounds."""
    long = history(*(0.1 * number for number in range(9)), seconds=0.1, joules=0.5)
    runs = {"fedavg": [history(0.1, 0.2, 0.4)], "fedasync": [long]}
    given = tabulate(runs, [0], budgets={"rounds": 2, "joules": 3.0, "seconds": 1.5})
    first, second = given.rows
    found = [
        [row.at_equal_rounds, row.at_equal_joules, row.at_equal_seconds] for row in (first, second)
    ]
    means = [[None if one is None else one.mean for one in row] for row in found]
    assert means[0] == pytest.approx([0.4, 0.3, 0.3])
    # It ended at 0.8 s, and its final accuracy counts.
    assert means[1] == pytest.approx([0.2, 0.6, long.final_score])
    least = tabulate(runs, [0])
    assert (least.equal_rounds, least.equal_joules, least.equal_seconds) == (2, 4.0, 0.8)


def test_schemes_are_compared_at_equal_megabytes() -> None:
    """Three rounds of the first send 3 MB, of the second 12 MB: its part of a round counts."""
    runs = {
        "fedavg": [history(0.1, 0.2, 0.3, 0.4)],
        "camu": [history(0.1, 0.5, 0.7, 0.8, mb=4)],
    }
    table = tabulate(runs, [0], target=0.3)
    assert table.equal_megabytes == 3.0
    first, second = table.rows
    assert [first.megabytes.mean, second.megabytes.mean] == [3.0, 12.0]
    at = 0.1 + 0.75 * 0.4  # 3 of the 4 MB of the first round
    for row, mean in ((first, 0.4), (second, at)):
        assert row.at_equal_megabytes is not None
        assert row.at_equal_megabytes.mean == pytest.approx(mean)
    assert second.megabytes_difference is not None
    assert second.megabytes_difference.mean == pytest.approx(at - 0.4)
    costs = [row.megabytes_to_target for row in table.rows]
    assert [cost.mean for cost in costs if cost is not None] == [2.0, 4.0]
    saved = list(csv.DictReader(table.to_csv().splitlines()))
    assert [float(row["at_equal_megabytes"]) for row in saved] == pytest.approx([0.4, at])
    assert [float(row["megabytes"]) for row in saved] == [3.0, 12.0]
    assert table.to_dict()["equal_megabytes"] == 3.0
    for text in (shown(table), table.to_latex(), table.to_markdown(), table._repr_html_()):
        assert "at 3 MB" in text
    assert comparison_table(table)["families"][0]["rows"][1][7:9] == ["40.00", "0.00"]
    assert comparison_table(table)["head"][-1]["name"] == "sent (MB)"


def test_differences_are_paired_by_seed_at_every_budget() -> None:
    draw = np.random.default_rng(0)
    worlds = draw.uniform(0.2, 0.6, 5)  # what the seeds share
    gains = draw.uniform(0.0, 0.02, 5)
    runs = {
        "fedavg": [history(0.1, world, world + 0.1) for world in worlds],
        "camu": [
            history(0.1, world + gain, world + 2 * gain)
            for world, gain in zip(worlds, gains, strict=True)
        ],
    }
    table = tabulate(runs, range(5), budgets={"rounds": 2, "joules": 2.0, "seconds": 1.0})
    row = table.rows[1]
    for found, expected in (
        (row.difference, 2 * gains - 0.1),
        (row.joules_difference, gains),
        (row.seconds_difference, gains),
        (row.megabytes_difference, 2 * gains - 0.1),
    ):
        assert found is not None
        low, high = stats.t.interval(0.95, 4, expected.mean(), stats.sem(expected))
        assert (found.mean, found.low, found.high) == pytest.approx((expected.mean(), low, high))
    saved = [run["joules_difference"] for run in table.to_dict()["runs"]]
    assert saved == pytest.approx([0.0] * 5 + gains.tolist())
    assert table.rows[0].difference is None
    cells = table.to_markdown().splitlines()[3].split("|")
    assert cells[1].strip() == "`camu`"
    assert row.joules_difference is not None
    assert cells[5].strip() == row.joules_difference.show(100)


def test_many_schemes_are_divided_by_family() -> None:
    names = [f"scheme-{number}" for number in range(20)]
    families = {name: ("odd", "even")[number % 2] for number, name in enumerate(names)}
    table = tabulate({name: [history(0.1, 0.2)] for name in names}, [0], families=families)
    lines = [line.strip() for line in shown(table).splitlines()]
    first, second = lines.index("odd"), lines.index("even")
    between = [line.split()[0] for line in lines[first + 1 : second]]
    assert between == names[::2]
    assert table.to_markdown().count("**") == 4
    few = tabulate({name: [history(0.1, 0.2)] for name in names[:3]}, [0], families=families)
    assert "odd" not in shown(few)


def test_other_metrics_are_shown_beside_the_score() -> None:
    """Their means over seeds, in a table and in the columns of the CSV file."""
    metrics = ["mean-device-accuracy", "worst-device-accuracy", "accuracy"]
    keys = {"run.rounds": 2, "training.metrics": metrics}
    config = camu.load_config(preset="demo", overrides=keys)
    histories = {
        name: [
            camu.simulate(camu.build_world(config, seed=seed), camu.schemes.SCHEMES[name]()).history
            for seed in (0, 1)
        ]
        for name in ("fedsgd", "ditto")
    }
    table = tabulate(histories, [0, 1])
    assert table.metric == "mean-device-accuracy"
    for row in table.rows:
        for name in metrics[1:]:
            ends = [one.final for one in histories[row.scheme]]
            known = [{**one.metrics, "accuracy": one.accuracy}[name] for one in ends]
            assert row.metrics[name].mean == pytest.approx(sum(known) / 2)
    lines = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [float(line["accuracy"]) for line in lines[:2]] == pytest.approx(
        [one.final.accuracy for one in histories["fedsgd"]]
    )
    assert [title for title, _ in table.other_columns()] == ["worst device accuracy", "accuracy"]
