"""Plans of the schemes: weights as cited, and costs recomputed from the printed formulas."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from camu.clustering import cluster_devices
from camu.config import ClusteringConfig, load_config
from camu.errors import InputError
from camu.schemes import Plan, make_scheme
from camu.schemes.dsc import Dsc
from camu.world import World, build_world

CORE = ("fedsgd", "wasserstein", "clustered", "compute-rounds", "camu", "dsc", "local-sgd")
CLUSTERED = ("clustered", "compute-rounds", "camu")
SINGLE = ("fedsgd", "wasserstein", "local-sgd")
DIGITS = (
    "data.dataset=digits",
    "data.samples_per_device=40",
    "fleet.cycles_per_sample=2e6",
    "fleet.capacitance=1e-28",
)


@lru_cache
def world_of(*settings: str) -> World:
    """The paper's two regions, with the embedded digits."""
    return build_world(load_config(preset="paper", settings=[*DIGITS, *settings]), 0)


def plan_of(name: str, *settings: str) -> Plan:
    world = world_of(*settings)
    return make_scheme(world.config, name).plan(world)


@pytest.mark.parametrize("name", CORE)
def test_every_device_trains_in_one_unit(name: str) -> None:
    plan, world = plan_of(name), world_of()
    assert plan.scheme == name
    members = [device for unit in plan.units for device in unit.members]
    assert sorted(members) == list(range(30))
    samples = world.devices.samples
    for unit in plan.units:
        held = [int(samples[device]) for device in unit.members]
        assert unit.samples == sum(held)
        if name != "dsc":
            assert unit.member_weights == pytest.approx([one / sum(held) for one in held])
        assert unit.leader in unit.members


@pytest.mark.parametrize("name", SINGLE)
def test_single_devices_are_units_of_their_own(name: str) -> None:
    assert [unit.members for unit in plan_of(name).units] == [(device,) for device in range(30)]


@pytest.mark.parametrize("name", CLUSTERED)
def test_clusters_are_the_dual_segment_ones(name: str) -> None:
    expected = cluster_devices(world_of()).clusters
    found = [(unit.members, unit.leader) for unit in plan_of(name).units]
    assert found == [(cluster.members, cluster.leader) for cluster in expected]


def test_dsc_groups_unlike_devices_whatever_the_data_reading() -> None:
    reading = ClusteringConfig(data="literal", preference_quantile=0.25)
    unlike = cluster_devices(world_of(), reading).clusters
    assert [unit.members for unit in plan_of("dsc").units] == [one.members for one in unlike]
    assert [unit.members for unit in plan_of("dsc").units] != [
        unit.members for unit in plan_of("clustered").units
    ]
    assert plan_of("dsc", "clustering.data=pmf").units == plan_of("dsc").units


def test_dsc_leaves_few_devices_alone_and_clusters_look_more_like_everyone() -> None:
    """At the median of repelling similarities a third of the clusters has one device."""

    def measure(quantile: float) -> tuple[int, int, float]:
        found = [Dsc(preference_quantile=quantile).plan(world).units for world in worlds]
        alone = sum(len(unit.members) == 1 for units in found for unit in units)
        distance = sum(unit.wasserstein * unit.samples for units in found for unit in units)
        return alone, sum(map(len, found)), distance

    config = load_config(preset="demo", settings=["data.noniid_devices=20"])
    worlds = [build_world(config, seed) for seed in range(5)]
    alone, count, distance = measure(0.25)
    median_alone, median_count, median_distance = measure(0.5)
    assert median_alone > median_count / 4
    assert alone <= 0.05 * count
    assert distance < median_distance


