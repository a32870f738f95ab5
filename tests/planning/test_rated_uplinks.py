"""Rates chosen from estimates, and gathers that fade: what is lost, and what it costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats

import camu
from camu.planning.costs import Costs
from camu.planning.dvfs import full_speed_costs
from camu.planning.packets import packet_error
from camu.planning.prices import unit_costs
from camu.schemes import make_scheme
from camu.simulation import simulate
from camu.simulation.dry_run import dry_run
from camu.world import World, build_world
from camu.world.rates import CQI_SNR_DB
from helpers.configs import small
from helpers.small_fleets import make_world, random_world

COUNT, BITS = 5000, 100_000


def fleet(snr_db: float = 15.0, **changes: object) -> World:
    """Devices with the same mean SNR of their uplinks."""
    keys = {"uplink": "digital", "fading": "rayleigh", "antennas": 1, **changes}
    settings = [f"radio.{key}={value}" for key, value in keys.items()]
    world = make_world([(0.0, 0.0)] * COUNT, np.full((COUNT, 10), 4), settings)
    gain = np.full(COUNT, 10 ** (snr_db / 10) * world.links.noise_watts / 0.5)
    return replace(world, links=replace(world.links, uplink_gain=gain))


def costs_of(world: World, round_: int = 1) -> Costs:
    """What it costs all devices to send in a round, each on its own."""
    everyone = list(range(COUNT))
    gain = world.links.uplink_gain * world.links.rated_fading(round_)
    alone = [[device] for device in everyone]
    power = world.devices.power_watts
    return unit_costs(
        world,
        alone,
        everyone,
        power,
        BITS,
        1000,
        uplink_gain=gain,
        uplinks={"shannon": 1},
        round_=round_,
    )


def check_share(lost: np.ndarray | None, expected: float) -> None:
    assert lost is not None
    error = math.sqrt(expected * (1 - expected) / len(lost))
    assert lost.mean() == pytest.approx(expected, abs=4 * error)


@pytest.mark.parametrize("antennas", [1, 2, 15])
@pytest.mark.parametrize("margin_db", [0.0, 3.0, 6.0])
def test_a_rate_for_the_mean_fails_as_often_as_the_gamma_law_says(
    antennas: int, margin_db: float
) -> None:
    world = fleet(csi_correlation=0.0, antennas=antennas, rate_margin_db=margin_db)
    threshold = 10 ** (-margin_db / 10)  # of the SNR, relative to its mean
    if antennas == 1:
        check_share(costs_of(world).outage, 1 - math.exp(-threshold))
    check_share(costs_of(world).outage, float(special.gammainc(antennas, antennas * threshold)))


@pytest.mark.parametrize(
    ("learnt", "changes"),  # the share of the fading's power that is known
    [
        (0.81, {"csi_correlation": 0.9}),
        (8 * 10**0.3 / (1 + 8 * 10**0.3), {"pilot_symbols": 8}),
        (0.96**2 * 2 / (2 + 10**-0.3), {"csi_correlation": 0.96, "pilot_symbols": 2}),
    ],
)
def test_a_rate_from_an_estimate_fails_as_often_as_marcums_function_says(
    learnt: float, changes: dict[str, float]
) -> None:
    error, margin_db = 1 - learnt, 2.0

    def fails(known: float) -> float:  # 1 - Q_1, given the power of the estimate; times its law
        threshold = (learnt * known + error) * 10 ** (-margin_db / 10)
        law = stats.ncx2(2, 2 * learnt * known / error)
        return float(law.cdf(2 * threshold / error)) * math.exp(-known)

    world = fleet(snr_db=3.0, rate_margin_db=margin_db, **changes)
    check_share(costs_of(world).outage, integrate.quad(fails, 0, 40)[0])


def test_good_estimates_need_a_margin_and_then_lose_nothing() -> None:
    keys = {"pilot_symbols": 10**9, "csi_correlation": 1.0}
    without = costs_of(fleet(rate_margin_db=0.0, **keys)).outage
    assert without is not None
    assert 0.4 < without.mean() < 0.6  # however small the error is
    lost = costs_of(fleet(rate_margin_db=0.1, **keys)).outage
    assert lost is not None
    assert not lost.any()
    perfect = costs_of(fleet())
    assert perfect.outage is None
    known = costs_of(fleet(rate_margin_db=0.0, **keys)).uplink_seconds
    assert known == pytest.approx(perfect.uplink_seconds, rel=1e-2)


def test_sending_costs_what_the_chosen_rate_costs() -> None:
    world = fleet(csi_correlation=0.7, rate_margin_db=1.0, downlink="true", bs_power_watts=2.0)
    links, costs, noise = world.links, costs_of(world), world.links.noise_watts
    snr = 0.5 * links.uplink_gain * links.rated_fading(1) / noise
    assert costs.uplink_seconds == pytest.approx(BITS / (1e6 * np.log2(1 + snr)))
    assert costs.uplink_joules == pytest.approx(0.5 * costs.uplink_seconds)
    true = 0.5 * links.uplink_gain * links.fading(1) / noise
    assert (costs.outage == (true < snr)).all()
    # The broadcast is at a rate that all devices can receive.
    weakest = true.min() / 0.5 * 2.0
    assert costs.downlink_seconds == pytest.approx(32 * 1000 / (1e6 * np.log2(1 + weakest)))


def test_the_best_margin_is_lamberts() -> None:
    """Of what arrives over an unknown Rayleigh channel, most at W(SNR) / ln 2 bit/s/Hz."""
    mean = 10**1.5
    best = float(special.lambertw(mean).real) / math.log(2)
    assert best == pytest.approx(3.646, abs=5e-4)
    threshold = 2**best - 1
    margin_db = 10 * math.log10(mean / threshold)
    assert margin_db == pytest.approx(4.39, abs=0.01)  # as in docs/world.md
    goodput = []
    for extra_db in (-2.0, 0.0, 2.0):
        costs = costs_of(fleet(csi_correlation=0.0, rate_margin_db=margin_db + extra_db))
        assert costs.outage is not None
        goodput.append((BITS / costs.uplink_seconds / 1e6 * ~costs.outage).mean())
    assert max(goodput) == goodput[1]
    arrives = math.exp(-threshold / mean)
    error = best * math.sqrt(arrives * (1 - arrives) / COUNT)
    assert goodput[1] == pytest.approx(best * arrives, abs=4 * error)


def test_rates_of_a_table_fail_below_their_threshold() -> None:
    world = fleet(csi_correlation=0.5, rate="table", rate_margin_db=0.0)
    links, lost = world.links, costs_of(world).outage
    assert lost is not None
    mean_db = 10 * np.log10(0.5 * links.uplink_gain / links.noise_watts)
    chosen, true = (
        (CQI_SNR_DB[:, None] <= mean_db + 10 * np.log10(factor)).sum(axis=0)
        for factor in (links.rated_fading(1), links.fading(1))
    )
    inside = (chosen > 0) | (true > 0)  # below the table, rates are continuous
    assert (lost == (true < chosen))[inside].all()
    assert (lost & (true == chosen))[inside].sum() == 0
    assert 0 < lost.mean() < 1


def test_at_the_highest_rate_a_weaker_channel_loses_nothing() -> None:
    world = fleet(snr_db=60.0, csi_correlation=0.0, max_bits_per_hz=2.0)
    lost = costs_of(world).outage
    assert lost is not None
    weak = world.links.fading(1) * 1e6 < 3
    assert (lost == weak).all()


def test_all_tries_of_a_rate_that_is_too_high_fail() -> None:
    keys = {"csi_correlation": 0.0, "uplink": "packet", "packet_tries": 3}
    world = fleet(snr_db=10.0, **keys)
    costs = costs_of(world)
    assert costs.outage is not None
    tries = costs.uplink_bits / BITS
    assert (tries[costs.outage] == 3).all()
    error = packet_error(10.0 * world.links.fading(1)[~costs.outage])
    expected = 1 + error + error**2
    spread = math.sqrt(len(error)) * 1.0
    assert abs(tries[~costs.outage].sum() - expected.sum()) < 4 * spread


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_a_run_loses_these_updates_and_pays_for_them(access: str) -> None:
    keys = {"radio__fading": "rayleigh", "radio__antennas": 2, "radio__access": access}
    known = {"radio__csi_correlation": 0.6, "radio__rate_margin_db": 0.5}
    config = small(training__model="logistic", run__rounds=5, **keys, **known)
    world = build_world(config)
    scheme = make_scheme(config, "fedavg")
    history, forecast = simulate(world, scheme).history, dry_run(world, scheme)
    assert [r.faults for r in history.records] == [r.faults for r in forecast.records]
    parts = 20 if access == "ofdma" else 1
    seconds, parameters = 0.0, camu.plan(scheme, world).parameters
    for record in history.records[1:]:
        links, round_ = world.links, record.round - 1
        factors = links.rated_fading(round_), links.fading(round_)
        chosen, true = (world.devices.power_watts * links.uplink_gain * f for f in factors)
        assert record.faults["outages"] == (true < chosen).sum() > 0
        assert record.units == 20 - record.faults["outages"]
        rate = 1e6 / parts * np.log2(1 + chosen / (links.noise_watts / parts))
        seconds += float((32 * parameters / rate).sum())
    assert history.final.joules["transmit"] == pytest.approx(0.5 * seconds)


MEMBERS, LEADERS = ((0, 1, 2), (3,), (4, 5)), (1, 3, 5)


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_a_gather_of_a_round_is_at_the_gains_of_that_round(rho: float) -> None:
    keys = ["radio.fading=rayleigh", "radio.d2d_fading=true", f"radio.fading_correlation={rho}"]
    keys.append("radio.circuit_watts=0.1")
    world = random_world(6, 1, keys)
    links, bits, power = world.links, 32 * 1000, world.devices.power_watts
    for round_ in (4, 0, 1):
        costs = unit_costs(world, MEMBERS, LEADERS, power[list(LEADERS)], 1, 1000, round_=round_)
        for unit, (members, leader) in enumerate(zip(MEMBERS, LEADERS, strict=True)):
            gains = []
            for member in set(members) - {leader}:
                ends = np.array([leader]), np.array([member])
                gains.append(float(links.pair_gain(*ends, round_)[0]))
                assert gains[-1] == links.pair_gain(*ends[::-1], round_)[0]
                assert gains[-1] != links.pair_gain(*ends)[0]
            air = [bits / (1e6 * math.log2(1 + 0.5 * g / links.noise_watts)) for g in gains]
            answer = max(air, default=0.0)
            assert costs.gather_seconds[unit] == pytest.approx(sum(air) + answer)
            assert costs.answer_seconds[unit] == pytest.approx(answer)
            assert costs.gather_joules[unit] == pytest.approx(0.6 * (sum(air) + answer))
        plain = unit_costs(world, MEMBERS, LEADERS, power[list(LEADERS)], 1, 1000)
        steady = random_world(6, 1, ["radio.circuit_watts=0.1"])
        mean = unit_costs(steady, MEMBERS, LEADERS, power[list(LEADERS)], 1, 1000, round_=round_)
        assert (plain.gather_seconds == mean.gather_seconds).all()


def test_every_round_of_a_run_gathers_at_its_own_gains() -> None:
    config = small(
        radio__fading="rayleigh", radio__d2d_fading=True, radio__d2d="free", run__rounds=4
    )
    world, scheme = build_world(config), make_scheme(config, "clustered")
    plan = camu.plan(scheme, world)
    spent, before = [], 0.0
    for round_ in range(4):
        gain = world.links.uplink_gain * world.links.fading(round_)
        costs = full_speed_costs(
            world, plan.units, plan.parameters, uplink_gain=gain, round_=round_
        )
        updates = plan.column("local_updates")
        spent.append(float((costs.uplink_joules + updates * costs.gather_joules).sum()))
    assert len(set(spent)) == 4
    for record, joules in zip(dry_run(world, scheme).records[1:], spent, strict=True):
        assert record.joules["transmit"] - before == pytest.approx(joules)
        before = record.joules["transmit"]


def test_same_bits_for_one_and_two_workers() -> None:
    keys = {"fading": "rician", "d2d_fading": True, "fading_correlation": 0.5, "pilot_symbols": 1}
    changes = {f"radio__{key}": value for key, value in keys.items()}
    one, two = (
        small(training__model="logistic", machine__workers=workers, **changes) for workers in (1, 2)
    )
    histories = [
        simulate(build_world(config), make_scheme(config, "clustered")).history
        for config in (one, two)
    ]
    assert histories[0].weights_sha256 == histories[1].weights_sha256
    assert histories[0].records == histories[1].records


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"radio__d2d_fading": True}, r"radio\.d2d_fading: no link fades; set radio\.fading"),
        ({"radio__pilot_symbols": 4}, r"radio\.pilot_symbols: no link fades; set radio\.fading"),
        ({"radio__csi_correlation": 0.5}, r"radio\.csi_correlation: no link fades"),
        ({"radio__csi_correlation": 1.5}, r"radio\.csi_correlation = 1\.5.*1"),
        ({"radio__pilot_symbols": 0}, r"radio\.pilot_symbols = 0"),
        ({"radio__rate_margin_db": -1.0}, r"radio\.rate_margin_db = -1"),
        (
            {"radio__fading": "rayleigh", "radio__pilot_symbols": 4, "radio__uplink": "analog"},
            r'radio\.pilot_symbols: with radio\.uplink = "analog" no rate .*set it to digital',
        ),
    ],
)
def test_what_has_no_meaning_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(camu.CamuError, match=words):
        small(**changes)
