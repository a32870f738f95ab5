"""camu-balanced: its cost model, its switches, and what its clusters cannot change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import camu.planning.groups
from camu.clustering import cluster_devices
from camu.config import load_config
from camu.errors import InputError
from camu.learning.models import seeded_model
from camu.learning.weights import Weights
from camu.planning.contribution import group_counts, label_distance
from camu.planning.groups import clusters, make_plan
from camu.schemes import Camu, CamuBalanced, LocalRule
from camu.schemes.camu_balanced import (
    MOST_GATHERS,
    MOST_STEPS,
    POWER_SHARES,
    _Search,
    near_iid_clusters,
    progress,
)
from camu.simulation import simulate
from camu.world import World, build_world
from helpers.configs import IDEAL, small

Tiny = Callable[..., World]


def world(**changes: Any) -> World:
    return build_world(small(**{"radio__noise_dbm": -90.0, **changes}))


DOWNLINK = {"radio__downlink": True, "radio__receive_watts": 2.0}


@pytest.mark.parametrize(
    ("dvfs", "settings"),
    [
        (True, {}),
        (False, {}),
        (True, {"radio__access": "ofdma"}),
        (False, {"radio__access": "ofdma"}),
        (True, {"radio__uplink": "hybrid", "radio__noise_dbm": -80.0}),
        (True, {"radio__bits_per_parameter": 4}),
        (True, DOWNLINK),
        (False, DOWNLINK),
        (True, {"radio__access": "ofdma", "radio__uplink": "packet", **DOWNLINK}),
    ],
)
def test_the_design_is_the_cheapest_of_all_plans(dvfs: bool, settings: dict[str, Any]) -> None:
    """Against plans that are made one by one and priced by themselves."""
    here = world(**settings)
    choices = [clusters(here), CamuBalanced(drift=0.3, clusters_per_area=2).design(here).groups]
    found = CamuBalanced(drift=0.3, dvfs=dvfs).best_design(choices)
    counts = here.devices.label_counts
    everyone = counts.sum(axis=0)
    alone = np.average(label_distance(counts, everyone, "tv"), weights=here.devices.samples)
    prices = {}
    for groups in choices:
        pooled = group_counts(counts, groups.members)
        apart = np.average(label_distance(pooled, everyone, "tv"), weights=groups.samples)
        leaders = np.array(groups.leaders)
        for share in POWER_SHARES:
            watts = share * here.devices.max_power_watts[leaders]
            band = here.links.share(len(groups))
            snr = watts * here.links.uplink_gain[leaders] / band.noise_watts
            noise = sum(g * g / x for g, x in zip(groups.sample_weights, snr, strict=True))
            noise = noise if here.config.radio.uplink == "hybrid" else 0.0
            for gathers in range(1, MOST_GATHERS + 1):
                for steps in range(1, MOST_STEPS + 1):
                    worth = progress(gathers, steps, float(alone), float(apart), 0.3) / (1 + noise)
                    if worth > 0:
                        rule = LocalRule(steps=steps)
                        plan = make_plan(
                            CamuBalanced(), groups, groups.sample_weights, gathers, watts, rule=rule
                        )
                        plan = plan.with_dvfs(here) if dvfs else plan
                        price = plan.round_joules * plan.round_seconds / worth**2
                        prices[groups.members, share, gathers, steps] = price
    assert found.price == pytest.approx(min(prices.values()), rel=1e-9)
    assert len(prices) > 50


def test_progress_adds_up_what_each_step_is_worth() -> None:
    for gathers, steps, device, group, drift in [(1, 5, 0.8, 0.1, 0.1), (3, 4, 0.5, 0.2, 0.05)]:
        total = 0.0
        for gather in range(gathers):
            for step in range(steps):
                total += 1 - drift * device * step - drift * group * gather * steps
        assert progress(gathers, steps, device, group, drift) == pytest.approx(total)
    assert progress(1, 7, 0.0, 0.0, 1.0) == 7  # IID devices lose nothing


def test_more_drift_never_asks_for_more_steps() -> None:
    groups = [clusters(world())]
    steps = [
        CamuBalanced(drift=drift, gathers=1).best_design(groups).steps
        for drift in (0.0, 0.1, 0.4, 2.0)
    ]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 1 < steps[0]


def test_clusters_are_closer_to_everyone_than_the_paper_s() -> None:
    here = world()
    plan = CamuBalanced(clusters_per_area=2).plan(here)
    assert max(unit.wasserstein for unit in plan.units) < clusters(here).wasserstein.mean()
    regions = here.devices.regions
    assert all(len({regions[k] for k in unit.members}) == 1 for unit in plan.units)


@pytest.mark.parametrize(
    ("switch", "changed"),
    [
        ("near_iid", {"members", "weight"}),
        ("sample_weights", {"weight"}),
        ("equal_updates", {"local_updates"}),
        ("dvfs", set()),
    ],
)
def test_each_rule_is_switched_off_alone(switch: str, changed: set[str]) -> None:
    here = world(radio__noise_dbm=None, fleet__cpu_hz=(1e7, 3e9))
    fixed: dict[str, Any] = {"clusters_per_area": 4, "gathers": 1, "steps": 2, "power_watts": 0.5}
    plan = CamuBalanced(**fixed).plan(here)
    other = CamuBalanced(**fixed, **{switch: False}).plan(here)
    for name in ("members", "weight", "local_updates", "rule", "power_watts"):
        one, two = ([getattr(unit, name) for unit in made.units] for made in (plan, other))
        assert (set(map(str, one)) != set(map(str, two))) == (name in changed), name
    assert plan.dvfs == "units"
    assert (other.dvfs == "none") == (switch == "dvfs")
    assert other.round_seconds == plan.round_seconds or switch != "dvfs"
    shares = [unit.samples / here.devices.samples.sum() for unit in other.units]
    by_samples = [unit.weight for unit in other.units] == pytest.approx(shares)
    assert by_samples == (switch != "sample_weights")


def test_with_one_gather_the_clusters_change_costs_and_not_the_model(tiny: Tiny) -> None:
    """Weights by samples on both levels: the mean over everyone, whoever gathers it."""
    here = tiny(run__rounds=3, radio__uplink="digital")
    one = CamuBalanced(gathers=1, steps=2, clusters_per_area=1)
    models = [
        simulate(here, scheme).weights.parameters
        for scheme in (one, dataclasses.replace(one, near_iid=False))
    ]
    assert np.allclose(models[0], models[1], atol=1e-5)
    twice = simulate(here, dataclasses.replace(one, gathers=2)).weights.parameters
    assert not np.allclose(models[0], twice, atol=1e-3)


def test_momentum_adds_the_last_move(tiny: Tiny) -> None:
    plain = CamuBalanced(momentum=0.0, gathers=1, steps=1)
    heavy = dataclasses.replace(plain, momentum=0.5)
    first, second = (
        simulate(tiny(run__rounds=rounds, radio__uplink="digital"), plain) for rounds in (1, 2)
    )
    pushed = simulate(tiny(run__rounds=2, radio__uplink="digital"), heavy)
    start = Weights.of(seeded_model(first.config)).parameters
    expected = second.weights.parameters + 0.5 * (first.weights.parameters - start)
    assert np.allclose(pushed.weights.parameters, expected, atol=1e-6)


def test_the_number_of_clusters_is_chosen_by_price() -> None:
    """No fixed number is much cheaper; clusters are dealt when it is chosen, swapped after."""
    here = world()
    chosen = CamuBalanced().design(here)
    prices = [CamuBalanced(clusters_per_area=n).design(here).price for n in range(1, 11)]
    assert chosen.price <= 1.1 * min(prices)
    assert max(prices) > 1.2 * chosen.price


def test_a_drift_that_no_design_survives_is_refused() -> None:
    with pytest.raises(InputError, match="no design makes progress"):
        CamuBalanced(drift=5.0, steps=8).best_design([clusters(world())])


@pytest.mark.parametrize("settings", [{"radio__bits_per_parameter": 4}, DOWNLINK])
def test_the_plan_costs_what_the_design_says(settings: dict[str, Any]) -> None:
    here = world(**settings)
    design = CamuBalanced().design(here)
    plan = CamuBalanced().plan(here)
    assert plan.round_joules == pytest.approx(design.joules, rel=1e-9)
    assert plan.round_seconds == pytest.approx(design.seconds, rel=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_clusters_leaves_areas_with_devices(count: int) -> None:
    """Merged clusters belong to one primary cluster, so that another one has no device."""
    here = world(clustering__count=count, clustering__min_link_snr_db=-300.0)
    plan = CamuBalanced().plan(here)
    assert sorted(k for unit in plan.units for k in unit.members) == list(range(20))


def test_the_clusters_of_the_world_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return cluster_devices(*arguments)

    monkeypatch.setattr(camu.planning.groups, "cluster_devices", counted)
    here = world()
    for scheme in (Camu(), CamuBalanced(), CamuBalanced(gathers=1)):
        scheme.plan(here)
    assert len(calls) == 1


FAR = [
    {"name": str(k), "devices": 6, "x": [90.0 * k, 90.0 * k + 60], "y": [0.0, 60.0]}
    for k in range(3)
]


@pytest.mark.parametrize("dvfs", [True, False])
@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        (1, {}),
        (2, {"radio.access": "ofdma"}),
        (3, {"radio.d2d": "free"}),
        (4, {"fleet.regions": FAR}),  # some hear each other, others interfere
        (5, {"fleet.regions": FAR, "radio.access": "ofdma", "radio.downlink": True}),
        (6, {"fleet.regions": FAR, "radio.carrier_sense_dbm": 20.0, "training.model": "cnn"}),
        (7, {"radio.link": "wifi-n", "training.model": "cnn"}),
        (8, {**IDEAL, "radio.uplink": "hybrid", "radio.d2d": "free"}),
        (9, {**IDEAL, "training.model": "cnn"}),
    ],
)
def test_bounds_leave_the_design_of_a_search_without_them(
    dvfs: bool, seed: int, settings: dict[str, Any]
) -> None:
    """Every price of every design is computed, in order; no bound is above a price."""
    region = {"name": "one", "devices": 18, "x": [0.0, 20.0], "y": [0.0, 10.0]}
    overrides = {
        "fleet.regions": [region],
        "data.noniid_devices": 9,
        "data.samples_per_device": 60,
        "training.model": "logistic",
        "run.seed": seed,
        **settings,
    }
    here = build_world(load_config(preset="study", overrides=overrides))
    area = np.unique(here.devices.regions, return_inverse=True)[1].astype(np.int64)
    choices = [near_iid_clusters(here, area, number, False) for number in (1, 3, 6)]
    scheme = CamuBalanced(dvfs=dvfs)
    designs = []
    for groups in choices:
        search = _Search(scheme, groups)
        far = {(steps, gathers): bound for bound, steps, gathers in search.bounds()}
        priced = {key: list(search.designs(*key)) for key in far}
        for key, own in priced.items():
            assert far[key] <= search.close_bound(*key) <= min(design.price for design in own)
            for design, costs in zip(own, search.costs, strict=True):
                assert search.shortest_seconds(*key, costs) <= design.seconds * (1 + 1e-12)
        designs += [priced[key][place] for place in range(len(search.powers)) for key in priced]
    best = min(designs, key=lambda design: design.price)  # the first of equal ones
    found = scheme.best_design(choices)
    assert found.groups is best.groups
    assert (found.steps, found.gathers) == (best.steps, best.gathers)
    assert found.power_watts.tolist() == best.power_watts.tolist()
    assert (found.price, found.joules, found.seconds) == (best.price, best.joules, best.seconds)
    assert len(designs) > 200
