"""The board: protocols that hold, honest ranks, parts that are joined and verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from camu.errors import InputError
from camu.experiments.board.figures import ENDED, PILOT, UNTRAINED, figures
from camu.experiments.board.joined import OVERALL, Place, joined, read_parts
from camu.experiments.board.page import board_page
from camu.experiments.board.part import Part, parts_of, run_part
from camu.experiments.board.protocol import HERE, Protocol, names, read_protocol
from camu.experiments.board.ranks import BEHIND, LEVEL, standings, world_means
from camu.experiments.board.verify import verify
from camu.experiments.parquet import read_results, write_parquet
from camu.experiments.scheduler import in_turn
from camu.experiments.tuning.ranges import Budget
from camu.sealed import DamagedError
from camu.simulation.history import History, Record

DOCS = Path(__file__).parents[2] / "docs"
TINY = """
name = "tiny"
about = "a board for tests."
schemes = ["fedsgd", "local-sgd"]
rates = [0.1, 0.3]
trials = 2
tuning_seeds = [1000]
reporting_seeds = [0, 1]
eval_every = 1

[[worlds]]
name = "digits"
about = "six devices"
preset = "demo"
target = 0.05

[worlds.keys]
"fleet.devices" = 6
"data.noniid_devices" = 3
"data.samples_per_device" = 20
"training.model" = "logistic"

