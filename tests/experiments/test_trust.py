"""The table of hostile devices: its attacks, its limits, and what it keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from camu.experiments import trust
from camu.experiments.statistics import estimate
from camu.schemes import make_scheme
from camu.simulation.result import simulate
from camu.world import World, build_world, with_data


@pytest.fixture(scope="module")
def world() -> World:
    config = trust.world_of(1, 20, "mean").config
    return with_data(build_world(config.replace({"run.eval_last": 1})))


def final(world: World, rule: str, attack: str, count: int) -> float:
    return trust.attacked(world, rule, attack, count).history().final_score


def test_without_attack_and_limits_it_is_the_plain_simulation(world: World) -> None:
    plain = simulate(world, make_scheme(world.config)).weights
    run = trust.attacked(world, trust.NO_LIMITS, "", 0)
    np.testing.assert_allclose(run.weights.parameters, plain.parameters, atol=1e-3)


@pytest.mark.parametrize(("attack", "count"), [("buffers", 1), ("flip", 4), ("claims", 4)])
def test_limits_hold_where_a_model_without_them_is_lost(
    world: World, attack: str, count: int
) -> None:
    assert final(world, "limits", attack, count) > final(world, "no limits", attack, count) + 0.2


def test_attacks_are_what_the_table_says(world: World) -> None:
    layout = trust.attacked(world, "limits", "", 0).weights
    stream = np.random.default_rng(3)
    starts = [layout] * 4
    updates = stream.normal(size=(4, layout.parameters.size))
    sent = [layout.with_parameters(layout.parameters + update) for update in updates]

    def change(attack: str) -> np.ndarray:
        found = trust.spoil(attack, sent, starts, [3])
        assert found[:3] == sent[:3]
        return found[3].parameters.astype(float) - layout.parameters

    usual = np.median(np.linalg.norm(updates[:3], axis=1))
    np.testing.assert_allclose(change("scale"), 10 * updates[3], atol=1e-4)
    np.testing.assert_allclose(change("flip"), -5 * updates[3], atol=1e-4)
    np.testing.assert_allclose(change("label flip"), updates[3], atol=1e-4)
    assert np.isnan(change("nan")).all()
    assert np.ptp(change("constant")) < 1e-5
    against = updates[:3].mean(axis=0)
    for attack in ("constant", "colluding"):
        assert np.linalg.norm(change(attack)) == pytest.approx(usual, rel=1e-4)
    direction = change("colluding") / usual
    assert direction @ against == pytest.approx(-np.linalg.norm(against), rel=1e-4)
    below = trust.spoil("buffers", sent, starts, [3])[3].buffers - layout.buffers
    assert (below < -900).all()


def test_cells_are_paired_by_seed_kept_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "ATTACKS", {"flip": "", "nan": ""})
    monkeypatch.setattr(trust, "HARDER", ("flip",))
    calls = []

    def attacked(world: int, rule: str, attack: str, bad: int) -> object:
        calls.append((world, rule, attack, bad))
        lost = 3.0 * bad if attack == "flip" else 0.0

        class Found:
            def history(self) -> Found:
                return self

            def tail_score(self) -> float:
                return (90.0 + world - lost) / 100

        return Found()

    monkeypatch.setattr(trust, "attacked", attacked)
    monkeypatch.setattr(trust, "world_of", lambda seed, *_: seed)
    cells = trust.compute(3, tmp_path)
    assert len(calls) == 3 * len(cells) == 3 * 5 * (1 + 2 * 2 + 1 + 2 * 1)
    assert trust.compute(3, tmp_path) == cells
    assert len(calls) == 3 * len(cells)  # nothing is computed twice
    cell = next(c for c in cells if (c.rule, c.attack, c.bad) == ("limits", "flip", 1))
    assert cell.accuracy == pytest.approx((87.0, 88.0, 89.0))
    assert cell.loss.mean == pytest.approx(estimate([3.0] * 3).mean)
    assert cell.met is False  # more than 2 points
    trust.write(cells, tmp_path)
    page = (tmp_path / "trust.md").read_text("utf-8")
    assert "| flip | 1/20 | **3.0 ± 0.0** |" in page
    assert "| nan | 4/20 | 0.0 ± 0.0 |" in page