def test_dsc_pairs_complementary_devices_and_weighs_by_distance(tmp_path: Path) -> None:
    """Two devices in one place hold either half of the labels; together they look like everyone."""
    fleet = tmp_path / "fleet.csv"
    rows = ["id,x,y,label_0,label_1,label_2,label_3"]
    for place in range(3):
        rows += [f"a{place},{400 * place},0,30,0,0,10", f"b{place},{400 * place + 1},0,0,0,0,20"]
    fleet.write_text("\n".join(rows) + "\n")
    config = load_config(preset="paper", settings=[f"fleet.file={fleet}"])
    world = build_world(config)
    inside, between = Dsc().plan(world), Dsc("between").plan(world)
    pairs = [(0, 1), (2, 3), (4, 5)]
    for plan in (inside, between):
        assert [unit.members for unit in plan.units] == pairs
        assert math.fsum(unit.weight for unit in plan.units) == pytest.approx(1)
    # Everyone: half and half. A quarter and a half of the samples must move by three labels.
    theta = [40 * math.exp(1 / 0.75), 20 * math.exp(1 / 1.5)]
    for unit in inside.units:
        assert unit.weight == pytest.approx(1 / 3)
        assert unit.member_weights == pytest.approx([one / sum(theta) for one in theta])
    for unit in between.units:
        assert unit.member_weights == pytest.approx([2 / 3, 1 / 3])


def test_dsc_with_equal_labels_everywhere_has_the_clusters_of_clustered(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    rows = ["id,x,y,label_0,label_1"]
    rows += [f"d{k},{400 * (k // 3) + 7 * (k % 3)},{k},20,20" for k in range(9)]
    fleet.write_text("\n".join(rows) + "\n")
    world = build_world(load_config(preset="paper", settings=[f"fleet.file={fleet}"]))
    plans = [make_scheme(world.config, name).plan(world) for name in ("dsc", "clustered")]
    assert [u.members for u in plans[0].units] == [u.members for u in plans[1].units]


@pytest.mark.parametrize("parameters", [{"weights": "both"}, {"preference_quantile": 1.5}])
def test_dsc_refuses_parameters_without_meaning(parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(parameters))):
        Dsc(**parameters)


@pytest.mark.parametrize("name", ["fedavg", "local-sgd"])
def test_weights_by_data_size(name: str) -> None:
    settings = ("data.size_exponent=1.0", "data.with_replacement=true")
    samples = world_of(*settings).devices.samples
    assert len(set(samples.tolist())) > 5
    for unit in plan_of(name, *settings).units:
        assert unit.weight == pytest.approx(samples[unit.leader] / samples.sum())


@pytest.mark.parametrize("name", ["wasserstein", "clustered", "petrel", "camu", "dsc"])
@pytest.mark.parametrize("w_min", [0.0, 0.5, 2.0])
def test_weights_by_contribution(name: str, w_min: float) -> None:
    settings = (f"readings.w_min={w_min}",)
    world = world_of(*settings)
    plan = Dsc("between").plan(world) if name == "dsc" else plan_of(name, *settings)
    counts, labels = world.devices.label_counts, np.arange(10)
    theta = []
    for unit in plan.units:
        own = counts[list(unit.members)].sum(axis=0)
        distance = wasserstein_distance(labels, labels, own, counts.sum(axis=0))
        assert unit.wasserstein == pytest.approx(distance)
        theta.append(own.sum() * math.exp(1 / max(distance, w_min)))
    assert [unit.contribution for unit in plan.units] == pytest.approx(theta)
    assert [unit.weight for unit in plan.units] == pytest.approx([t / sum(theta) for t in theta])


def test_total_variation_where_asked() -> None:
    world = world_of("contribution.distance=tv")
    shares = world.devices.label_counts / 40.0
    everyone = shares.mean(axis=0)
    for unit in plan_of("wasserstein", "contribution.distance=tv").units:
        expected = np.abs(shares[unit.leader] - everyone).sum() / 2
        assert unit.wasserstein == pytest.approx(expected)


@pytest.mark.parametrize("name", ["fedavg", "wasserstein", "clustered", "dsc"])
def test_one_update_per_round(name: str) -> None:
    assert {(u.local_updates, u.multi_update) for u in plan_of(name).units} == {(1, False)}


def test_local_sgd_runs_h_updates() -> None:
    plan = plan_of("local-sgd", "scheme.parameters.local_updates=3")
    assert {(u.local_updates, u.multi_update) for u in plan.units} == {(3, True)}


@pytest.mark.parametrize("most", [0, 2, 50])
def test_petrel_fills_the_waiting_time(most: int) -> None:
    plan = plan_of("petrel", f"scheme.parameters.max_extra_updates={most}", "radio.d2d=free")
    once = [unit.ready_seconds / unit.local_updates for unit in plan.units]
    for unit, seconds in zip(plan.units, once, strict=True):
        extra = unit.local_updates - 1
        assert 0 <= extra <= most
        assert unit.ready_seconds <= max(once) * (1 + 1e-9)
        if extra < most:  # one more would not fit
            assert unit.ready_seconds + seconds > max(once) * (1 - 1e-9)