[worlds.budgets.short]
joules = 2
seconds = 0.5
"""


def changed(tmp_path: Path, old: str = "", new: str = "", text: str = TINY) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(text.replace(old, new) if old else text)
    return str(path)


# Protocols


@pytest.mark.parametrize("name", ["quick", "full"])
def test_a_protocol_that_comes_with_camu_can_be_run(name: str) -> None:
    protocol = read_protocol(name)
    assert name in names()
    assert protocol.sha256 == hashlib.sha256((HERE / f"{name}.toml").read_bytes()).hexdigest()
    first = protocol.rules.worlds[0].name
    parts = parts_of(protocol, [first], []) + parts_of(protocol, [], protocol.rules.schemes[:1])
    for part in parts:
        plan = part.plan
        assert plan.seeds == tuple(protocol.rules.tuning_seeds)
        assert plan.trials == protocol.rules.trials
        assert min(plan.seeds) >= 1000 > max(protocol.rules.reporting_seeds)
        assert len(plan.budgets) == 2 * len(part.world.budgets)
        assert "training.learning_rate" in plan.space


def test_the_full_protocol_has_the_worlds_that_were_asked_for() -> None:
    rules = read_protocol("full").rules
    configs = [world.config(rules.aids) for world in rules.worlds]
    assert rules.trials == 32
    sets = {"mnist", "fashion-mnist", "cifar-10", "japanese-vowels", "shakespeare", "digits"}
    assert {config.data.dataset for config in configs} == sets
    assert {"dirichlet", "mixed", "given"} == {config.data.partition for config in configs}
    assert {30, 300} <= {config.fleet.devices for config in configs}
    assert any(config.training.normalisation == "group" for config in configs)
    assert any(config.data.size_exponent for config in configs)
    assert any(config.fleet.battery_joules for config in configs)
    faded = [config for config in configs if config.radio.path_loss == "umi"]
    assert faded
    assert all(c.radio.shadowing_db > 0 and c.radio.fading == "rayleigh" for c in faded)
    assert all(list(world.budgets) == ["short", "medium", "convergence"] for world in rules.worlds)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("tuning_seeds = [1000]", "tuning_seeds = [1]", "tuning_seeds begin at 1000"),
        ("reporting_seeds = [0, 1]", "reporting_seeds = [0, 1000]", "end below it"),
        ("reporting_seeds = [0, 1]", "reporting_seeds = [0, 0]", "one is given twice"),
        ("trials = 2", "trails = 2", "trails: Extra inputs"),
        ("trials = 2", "trials =", "no TOML file"),
        ("joules = 2", "joules = -2", "budgets.short.joules"),
        ('"logistic"', '"logistik"', "did you mean"),
        ("[worlds.keys]", '[worlds.keys]\n"data.dataset" = "diabetes"', "world digits: "),
    ],
)
def test_a_protocol_that_is_wrong_or_unfair_is_refused(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        read_protocol(changed(tmp_path, old, new))


# What a run says


def a_history(joules: list[float], accuracies: list[float | None], **more: Any) -> History:
    """A run whose rounds cost half as many seconds as joules, with two updates of three steps."""
    records = [
        Record(
            n,
            accuracy,
            None,
            spent / 2,
            {"compute": spent, "transmit": 0.0},
            units=2 * (n > 0),
            steps=3.0 * (n > 0),
            bits={"uplink": 8_000_000 * n, "downlink": 0, "gather": 0},
            metrics={} if accuracy is None else {"worst-device-accuracy": accuracy / 2},
        )
        for n, (spent, accuracy) in enumerate(zip(joules, accuracies, strict=True))
    ]
    return History(tuple(records), "sha", "rounds")


def test_a_score_is_read_at_the_last_shares_of_the_budget_with_what_was_spent() -> None:
    history = a_history([0.0, 10.0, 20.0, 30.0], [0.1, 0.2, 0.4, 0.5])
    found = figures(history, Budget("joules", 25.0), 0.4)
    # 85, 90, 95 and 100 % of 25 J, between 20 and 30 J.
    assert found.pop("score") == pytest.approx(
        100 * np.mean([0.4 + 0.01 * (j - 20) for j in (21.25, 22.5, 23.75, 25)])
    )
    assert found == {
        "note": "", "worst_tenth": 20.0, "rounds": 2, "steps": 6.0, "uplinks": 4,
        "megabytes": 2.0, "joules": 20.0, "seconds": 10.0, "to_target": 20.0,
    }  # fmt: skip
    assert figures(history, Budget("seconds", 5.0), 0.4)["to_target"] is None  # censored
    assert figures(history, Budget("joules", 45.0), 0.4)["note"] == ENDED


def test_an_untrained_model_has_no_score() -> None:
    pilot = a_history([25.0, 30.0], [0.1, 0.9])
    assert figures(pilot, Budget("joules", 20.0), 0.5) == {"score": None, "note": PILOT}
    slow = a_history([0.0, 30.0], [0.1, 0.9])
    assert figures(slow, Budget("joules", 20.0), 0.5) == {"score": None, "note": UNTRAINED}


# Ranks


def test_ranks_equal_holm_over_all_pairs_written_down_again() -> None:
    values = 80 + np.random.default_rng(5).normal(0, 0.7, (7, 8)) + np.arange(7)[:, None] * 0.8
    pairs = [(a, b) for a in range(7) for b in range(a + 1, 7)]
    tests = {pair: stats.ttest_rel(values[pair[0]], values[pair[1]]) for pair in pairs}
    better = dict.fromkeys(range(7), 0)
    worse = dict.fromkeys(range(7), 0)
    for step, pair in enumerate(sorted(pairs, key=lambda pair: tests[pair].pvalue)):
        if tests[pair].pvalue * (len(pairs) - step) >= 0.05:
            break
        first, second = pair if tests[pair].statistic > 0 else pair[::-1]
        better[second] += 1
        worse[first] += 1
    found = standings(values)
    assert sum(better.values()) > 3
    for number, one in enumerate(found):
        assert (one.best, one.worst) == (1 + better[number], 7 - worse[number])
        assert one.best <= one.place <= one.worst


def test_behind_and_level_are_both_said() -> None:
    noise = np.array([0.1, -0.1, 0.05, -0.05, 0.02, -0.02])
    found = standings(np.array([80 + noise, 79.5 + 0.5 * noise[::-1], 60 + noise]))
    assert [one.word for one in found] == ["", f"{BEHIND}, {LEVEL}", BEHIND]
    same = standings(np.array([80 + noise, 80.01 - noise]))
    assert {one.word for one in same} == {"", LEVEL}


def test_over_worlds_two_schemes_are_compared_as_the_mixed_model_does() -> None:
    """World and scheme in world random, balanced: F is MS(scheme) / MS(scheme x world)."""
    draw = np.random.default_rng(3)
    worlds = draw.normal(0, 5, (1, 6)) + draw.normal(0, 1, (2, 6)) + np.array([[1.2], [0.0]])
    values = [worlds[:, w, None] + draw.normal(0, 0.5, (2, 4)) for w in range(6)]
    means = np.stack([table.mean(axis=1) for table in values], axis=1)
    scheme = means.mean(axis=1, keepdims=True)
    rest = means - scheme - means.mean(axis=0, keepdims=True) + means.mean()
    f = (6 * np.square(scheme - means.mean()).sum()) / (np.square(rest).sum() / 5)
    p = float(stats.f.sf(f, 1, 5))
    behind = next(one.behind for one in standings(world_means(values)) if one.behind)
    assert behind.p_value() == pytest.approx(p, rel=1e-9)


def test_the_mixed_model_of_statsmodels_has_the_same_difference() -> None:
    api = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    draw = np.random.default_rng(3)
    gains = draw.normal(1.2, 1.5, 6)
    rows = [
        (draw.normal(10 * w + s * gains[w], 0.3), s, w)
        for w in range(6)
        for s in (0, 1)
        for _ in range(4)
    ]
    y, s, w = (np.array(column) for column in zip(*rows, strict=True))
    worlds = (w[:, None] == np.arange(6)).astype(float)  # fixed: they cancel in a difference
    exog = np.column_stack([worlds, s])
    fitted = api.MixedLM(y, exog, groups=w, exog_re=s[:, None] - 0.5).fit()
    tables = [np.array([y[(w == k) & (s == t)] for t in (0, 1)]) for k in range(6)]
    behind = next(one.behind for one in standings(world_means(tables)) if one.behind)
    assert abs(behind.mean) == pytest.approx(abs(fitted.fe_params[-1]), rel=1e-6)
    assert behind.sd / np.sqrt(6) == pytest.approx(fitted.bse_fe[-1], rel=1e-3)


# Parts


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Protocol, Path]:
    """The parts of a tiny protocol, in two directories, with a scheme of the user's."""
    pytest.importorskip("optuna")
    folder = tmp_path_factory.mktemp("board")
    protocol = read_protocol(changed(folder))
    for number, part in enumerate(parts_of(protocol, [], [])):
        run_part(part, folder / str(number), in_turn())
    own = Part(protocol, protocol.worlds["digits"], "fedpaq@levels=3")
    run_part(own, folder / "1", in_turn())
    return protocol, folder


