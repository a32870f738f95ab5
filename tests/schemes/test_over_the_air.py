"""Schemes whose devices transmit at once, against their formulas and the digital schemes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm as normal

import camu
from camu.errors import InputError
from camu.learning.job import Trained
from camu.planning.air import Air, Senders, Signal, aligned
from camu.planning.dvfs import full_speed_costs
from camu.planning.several_antennas import Separated
from camu.schemes import SCHEMES
from camu.schemes.cotaf import MARGIN, Precoded
from camu.schemes.least_error_air import LeastError
from camu.schemes.one_bit_air import Majority
from camu.simulation import Callback, History, Record, Run, simulate
from camu.simulation.burst import Burst
from camu.simulation.cluster_burst import ClusterBursts
from camu.simulation.dry_run import dry_run
from camu.simulation.run import Update
from camu.world import World
from helpers.bursts import draw_senders, noiseless, start_of, updates_of

Tiny = Callable[..., World]
OVER_THE_AIR = [name for name, kind in SCHEMES.items() if kind.family == "over the air"]
NOISY: dict[str, Any] = {"radio__noise_dbm": -85.0, "radio__fading": "rayleigh"}


def history(world: World, name: str, *callbacks: Callback, **parameters: Any) -> History:
    return simulate(world, SCHEMES[name](**parameters), callbacks).history


@pytest.mark.parametrize(
    ("name", "digital", "parameters"),
    [
        ("cotaf", "local-sgd", {}),
        ("least-error-air", "local-sgd", {}),
        ("broadband-analog", "fedsgd", {"truncation": 0.0}),
        ("camu-air", "camu", {}),
        ("camu-air", "camu", {"signals": "separated"}),
        ("beamforming-air", "local-sgd", {}),
    ],
)
def test_without_noise_the_model_is_that_of_the_digital_scheme(
    tiny: Tiny, name: str, digital: str, parameters: dict[str, Any]
) -> None:
    world = tiny(radio__d2d="free", radio__fading="rayleigh", radio__uplink="digital")
    expected = history(world, digital)
    found = history(noiseless(world), name, **parameters)
    assert found.weights_sha256 == expected.weights_sha256


class Watch(Callback):
    """The joules with which each device sent in each round."""

    def on_start(self, run: Run) -> None:
        self.spent: list[Any] = [run.ledger.devices[1].copy()]

    def on_round(self, run: Run, record: Record) -> None:
        self.spent.append(run.ledger.devices[1].copy())

    @property
    def rounds(self) -> list[Any]:
        return [after - before for before, after in itertools.pairwise(self.spent)]


@pytest.mark.parametrize("name", OVER_THE_AIR)
def test_no_device_exceeds_its_power_in_any_round(tiny: Tiny, name: str) -> None:
    faded = (
        NOISY if name != "cluster-air" else {"radio__noise_dbm": -85.0}
    )  # its uplinks are digital
    world, watch = tiny(**faded, run__rounds=4), Watch()
    real, forecast = history(world, name, watch), dry_run(world, SCHEMES[name]())
    plan = camu.plan(SCHEMES[name](), world)
    power, band = world.devices.power_watts, world.config.radio.bandwidth_hz
    for round_, spent in enumerate(watch.rounds):
        most = np.zeros(world.devices.count)
        snr = power * world.links.uplink_gain * world.links.fading(round_) / world.links.noise_watts
        for unit in plan.units:  # a member sends to its leader with less than all of them
            most[list(unit.members)] = unit.gather_joules
            sent = unit.uplink_joules
            if plan.burst is not None:  # a report, and all its power over the burst
                report = plan.burst.report_bits / (band * math.log2(1 + snr[unit.leader]))
                sent = power[unit.leader] * (plan.burst.symbols / band + report)
            most[unit.leader] += sent
        assert (spent <= most * (1 + 1e-9)).all()
    assert real.final.total_joules <= forecast.final.total_joules
    assert [one.virtual_seconds for one in real.records] == [
        one.virtual_seconds for one in forecast.records
    ]


def errors(
    air: Air, own: Senders, updates: list[Update], exact: Any, rounds: int = 40
) -> list[float]:
    """Squared errors of the estimated mean in several rounds."""
    found = []
    for round_ in range(rounds):
        burst = Burst(air, replace(own, round=round_))
        received = burst.receive(updates, start_of(len(exact)), math.inf)
        assert received.arrival is not None
        found.append(float(np.square(received.arrival.update - exact).sum()))
    return found


# COTAF


def test_the_noise_of_cotaf_is_that_of_equal_devices() -> None:
    """K equal devices with equal updates: noise over update is 1 / (K^2 snr) in energy."""
    own = draw_senders(np.random.default_rng(0), 5)
    own = replace(own, weight=np.full(5, 0.2), gain=np.full(5, 1e-10), power_watts=np.full(5, 0.5))
    found = Precoded().amplitudes(own, np.full(5, 3.0))
    error = 2 * own.symbols * found.noise**2 / 3.0
    assert error == pytest.approx(own.noise_watts / (0.5 * 1e-10) / 25, rel=1e-12)


def test_a_norm_that_was_expected_too_small_is_clipped() -> None:
    own, squares = draw_senders(np.random.default_rng(1), 6), np.linspace(1.0, 3.0, 6)
    largest = float((own.weight * np.sqrt(squares)).max())
    right = Precoded(norm=largest).amplitudes(own, squares)
    assert (right.factors == own.weight).all()
    assert (right.power_watts <= own.power_watts * (1 + 1e-12)).all()
    small = Precoded(norm=largest / 10).amplitudes(own, squares)
    assert (small.power_watts <= own.power_watts).all()
    clipped = small.factors < own.weight
    assert clipped.any()
    assert (small.power_watts[clipped] == own.power_watts[clipped]).all()
    # What arrives of each unit is what it radiates.
    for found in (right, small):
        eta = own.noise_watts / (2 * found.noise**2)
        arriving = found.power_watts * own.gain * own.symbols
        assert arriving == pytest.approx(eta * found.factors**2 * squares, rel=1e-9)
    assert small.noise == pytest.approx(right.noise / 10, rel=1e-12)


def test_cotaf_expects_the_norm_of_the_last_round(tiny: Tiny) -> None:
    rules = []

    class Plans(Callback):
        def on_round(self, run: Run, record: Record) -> None:
            rules.append(run.plan.air)

    world = tiny(**NOISY)
    history(world, "cotaf", Plans(), norm="last")
    norms = [rule.norm for rule in rules]
    assert all(isinstance(rule, Precoded) for rule in rules)
    assert len(set(norms)) == len(norms)
    clean: list[Any] = []

    class First(SCHEMES["cotaf"]):  # type: ignore[misc]
        name = "first"

        def revise(self, view: Any, state: Any) -> None:
            clean.append([n * view.plan.units[u].weight for u, n in view.arrived[0].norms.items()])

    simulate(world, First())
    assert norms[0] == pytest.approx(MARGIN * max(clean[0]), rel=1e-12)


def test_precoding_leaves_no_floor_of_the_error_on_a_quadratic() -> None:
    """Noise that follows the updates vanishes with them; a constant scale leaves a floor."""
    own = draw_senders(np.random.default_rng(4), 4)
    own = replace(own, gain=np.full(4, 1e-10), power_watts=np.full(4, 0.1), noise_watts=1e-11)
    draw, ends = np.random.default_rng(5), {}
    for rule in ("cotaf", "vanilla"):
        model, optimum = np.full(200, 5.0), draw.standard_normal((4, 200))
        centre = own.weight @ optimum
        for step in range(400):
            rate = 1 / (2 + 0.2 * step)
            changes = rate * (optimum - model)
            squares = np.square(changes).sum(axis=1)
            found = aligned(replace(own, symbols=100), squares)
            if rule == "vanilla":
                first = np.square(0.5 * (optimum - 5.0)).sum(axis=1)
                found = aligned(replace(own, symbols=100), first)
            model = model + own.weight @ changes + found.noise * draw.standard_normal(200)
        ends[rule] = float(np.square(model - centre).sum())
    assert ends["cotaf"] < 0.2 * ends["vanilla"]


# Power control for the least error


def error_of(own: Senders, squares: Any, factors: Any, eta: float) -> float:
    bias = (squares * (factors - own.weight) ** 2).sum() / own.symbols
    return float(bias + own.noise_watts / eta)


def test_no_other_powers_have_a_smaller_error() -> None:
    draw = np.random.default_rng(7)
    for _ in range(30):
        own = draw_senders(draw, 5)
        own = replace(own, noise_watts=10 ** draw.uniform(-13, -10))
        squares = draw.uniform(0.1, 10.0, 5)
        found = LeastError().amplitudes(own, squares)
        assert (found.power_watts <= own.power_watts).all()
        eta = own.noise_watts / (2 * found.noise**2)
        arriving = found.power_watts * own.gain * own.symbols
        assert arriving == pytest.approx(eta * found.factors**2 * squares, rel=1e-9)
        mine = error_of(own, squares, found.factors, eta)

        def other(log_eta: float, own: Senders = own, squares: Any = squares) -> float:
            """For a scale, each unit comes as near to its weight as its power allows."""
            most = np.sqrt(own.power_watts * own.gain * own.symbols / (10**log_eta * squares))
            return error_of(own, squares, np.minimum(own.weight, most), 10**log_eta)

        grid = np.linspace(math.log10(eta) - 4, math.log10(eta) + 4, 4001)
        assert mine <= min(other(one) for one in grid) * (1 + 1e-12)
        best = minimize(lambda x, other=other: other(float(x[0])), [math.log10(eta)])
        assert mine <= best.fun * (1 + 1e-9)
        plain = aligned(own, squares)
        assert mine <= 2 * plain.noise**2 * (1 + 1e-12)


def test_one_device_and_the_limits_of_noise_have_closed_forms() -> None:
    own = replace(draw_senders(np.random.default_rng(2), 1), weight=np.ones(1))
    squares = np.array([own.symbols * 1.0])  # unit power per symbol
    found = LeastError().amplitudes(own, squares)
    received = float(own.power_watts[0] * own.gain[0])
    error = error_of(own, squares, found.factors, own.noise_watts / (2 * found.noise**2))
    assert error == pytest.approx(own.noise_watts / (own.noise_watts + received), rel=1e-12)
    many = draw_senders(np.random.default_rng(3), 6)
    squares = np.linspace(1, 2, 6)
    loud = LeastError().amplitudes(replace(many, noise_watts=1.0), squares)
    assert (loud.power_watts == many.power_watts).all()
    quiet = LeastError().amplitudes(replace(many, noise_watts=1e-30), squares)
    assert quiet.power_watts == pytest.approx(aligned(many, squares).power_watts, rel=1e-6)


def test_the_error_of_uncorrelated_updates_is_the_least_error() -> None:
    draw = np.random.default_rng(11)
    own = replace(draw_senders(draw, 5), noise_watts=1e-11, symbols=1000)
    updates = updates_of(draw, LeastError(), 5, 2000)
    squares = np.array([one.squares for one in updates])
    exact = sum(w * one.update.astype(float) for w, one in zip(own.weight, updates, strict=True))
    amplitudes = LeastError().amplitudes(own, squares)
    left = (amplitudes.factors - own.weight)[:, None] * np.stack([one.update for one in updates])
    expected = np.square(left.sum(axis=0)).sum() + 2000 * amplitudes.noise**2
    found = np.mean(errors(LeastError(), own, updates, exact))
    assert found == pytest.approx(expected, rel=4 * math.sqrt(2 / (40 * 2000)))
    formula = own.symbols * error_of(
        own, squares, amplitudes.factors, own.noise_watts / (2 * amplitudes.noise**2)
    )
    assert found == pytest.approx(formula, rel=0.1)  # five updates are nearly uncorrelated


# Broadband analogue aggregation


def test_devices_in_a_fade_are_silent_as_often_as_the_fading_says(tiny: Tiny) -> None:
    world = tiny(**NOISY, run__rounds=60, run__eval_every=60)
    records = history(world, "broadband-analog", truncation=0.5).records[1:]
    silent = sum(record.faults["truncated"] for record in records)
    share = 1 - math.exp(-0.5)
    assert abs(silent - 360 * share) < 4 * math.sqrt(360 * share * (1 - share))
    assert all(record.units + record.faults["truncated"] == 6 for record in records)


def test_the_inner_devices_are_the_nearest(tiny: Tiny) -> None:
    world = tiny(**NOISY)
    units = [
        [one.units for one in history(world, "broadband-analog", truncation=0.0, **own).records[1:]]
        for own in ({"scheduling": "inner"}, {"scheduling": "alternating"})
    ]
    assert units == [[3, 3, 3], [6, 3, 6]]


# One bit


def test_signs_need_no_reports(tiny: Tiny) -> None:
    world = tiny()
    band = world.config.radio.bandwidth_hz
    seconds = {
        name: camu.plan(SCHEMES[name](), world).units[0].uplink_seconds
        for name in ("one-bit-air", "broadband-analog")
    }
    plan = camu.plan(SCHEMES["one-bit-air"](), world)
    assert seconds["one-bit-air"] == math.ceil(plan.parameters / 2) / band
    snr = world.devices.power_watts * world.links.uplink_gain / world.links.noise_watts
    reports = (64 / (band * np.log2(1 + snr))).sum()
    assert seconds["broadband-analog"] == pytest.approx(seconds["one-bit-air"] + reports, rel=1e-12)


def test_the_majority_decides_without_noise() -> None:
    rule = Majority(step=0.5)
    own = replace(draw_senders(np.random.default_rng(1), 5), noise_watts=0.0)
    draw = np.random.default_rng(9)
    votes = [draw.standard_normal(50).astype(np.float32) for _ in range(5)]
    updates = [Update(unit, 0, loss=1.0) for unit in range(5)]
    for one, vote in zip(updates, votes, strict=True):
        one.update = rule.encode(vote, None, camu_stream())[0]
        one.squares, one.buffers = rule.squares(one.update), np.zeros(0, np.float32)
        assert one.squares == 50  # 4-QAM has one power whatever is sent
    received = Burst(rule, own).receive(updates, start_of(50), math.inf)
    assert received.arrival is not None
    majority = np.sign(np.sign(np.stack(votes)).sum(axis=0))
    assert (received.arrival.update == 0.5 * majority).all()


def camu_stream() -> Any:
    return camu.seeding.derive(0, "own-test")


def test_wrong_signs_are_as_frequent_as_the_formula_says() -> None:
    """Seven devices that are right with probability p; noise at two strengths."""
    draw, count, size, right = np.random.default_rng(3), 7, 40_000, 0.7
    own = draw_senders(draw, count)
    own = replace(own, symbols=size // 2)
    votes = np.where(draw.random((count, size)) < right, 1.0, -1.0).astype(np.float32)
    updates = [Update(unit, 0, loss=1.0) for unit in range(count)]
    for one, vote in zip(updates, votes, strict=True):
        one.update, one.squares, one.buffers = vote, float(size), np.zeros(0, np.float32)
    for noise in (1e-12, 1e-11):
        loud = replace(own, noise_watts=noise)
        received = Burst(Majority(), loud).receive(updates, start_of(size), math.inf)
        assert received.arrival is not None
        wrong = float((received.arrival.update < 0).mean())
        rho = float((own.power_watts * own.gain).min())
        expected = 0.0
        for ones in range(count + 1):
            share = math.comb(count, ones) * right**ones * (1 - right) ** (count - ones)
            expected += share * normal.sf((2 * ones - count) * math.sqrt(rho / noise))
        assert wrong == pytest.approx(expected, abs=4 * math.sqrt(expected / size))
        assert (received.power_watts * own.gain) == pytest.approx(np.full(count, rho), rel=1e-9)


# CAMU's leaders


def test_separated_signals_have_a_noise_each(tiny: Tiny) -> None:
    """A leader that counts alone has never less noise than by itself: the others must go."""
    world = tiny(**NOISY, radio__antennas=12)
    own = replace(
        draw_senders(np.random.default_rng(5), 3), links=world.links, leaders=np.array([0, 2, 5])
    )
    squares, channels = np.array([1.0, 2.0, 3.0]), world.links.channels(0)[own.leaders]
    noise = np.square(np.abs(np.linalg.pinv(channels.T))).sum(axis=1)
    for leader, weight in enumerate(np.eye(3)):
        found = Separated().amplitudes(replace(own, weight=weight), squares)
        total = 2 * own.symbols * found.noise**2
        alone = squares[leader] * own.noise_watts / own.power_watts[leader]
        assert total == pytest.approx(alone * noise[leader], rel=1e-9)
        assert total > alone / np.square(np.abs(channels[leader])).sum()
        assert (found.power_watts == own.power_watts).all()


def test_too_few_antennas_are_refused_before_training(tiny: Tiny) -> None:
    with pytest.raises(InputError, match=r"scheme camu-air|radio\.antennas = 1"):
        camu.plan(SCHEMES["camu-air"](signals="separated"), tiny(radio__antennas=1))


def test_rules_come_back_from_the_file_of_a_plan(tiny: Tiny) -> None:
    world = tiny()
    for name in OVER_THE_AIR:
        plan = camu.plan(SCHEMES[name](), world)
        assert camu.Plan.from_dict(plan.to_dict(world)) == plan
        assert plan.air is not None or plan.gathers_together


# Gathers of clusters


def test_gathers_without_noise_have_the_model_of_the_clusters(tiny: Tiny) -> None:
    """Up to rounding: members of a digital cluster share a pass, and here each has its own."""
    world = tiny(radio__d2d="free", radio__uplink="digital")
    expected = simulate(world, SCHEMES["clustered"]())
    found = simulate(noiseless(world), SCHEMES["cluster-air"]())
    assert found.weights.parameters == pytest.approx(expected.weights.parameters, abs=1e-6)
    assert [r.units for r in found.history.records] == [r.units for r in expected.history.records]


def test_single_devices_have_nothing_to_gather(tiny: Tiny) -> None:
    class Alone(SCHEMES["local-sgd"]):  # type: ignore[misc]
        name = "alone"

        def plan(self, world: World) -> camu.Plan:
            return replace(super().plan(world), gathers_together=True)

    world = tiny(radio__noise_dbm=-60.0, radio__uplink="digital")
    found, expected = simulate(world, Alone()).history, history(world, "local-sgd")
    assert found.weights_sha256 == expected.weights_sha256
    assert found.final.joules == pytest.approx(expected.final.joules, rel=1e-12)


def test_a_gather_takes_one_update_and_a_report_of_each_member(tiny: Tiny) -> None:
    world = tiny()
    power, links = world.devices.power_watts, world.links
    plan, digital = (camu.plan(SCHEMES[name](), world) for name in ("cluster-air", "clustered"))
    burst = math.ceil(plan.parameters / 2) / world.config.radio.bandwidth_hz
    noise = links.noise_watts
    assert len({len(unit.members) for unit in plan.units}) > 1
    for unit, other in zip(plan.units, digital.units, strict=True):
        cost = unit.per_update
        assert cost.answer_seconds == other.per_update.answer_seconds
        senders = np.array([one for one in unit.members if one != unit.leader], dtype=np.int64)
        gain = links.pair_gain(senders, np.full(len(senders), unit.leader))
        rates = world.config.radio.bandwidth_hz * np.log2(1 + power[senders] * gain / noise)
        expected = burst + (64 / rates).sum() if len(senders) else 0.0
        assert cost.gather_seconds - cost.answer_seconds == pytest.approx(expected, rel=1e-9)
        assert unit.uplink_seconds == other.uplink_seconds
    assert camu.Plan.from_dict(plan.to_dict(world)) == plan


def test_the_noise_of_a_gather_is_that_of_its_weakest_member(tiny: Tiny) -> None:
    """One update of one cluster against the formula, over many draws."""
    world = tiny(radio__noise_dbm=-80.0, radio__d2d="free")
    plan = camu.plan(SCHEMES["cluster-air"](), world)
    number = max(range(len(plan.units)), key=lambda u: len(plan.units[u].members))
    unit, draw = plan.units[number], np.random.default_rng(1)
    start = start_of(plan.parameters)
    models = [
        Trained(start.with_parameters(draw.standard_normal(plan.parameters).astype("f4")), 1.0)
        for _ in unit.members
    ]
    costs = full_speed_costs(world, plan.units, plan.parameters, gather_burst=plan.gather_burst)
    exact = sum(
        w * one.weights.parameters.astype(float)
        for w, one in zip(unit.member_weights, models, strict=True)
    )
    errors_found = []
    for round_ in range(5):
        gathers = ClusterBursts(world, round_, plan.units, costs, plan.gather_burst)
        found = gathers.gathered(number, 0, start, models)
        errors_found.append(np.square(found.parameters - exact).sum())
        spent = gathers.joules[gathers.starts[number] :][: len(unit.members)]
        most = costs.member_gather_joules[gathers.starts[number] :][: len(unit.members)]
        assert (spent <= most * (1 + 1e-12)).all()
        assert np.isclose(spent, most, rtol=1e-9).sum() == 1
    terms = []
    for k, w in zip(unit.members, unit.member_weights, strict=True):
        if k != unit.leader:
            gain = world.links.pair_gain(np.array([k]), np.array([unit.leader]))[0]
            snr = world.devices.power_watts[k] * gain / world.links.noise_watts
            model = models[unit.members.index(k)].weights.parameters
            terms.append(w**2 * float(np.square(model, dtype=float).sum()) / snr)
    count = 5 * plan.parameters
    assert np.mean(errors_found) == pytest.approx(max(terms), rel=4 * math.sqrt(2 / count) + 1e-3)


@pytest.mark.parametrize(
    "keys", [{"radio__phase_error_rad": 0.5}, {"radio__time_offset_symbols": 0.9}]
)
def test_phase_and_time_errors_change_what_a_leader_gathers(tiny: Tiny, keys: Any) -> None:
    """Without noise the part of a member's change that arrives is a turned, late copy of it."""
    world = noiseless(tiny(radio__d2d="free", **keys))
    plan = camu.plan(SCHEMES["cluster-air"](), world)
    number = max(range(len(plan.units)), key=lambda u: len(plan.units[u].members))
    unit, draw = plan.units[number], np.random.default_rng(2)
    start = start_of(plan.parameters)
    change = draw.standard_normal(plan.parameters).astype("f4")
    sender = next(k for k, device in enumerate(unit.members) if device != unit.leader)
    models = [Trained(start, 1.0) for _ in unit.members]
    models[sender] = Trained(start.with_parameters(start.parameters + change), 1.0)
    costs = full_speed_costs(world, plan.units, plan.parameters, gather_burst=plan.gather_burst)
    angles, parts = [], []
    for round_ in range(400):
        gathers = ClusterBursts(world, round_, plan.units, costs, plan.gather_burst)
        got = gathers.gathered(number, 0, start, models).parameters - start.parameters
        pairs = (got / unit.member_weights[sender]).astype(float)[: 2 * (len(got) // 2)]
        sent = change.astype(float)[: len(pairs)].view(complex)
        found = np.vdot(sent, pairs.view(complex)) / np.vdot(sent, sent)
        angles.append(float(np.angle(found)))
        parts.append(abs(found))
    if "radio__phase_error_rad" in keys:
        assert np.std(angles) == pytest.approx(0.5, rel=4 / math.sqrt(2 * 400))
        assert parts == pytest.approx([1.0] * 400, rel=1e-3)
    else:  # 1 - t of the symbol arrives, t uniform up to 0.9; the symbols before are not alike
        assert np.mean(parts) == pytest.approx(1 - 0.45, abs=0.05)
        assert min(parts) > 0.05
        assert np.std(parts) == pytest.approx(0.9 / math.sqrt(12), rel=0.15)


def test_clusters_out_of_range_disturb_a_gather(tiny: Tiny) -> None:
    """Deaf clusters add the received powers of each other's leaders to the noise."""
    world = tiny(radio__carrier_sense_dbm=100.0)
    plan = camu.plan(SCHEMES["cluster-air"](), world)
    costs = full_speed_costs(world, plan.units, plan.parameters, gather_burst=plan.gather_burst)
    gathers = ClusterBursts(world, 0, plan.units, costs, Signal(10, 0))
    many = [u for u, unit in enumerate(plan.units) if len(unit.members) > 1]
    assert len(many) > 1
    for unit in many:
        leader = plan.units[unit].leader
        others = np.array([plan.units[other].leader for other in many if other != unit])
        heard = world.links.pair_gain(np.full(len(others), leader), others)
        total = float((heard * world.devices.power_watts[others]).sum())
        found = gathers.senders(unit, np.array([0])).noise_watts
        assert found == pytest.approx(world.links.noise_watts + total, rel=1e-6)