@hypothesis_settings(max_examples=15)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["petrel", "camu", "camu-joint", "camu-nova"]),
    st.sampled_from(["none", "-90"]),
    st.integers(0, 8),
)
def test_no_unit_is_ready_later_than_the_slowest_single_update(
    seed: int, name: str, noise: str, most: int
) -> None:
    """Computing and gathering both count: extra updates fill waiting time and make none.

    Where gathers share a medium they do: then more of them wait for each other.
    """
    config = load_config(
        preset="demo",
        settings=[
            f"radio.noise_dbm={noise}",
            "radio.d2d=free",
            f"scheme.parameters.max_extra_updates={most}",
            "scheme.parameters.threshold=0",
        ],
    )
    world = build_world(config, seed)
    plan, once = (make_scheme(config, which).plan(world) for which in (name, "clustered"))
    slowest = max(unit.ready_seconds for unit in once.units)
    assert max(unit.ready_seconds for unit in plan.units) <= slowest * (1 + 1e-8)


def without(plan: Plan, *names: str) -> list[dict[str, object]]:
    units = [dataclasses.asdict(unit) for unit in plan.units]
    return [{k: v for k, v in unit.items() if k not in names} for unit in units]


def test_camu_at_threshold_zero_is_petrel() -> None:
    camu, petrel = plan_of("camu", "scheme.parameters.threshold=0"), plan_of("petrel")
    assert without(camu, "multi_update") == without(petrel, "multi_update")
    assert all(unit.multi_update for unit in camu.units)
    assert max(unit.local_updates for unit in camu.units) > 1


def test_camu_at_an_infinite_threshold_is_clustered() -> None:
    camu, clustered = plan_of("camu", "scheme.parameters.threshold=inf"), plan_of("clustered")
    assert without(camu) == without(clustered)


@pytest.mark.parametrize(
    "setting", ["scheme.parameters.threshold=300", "scheme.parameters.threshold_quantile=0.7"]
)
def test_camu_gates_by_contribution(setting: str) -> None:
    camu, petrel = plan_of("camu", setting), plan_of("petrel")
    theta = sorted(unit.contribution for unit in camu.units)
    limit = 300.0
    if "quantile" in setting:
        limit = theta[math.floor(0.7 * (len(theta) - 1))] * (1 - 1e-12)
    gates = [unit.multi_update for unit in camu.units]
    assert gates == [unit.contribution >= limit for unit in camu.units]
    assert True in gates
    assert False in gates
    for one, other in zip(camu.units, petrel.units, strict=True):
        assert one.local_updates == (other.local_updates if one.multi_update else 1)


# ---- time and energy from the formulas ----------------------------------------------------------

LIGHT = 299_792_458.0


def path_gain(metres: float) -> float:
    """(c / 4 pi f d)^3.76 at 915 MHz, ends at least a metre apart."""
    return float((LIGHT / (4 * math.pi * 915e6 * max(metres, 1.0))) ** 3.76)


def send_seconds(bits: int, watts: float, gain: float, hertz: float) -> float:
    noise = 10 ** ((-174 + 10 * math.log10(hertz) + 7 - 30) / 10)
    return bits / (hertz * math.log2(1 + watts * gain / noise))