def test_parts_are_joined_with_ranks_in_both_tables(tiny: tuple[Protocol, Path]) -> None:
    protocol, folder = tiny
    board = joined(protocol, read_parts(protocol, [folder / "0", folder / "1"]))
    assert board.missing == ()
    for table in ("published", "tuned"):
        for axis in ("joules", "seconds"):
            rows = board.tables[Place(table, "short", axis, "digits")]  # type: ignore[arg-type]
            assert {row.scheme for row in rows} == {"fedsgd", "local-sgd", "fedpaq levels=3"}
            assert [row.own for row in rows if "fedpaq" in row.scheme] == [True]
            assert all(row.beside["steps"] for row in rows)
    page = board_page(board)
    assert protocol.sha256 in page
    assert "**`fedpaq levels=3` (yours)**" in page
    chosen = [e for p in board.parts for e in p["entries"] if e["table"] == "published"]
    least, most = (
        [e["settings"]["training.learning_rate"] for e in chosen].count(r) for r in (0.1, 0.3)
    )
    assert (
        f"{least} of 6 choices are the smallest rate that was tried and {most} the largest" in page
    )
    lines = board.to_csv().splitlines()
    assert len(lines) == 1 + 3 * 2 * 2 * 2  # schemes, tables, axes, seeds
    write_parquet(folder / "board.parquet", "board", board.run_rows())
    typed = read_results(folder / "board.parquet")
    assert list(typed.columns) == lines[0].split(",")
    assert len(typed) == len(lines) - 1
    half = joined(protocol, read_parts(protocol, [folder / "0"]))
    assert half.missing == (("digits", "local-sgd"),)
    assert "Not run: `digits`: local-sgd.\n" in board_page(half)


