"""The settings of McMahan et al., NIID-Bench and FLUTE in docs/examples/anchors, without code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from camu.config import load_config
from camu.planning.codecs import parameter_count
from camu.schemes import LocalSgd, make_scheme, plans
from camu.schemes.server_steps import TwoSided
from camu.simulation import simulate
from camu.world import build_world

ANCHORS = Path(__file__).parents[2] / "docs" / "examples" / "anchors"
NAMES = ("mcmahan", "niid-bench", "flute")

pytestmark = pytest.mark.slow  # MNIST is fetched where it is not in the cache


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_short_is_planned_and_trains_a_round(name: str) -> None:
    file = ANCHORS / f"{name}.toml"
    assert len(file.read_text().splitlines()) <= 20
    fewer = {"run.rounds": 1, "run.eval_every": 1}
    if name == "niid-bench":  # one epoch of ten: 60 000 samples
        fewer["scheme.parameters"] = {"local_updates": 1}
    config = load_config(file=file, overrides=fewer)
    world, scheme = build_world(config), make_scheme(config)
    plan = plans.plan(scheme, world)
    assert len(plan.units) == world.devices.count
    history = simulate(world, scheme).history
    first, last = history.records[0].accuracy, history.final.accuracy
    assert first is not None
    assert last is not None
    assert last > first + 0.05


def test_the_settings_are_those_of_the_papers() -> None:
    worlds = {name: build_world(load_config(file=ANCHORS / f"{name}.toml")) for name in NAMES}
    counts = {name: world.devices.label_counts for name, world in worlds.items()}
    training = {name: world.config.training for name, world in worlds.items()}
    schemes = {name: make_scheme(world.config) for name, world in worlds.items()}

    sizes = counts["mcmahan"].sum(axis=1)
    assert (len(sizes), set(sizes.tolist())) == (100, {600})
    assert (counts["mcmahan"] > 0).sum(axis=1).max() <= 4  # two shards of 300 sorted by label
    assert parameter_count(worlds["mcmahan"]) == 199_210
    assert training["mcmahan"].batch_samples == 10
    assert schemes["mcmahan"] == TwoSided(5, 0.1, 1.0, sample_weights=True)

    assert counts["niid-bench"].sum() == 60_000
    assert len(counts["niid-bench"]) == 10
    own = training["niid-bench"]
    assert (own.momentum, own.l2, own.batch_samples, own.learning_rate) == (0.9, 1e-5, 64, 0.01)
    assert schemes["niid-bench"] == LocalSgd(10)
    assert worlds["niid-bench"].config.data.alpha == 0.5

    sizes = counts["flute"].sum(axis=1)
    assert len(sizes) == 1000
    assert (counts["flute"] > 0).sum(axis=1).max() <= 2
    assert 0.5 < sizes.std() / sizes.mean() < 3  # theirs: 106 / 69
    assert np.ptp(sizes) > 300
    assert schemes["flute"] == TwoSided(1, 0.01, 1.0, sample_weights=True)
    assert parameter_count(worlds["flute"]) == 7850