def expected_costs(world: World, plan: Plan, access: str) -> tuple[list[dict[str, float]], float]:
    """Each unit's costs and the length of a round, in plain Python."""
    places = [tuple(map(float, place)) for place in world.devices.positions]
    samples = [int(n) for n in world.devices.samples]
    hertz = [float(f) for f in world.devices.cpu_hz]
    station, bits = (-50.0, 0.0, 10.0), 32 * plan.parameters
    costs = []
    for unit in plan.units:
        cycles = {k: 2e6 * -(-samples[k] // 5) for k in unit.members}  # a fifth, rounded up
        gather = [
            send_seconds(bits, 0.5, path_gain(math.dist(places[k], places[unit.leader])), 1e6)
            for k in unit.members
            if k != unit.leader
        ]
        gather += [max(gather)] if gather else []  # the leader answers the weakest, at 0.5 W too
        gain = 15 * 10**0.5 * path_gain(math.dist(places[unit.leader], station))
        band = 1e6 / len(plan.units) if access == "ofdma" else 1e6
        uplink = send_seconds(bits, unit.power_watts, gain, band)
        times = unit.local_updates
        costs.append(
            {
                "compute_seconds": times * max(cycles[k] / hertz[k] for k in unit.members),
                "compute_joules": times * sum(1e-28 * cycles[k] * hertz[k] ** 2 for k in cycles),
                "gather_seconds": times * sum(gather),
                "gather_joules": times * 0.5 * sum(gather),
                "uplink_seconds": uplink,
                "uplink_joules": unit.power_watts * uplink,
            }
        )
    ready = [cost["compute_seconds"] + cost["gather_seconds"] for cost in costs]
    if access == "ofdma":
        return costs, max(r + c["uplink_seconds"] for r, c in zip(ready, costs, strict=True))
    clock = 0.0
    waiting = set(range(len(costs)))
    while waiting:  # a queue: the next to send is whoever was ready first
        first = min(waiting, key=lambda index: (ready[index], index))
        waiting.remove(first)
        clock = max(clock, ready[first]) + costs[first]["uplink_seconds"]
    return costs, clock


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("name", CORE)
def test_costs_from_the_formulas(name: str, access: str) -> None:
    settings = (f"radio.access={access}", "data.size_exponent=1.0", "data.with_replacement=true")
    settings = (*settings, "radio.d2d=free")
    plan, world = plan_of(name, *settings), world_of(*settings)
    costs, length = expected_costs(world, plan, access)
    for unit, cost in zip(plan.units, costs, strict=True):
        for key, value in cost.items():
            assert getattr(unit, key) == pytest.approx(value, rel=1e-9), key
    assert plan.round_seconds == pytest.approx(length, rel=1e-9)
    joules = [value for cost in costs for key, value in cost.items() if key.endswith("joules")]
    assert plan.round_joules == pytest.approx(sum(joules), rel=1e-9)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("name", CORE)
def test_a_round_is_computing_sending_and_waiting(name: str, access: str) -> None:
    plan = plan_of(name, f"radio.access={access}")
    for index, unit in enumerate(plan.units):
        idle = plan.idle_seconds(index)
        assert idle >= 0
        spent = unit.compute_seconds + unit.gather_seconds + unit.uplink_seconds
        assert spent + idle == pytest.approx(plan.round_seconds, rel=1e-12)
        assert unit.ready_seconds + unit.uplink_seconds <= plan.arrival_seconds[index] * (1 + 1e-12)


def test_the_payload_is_the_model_in_32_bits(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("id,x,y,label_0,label_1\na,0,0,9,1\nb,5,0,1,9\n")
    world = build_world(load_config(preset="paper", settings=[f"fleet.file={fleet}"]))
    plan = make_scheme(world.config).plan(world)
    assert plan.parameters == 21_880  # the paper's CNN


def test_plain_data_hold_the_plan(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("id,x,y,region,label_0,label_1\nann,0,0,north,9,1\nbob,5,0,south,1,9\n")
    config = load_config(preset="paper", settings=[f"fleet.file={fleet}", "scheme.name=fedavg"])
    world = build_world(config)
    plan = make_scheme(config).plan(world)
    found = plan.to_dict(world)
    assert [device["id"] for device in found["devices"]] == ["ann", "bob"]
    assert [device["region"] for device in found["devices"]] == ["north", "south"]
    assert [device["samples"] for device in found["devices"]] == [10, 10]
    assert [unit["members"] for unit in found["units"]] == [["ann"], ["bob"]]
    assert [unit["leader"] for unit in found["units"]] == ["ann", "bob"]
    assert found["round_seconds"] == plan.round_seconds
    for index, unit in enumerate(found["units"]):
        assert unit["idle_seconds"] == plan.idle_seconds(index)
        assert unit["transmit_seconds"] == plan.units[index].transmit_seconds
    numbered = plan_of("fedavg").to_dict(world_of())
    assert [unit["members"] for unit in numbered["units"]] == [[k] for k in range(30)]
