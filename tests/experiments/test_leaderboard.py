"""The leaderboard: equal budgets, honest ranks, and a table that anyone's scheme can join."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from camu.experiments import leaderboard
from camu.experiments.design import FULL, QUICK, Scale
from camu.experiments.leaderboard import (
    WORLDS,
    BoardWorld,
    Leaderboard,
    entries_of,
    run_leaderboard,
)
from camu.experiments.ranking import (
    ENDED,
    PILOT,
    Board,
    Run,
    RunKey,
    WorldEntry,
    board_of,
    standings,
)
from camu.experiments.scheduler import Executor
from camu.experiments.tables import leaderboard_page
from camu.schemes import SCHEMES
from camu.simulation.history import History, Record

saved_board = TypeAdapter(Board).validate_python
DIGITS = BoardWorld("digits", "digits", "20 devices", 14)
TINY = Scale("tiny", 30, 2, 1, 2, (1000,), board_rounds=3)
DOCS = Path(__file__).parents[2] / "docs"


def a_history(joules: list[float], accuracies: list[float]) -> History:
    """A run whose rounds cost half as many seconds as joules."""
    records = [
        Record(n, accuracy, None, spent / 2, {"compute": spent, "transmit": 0.0})
        for n, (spent, accuracy) in enumerate(zip(joules, accuracies, strict=True))
    ]
    return History(tuple(records), "sha", "rounds")


def test_the_worlds_cover_data_sets_divisions_channels_and_sizes() -> None:
    configs = [world.config(scale, 0.1, 0) for scale in (QUICK, FULL) for world in WORLDS]
    assert {config.data.dataset for config in configs} == {"mnist", "fashion-mnist"}
    assert {config.fleet.devices for config in configs} == {30, 300}
    assert {config.radio.noise_dbm for config in configs} == {None, -90.0}
    assert {config.data.partition for config in configs} == {"mixed", "dirichlet"}
    assert {config.data.size_exponent for config in configs} == {0, 1}
    assert {c.data.noniid_devices for c in configs if c.fleet.devices == 30} == {None, 6, 30}
    unequal = [config for config in configs if config.data.size_exponent]
    assert all(config.data.noniid_devices == 30 for config in unequal)
    assert len({world.name for world in WORLDS}) == len(WORLDS)


@pytest.mark.parametrize(
    "keys",
    [{}, {"radio.fading": "rayleigh"}, {"faults.dropout_probability": 0.3}],
    ids=["rounds alike", "fading", "faults"],
)
def test_everyone_has_the_budgets_of_the_reference_scheme(keys: dict[str, Any]) -> None:
    world = replace(DIGITS, keys=keys)
    entries = entries_of(Leaderboard(TINY, 2, (world,)), world, 0.1, 1000)
    assert {key.scheme for key in entries} == set(SCHEMES)
    history = a_run(entries[RunKey("digits", "compute-rounds", 1000)].config)
    assert history.final.round == 3
    budgets = {
        (e.config.run.min_joules, e.config.run.min_virtual_seconds) for e in entries.values()
    }
    ((joules, seconds),) = budgets
    assert joules == pytest.approx(history.final.total_joules, abs=1e-3)
    assert seconds == pytest.approx(history.final.virtual_seconds, abs=1e-3)
    # A scheme that ends by itself is told a budget; no other has one.
    told = {key.scheme for key, e in entries.items() if e.config.run.max_joules is not None}
    assert told == {"adaptive-tau"}
    own = entries[RunKey("digits", "adaptive-tau", 1000)].config.run
    assert own.max_joules >= own.min_joules


def a_run(config):
    from camu.schemes import make_scheme
    from camu.simulation.result import simulate
    from camu.world import build_world, with_data

    return simulate(with_data(build_world(config)), make_scheme(config)).history


def test_accuracy_is_read_at_the_last_shares_of_each_budget() -> None:
    history = a_history([0.0, 10.0, 20.0, 30.0], [0.1, 0.2, 0.4, 0.5])
    run = Run.of(history, {"rounds": 1, "joules": 20.0, "seconds": 5.0})
    # 85, 90, 95 and 100 % of 20 J: between round 1 and 2.
    assert run.at_joules == pytest.approx(100 * np.mean([0.34, 0.36, 0.38, 0.4]))
    # 5 s are round 1.
    assert run.at_seconds == pytest.approx(100 * np.mean([0.185, 0.19, 0.195, 0.2]))
    assert run.at_rounds == pytest.approx(20)
    assert run.notes == ()


def test_a_pilot_beyond_the_budget_leaves_the_untrained_model() -> None:
    history = a_history([25.0, 30.0], [0.1, 0.9])
    run = Run.of(history, {"rounds": 1, "joules": 20.0, "seconds": 10.0})
    assert (run.at_joules, run.at_seconds, run.notes) == (10.0, 10.0, (PILOT,))


def test_a_scheme_that_ends_early_counts_with_its_last_model() -> None:
    history = a_history([0.0, 10.0], [0.1, 0.9])
    run = Run.of(history, {"rounds": 3, "joules": 20.0, "seconds": 10.0})
    assert (run.at_joules, run.at_seconds, run.at_rounds) == (90.0, 90.0, 90.0)
    assert run.notes == (ENDED,)


def test_ranks_of_clear_and_of_tied_schemes() -> None:
    noise = np.array([0.1, -0.1, 0.05, -0.05, 0.0])
    values = np.array([90 + noise, 50 + noise[::-1], 70 + noise, 70 - 3 * noise])
    found = [(one.place, one.best, one.worst) for one in standings(values)]
    assert found[:2] == [(1, 1, 1), (4, 4, 4)]
    assert {one[1:] for one in found[2:]} == {(2, 3)}
    assert standings(values)[1].show() == ["50.00 ± 0.10", "4"]
    assert "(2-3)" in standings(values)[2].show()[1]


def test_rank_intervals_equal_holm_written_down_again() -> None:
    """Each scheme against all others: SciPy's paired t-test, and Holm's steps one by one."""
    values = 80 + np.random.default_rng(5).normal(0, 1.5, (9, 6)) + np.arange(9)[:, None] * 0.8
    for number, standing in enumerate(standings(values)):
        others = [k for k in range(9) if k != number]
        tests = {k: stats.ttest_rel(values[k], values[number]) for k in others}
        better = worse = 0
        for rank, k in enumerate(sorted(others, key=lambda k: tests[k].pvalue)):
            if tests[k].pvalue * (8 - rank) >= 0.05:
                break
            better += tests[k].statistic > 0
            worse += tests[k].statistic < 0
        assert (standing.best, standing.worst) == (1 + better, 9 - worse)
        assert standing.best <= standing.place <= standing.worst


def test_over_all_worlds_each_seed_counts_with_its_mean() -> None:
    worlds = [WorldEntry(name, name, 0.1, 30, 2) for name in "ab"]
    accuracies = {
        ("a", "x"): (80, 82),
        ("a", "y"): (60, 61),
        ("b", "x"): (50, 54),
        ("b", "y"): (70, 75),
    }
    runs = {
        RunKey(world, scheme, seed): Run(9, 9.0, 9.0, 3.0 + seed, 7.0, 1.0, value, value - 1, ())
        for (world, scheme), values in accuracies.items()
        for seed, value in enumerate(values)
    }
    board = board_of(runs, {"x": "one", "y": "two"}, {"y"}, worlds, "quick", "fedavg")
    rows = {row.scheme: row for row in board.overall}
    assert rows["x"].joules.accuracy.mean == pytest.approx(66.5)
    assert rows["y"].joules.accuracy.mean == pytest.approx(66.5)
    assert rows["x"].joules.accuracy.sd == pytest.approx(np.std([65, 68], ddof=1))
    assert rows["y"].seconds.accuracy.mean == pytest.approx(65.5)
    assert [row.scheme for row in board.of_world("b")] == ["y", "x"]
    assert (board.worlds[0].joules, board.worlds[0].seconds) == (3.5, 7.0)
    text = leaderboard_page(board)
    assert "**`y` (yours)**" in text
    assert "**`x`" not in text
    # The page and the data say the same.
    again = saved_board(json.loads(json.dumps(board.to_dict())))
    assert leaderboard_page(again) == text


@pytest.mark.slow
def test_a_leaderboard_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two schemes and one of the user's own; a second call trains nothing."""
    (tmp_path / "own_leader.py").write_text(
        "from dataclasses import dataclass\n"
        "import camu\n\n"
        "@dataclass(frozen=True)\n"
        "class Twice(camu.schemes.FedAvg):\n"
        "    k: int = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(leaderboard.TITLES, "digits", "Digits")
    executor = Executor(tmp_path / "out")
    asked = Leaderboard(TINY, 2, (DIGITS,), ("own_leader:Twice@k=2",), ("fedavg", "fedasync"))
    board = run_leaderboard(asked, executor)
    assert executor.trained == 4 + 3 * 2
    assert [row.is_own for row in board.overall].count(True) == 1
    saved = (tmp_path / "out" / "leaderboard.md").read_text()
    assert "**`own_leader:Twice k=2` (yours)**" in saved
    data = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert saved == leaderboard_page(saved_board(data))
    lines = list(csv.DictReader(io.StringIO((tmp_path / "out" / "leaderboard.csv").read_text())))
    assert len(lines) == 6
    for line in lines:
        assert float(line["joules"]) >= float(line["budget_joules"])
        assert float(line["seconds"]) >= float(line["budget_seconds"])
    # Own code that does what fedavg does has its accuracies.
    by_scheme = {line["scheme"]: line for line in lines if line["seed"] == "0"}
    same = ("at_joules", "at_seconds", "at_rounds")
    assert [by_scheme["fedavg"][k] for k in same] == [
        by_scheme["own_leader:Twice k=2"][k] for k in same
    ]
    again = Executor(tmp_path / "out")
    assert run_leaderboard(asked, again) == board
    assert (again.trained, again.reused) == (0, 10)


def test_the_command_prints_the_table_over_all_worlds(
    camu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = [WorldEntry("a", "a", 0.1, 30, 2)]
    runs = {
        RunKey("a", scheme, seed): Run(9, 9.0, 9.0, 3.0, 7.0, 1.0, value + seed, value, ())
        for scheme, value in (("x", 60.0), ("y", 90.0))
        for seed in range(2)
    }
    asked: list[Leaderboard] = []

    def run(board: Leaderboard, *_: object) -> Board:
        asked.append(board)
        return board_of(runs, {"x": "one", "y": "two"}, {"y"}, worlds, "quick", "fedavg")

    monkeypatch.setattr(leaderboard, "run_leaderboard", run)
    given = (
        "--quick",
        "--seeds",
        4,
        "--dataset",
        "mnist",
        "--scheme",
        "m:S@k=5",
        "--out",
        tmp_path,
    )
    done = camu("reproduce", "leaderboard", *given)
    assert done.code == 0, done.err
    (board,) = asked
    assert board.own == ("m:S@k=5",)
    assert (board.scale, board.seeds) == (QUICK, 4)
    assert board.datasets == ("mnist",)
    lines = [line.split() for line in done.out.splitlines()]
    assert [line[:2] for line in lines if line[:1] in (["x"], ["y"])] == [
        ["y", "(yours)"],
        ["x", "one"],
    ]
    assert str(tmp_path / "leaderboard.md") in done.out


def test_own_schemes_go_with_the_leaderboard_only(camu) -> None:
    done = camu("reproduce", "theory", "--scheme", "mine:Scheme")
    assert done.code == 2
    assert "--scheme mine:Scheme" in done.err
    assert "leaderboard" in done.err


def test_the_table_in_the_docs_is_made_from_the_data_next_to_it() -> None:
    data = json.loads((DOCS / "results" / "leaderboard.json").read_text())
    overall = leaderboard_page(saved_board(data)).split("## ")[2]
    assert overall.strip() in (DOCS / "leaderboard.md").read_text()