def test_only_several_worlds_have_a_table_over_all(tiny: tuple[Protocol, Path]) -> None:
    protocol, folder = tiny
    parts = read_parts(protocol, [folder / "0", folder / "1"])
    assert OVERALL not in {place.world for place in joined(protocol, parts).tables}
    [world] = protocol.rules.worlds
    worlds = [world, world.model_copy(update={"name": "again"})]
    two = Protocol(protocol.rules.model_copy(update={"worlds": worlds}), protocol.sha256)
    board = joined(two, [*parts, *({**part, "world": "again"} for part in parts)])
    rows = board.tables[Place("tuned", "short", "joules", OVERALL)]
    assert {row.scheme for row in rows} == {"fedsgd", "local-sgd", "fedpaq levels=3"}
    assert all(row.standing and row.beside["steps"] for row in rows)


def test_the_tuned_settings_are_at_least_as_good_where_they_were_tuned(
    tiny: tuple[Protocol, Path],
) -> None:
    protocol, folder = tiny
    for part in read_parts(protocol, [folder / "0", folder / "1"]):
        best = {(e["table"], e["axis"]): e["validation"] for e in part["entries"]}
        for axis in ("joules", "seconds"):
            assert best["tuned", axis] >= best["published", axis]
        assert {entry["trials"] for entry in part["entries"]} == {2, 4}


def test_a_run_of_a_row_comes_out_with_the_same_bits(tiny: tuple[Protocol, Path]) -> None:
    protocol, folder = tiny
    [part] = parts_of(protocol, ["digits"], ["local-sgd"])
    [found] = [p for p in read_parts(protocol, [folder / "1"]) if p["scheme"] == "local-sgd"]
    for one in verify(part, found, "tuned", 1):
        assert one.same
        assert one.now["weights_sha256"]
    forged = json.loads(json.dumps(found))
    for entry in forged["entries"]:
        entry["runs"][1]["score"] += 1
    assert {tuple(one.differs) for one in verify(part, forged, "tuned", 1)} == {("score",)}
    with pytest.raises(InputError, match="--seed 7: it was reported on 0, 1"):
        verify(part, found, "tuned", 7)


def test_the_command_verifies_the_first_seed_unless_another_is_named(
    tiny: tuple[Protocol, Path], camu: Callable[..., Any]
) -> None:
    where = ("--world", "digits", "--protocol", tiny[1] / "tiny.toml", "--in", tiny[1] / "0")
    found = camu("board", "verify", "fedsgd", "--table", "published", *where)
    assert found.code == 0, found.err
    assert found.out.count("seed 0: the same bits") == 2  # at its joules and at its seconds


def test_a_second_call_trains_nothing(tiny: tuple[Protocol, Path]) -> None:
    protocol, folder = tiny

    def refuse(missing: Any) -> Any:
        raise AssertionError(missing)

    own = Part(protocol, protocol.worlds["digits"], "fedpaq@levels=3")
    path = own.path(folder / "1")
    before = path.read_bytes()
    run_part(own, folder / "1", refuse)
    assert path.read_bytes() == before


def test_parts_of_another_protocol_and_changed_parts_are_refused(
    tiny: tuple[Protocol, Path], tmp_path: Path
) -> None:
    protocol, folder = tiny
    other = read_protocol(changed(tmp_path, "trials = 2", "trials = 3"))
    with pytest.raises(InputError, match="of another protocol"):
        read_parts(other, [folder / "0"])
    [path] = (folder / "0" / "parts").glob("*.json")
    copy = tmp_path / "parts" / path.name
    copy.parent.mkdir()
    copy.write_text(path.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(DamagedError):
        read_parts(protocol, [tmp_path])
    with pytest.raises(InputError, match="no results"):
        read_parts(protocol, [tmp_path / "none"])


def test_the_tables_in_the_docs_are_those_of_the_parts_beside_them() -> None:
    protocol = read_protocol("quick")
    page = board_page(joined(protocol, read_parts(protocol, [DOCS / "results" / "board-quick"])))
    assert page in (DOCS / "leaderboard.md").read_text()
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith("|"))


def test_wrong_worlds_and_schemes_are_refused() -> None:
    protocol = read_protocol("quick")
    with pytest.raises(InputError, match="--world mars: the protocol has two-labels"):
        parts_of(protocol, ["mars"], [])
    with pytest.raises(InputError, match="--only fedavgx: the protocol has fedsgd"):
        parts_of(protocol, [], ["fedavgx"])
    assert [part.word for part in parts_of(protocol, ["sixty"], [], ["fedprox"])] == ["fedprox"]
