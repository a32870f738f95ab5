"""`scripts/draw-harm`: the rows behind the figures, and figures that name what they show."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from camu.errors import InputError
from camu.experiments.design import Cell
from camu.experiments.statistics import estimate
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.history import History, Record
from helpers.configs import small


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "draw-harm"))


def a_history(*accuracies: float) -> History:
    nothing = {"compute": 0.0, "transmit": 0.0}
    records = [
        Record(n, value, None, 0.0, nothing, label_accuracy=(value, value / 2))
        for n, value in enumerate(accuracies)
    ]
    return History(tuple(records), "sha", "rounds")


KEYS = [
    ("mnist", norm, scheme)
    for norm in ("batch norm", "group norm")
    for scheme in ("clustered", "petrel")
]


def test_rows_are_means_over_seeds_with_their_intervals(script: dict[str, Any]) -> None:
    own = [a_history(0.1, 0.5, 0.8), a_history(0.1, 0.6, 0.7)]
    rows = list(script["round_rows"]({KEYS[0]: own}))
    assert [row["round"] for row in rows] == [1, 2]
    expected = estimate([50.0, 60.0])
    assert rows[0]["accuracy"] == pytest.approx(55.0)
    assert (rows[0]["low"], rows[0]["high"]) == (0.0, 100.0)  # the interval, cut at the edges
    assert expected.low is not None
    assert expected.low < 0
    labels = list(script["label_rows"]({KEYS[0]: own}))
    # The last evaluations are all but round 0.
    assert [row["accuracy"] for row in labels] == pytest.approx([65.0, 32.5])


def test_figures_name_data_set_and_normalisation(script: dict[str, Any], tmp_path: Path) -> None:
    histories = {key: [a_history(0.1, 0.5), a_history(0.1, 0.52)] for key in KEYS}
    rounds = script["rounds_figure"](list(script["round_rows"](histories)), ["mnist"])
    labels = script["labels_figure"](list(script["label_rows"](histories)), ["mnist"])
    gate = script["gate_figure"](
        [{"scheme": name, "world": 0, "distance": 0.1} for name in ("compute-rounds", "camu")],
        [{"samples": 200, "contribution": 270.0}],
    )
    for name, chart in {"rounds": rounds, "labels": labels, "gate": gate}.items():
        script["save"](script["quiet"](chart.to_dict()), tmp_path / f"{name}.svg")
    for name in ("rounds", "labels"):
        text = (tmp_path / f"{name}.svg").read_text()
        for words in ("MNIST, batch norm", "MNIST, group norm", "by speed", "over 2 seeds"):
            assert words in text
        assert "Fashion" not in text
    assert "compute-rounds" in (tmp_path / "gate.svg").read_text()


def test_runs_are_found_by_the_names_of_their_cells(script: dict[str, Any], tmp_path: Path) -> None:
    """The newest of two results of one seed counts; other readings do not."""
    one = "one label, twice the rate"
    cells = [Cell("mnist", 30, "petrel", variation=name) for name in (one, "one label")]
    for number, (cell, rounds) in enumerate([(cells[0], 1), (cells[0], 2), (cells[1], 3)]):
        config = small(run__rounds=rounds, data__samples_per_device=30)
        run_in_directory(config, RunDirectory(tmp_path / f"{cell.name}-seed0-{number}"))
    found = dict(script["read_histories"](tmp_path))
    assert list(found) == [("mnist", "batch norm", "petrel")]
    ((history,),) = found.values()
    assert history.final.round == 2


def test_a_directory_without_such_runs_is_refused(script: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="camu reproduce harm"):
        script["draw"](tmp_path, tmp_path)
