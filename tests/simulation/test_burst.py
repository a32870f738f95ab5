"""Units that transmit at once: the sum that the server receives, its noise, time and energy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu
from camu.deploy.deployment import Deployment, check_run
from camu.errors import InputError
from camu.planning.air import ALIGNED, Air, Senders, aligned
from camu.planning.codecs import Quantised
from camu.schemes import Clustered, FedAvg
from camu.schemes.aggregation import with_momentum
from camu.schemes.view import View
from camu.simulation import Callback, Record, Run, simulate
from camu.simulation.burst import Burst, Mismatch
from camu.simulation.dry_run import dry_run
from camu.simulation.hooks import check_trainer
from camu.world import World
from helpers.bursts import draw_senders, noiseless, start_of, updates_of

Tiny = Callable[..., World]
NOISY = {"radio__noise_dbm": -85.0, "radio__antennas": 1, "radio__fading": "rayleigh"}


@dataclass(frozen=True)
class Together(FedAvg):
    """FedAvg over the air."""

    def plan(self, world: World) -> camu.Plan:
        return super().plan(world).over_the_air(ALIGNED)


@dataclass(frozen=True)
class Unreported(Air):
    """Aligned units whose norms are known for nothing."""

    report_bits = 0


@dataclass(frozen=True)
class Leaders(Clustered):
    """Leaders of clusters over the air."""

    def plan(self, world: World) -> camu.Plan:
        return super().plan(world).over_the_air(ALIGNED)


@dataclass(frozen=True)
class Heavy(Together):
    """A scheme whose server has momentum, over the air."""

    def aggregate(self, view: View, state: dict[str, Any]) -> Any:
        assert len(view.arrived) == 1
        assert sorted(view.arrived[0].norms) == list(range(len(view.plan.units)))
        return with_momentum(view, state, super().aggregate(view, state), 0.5)


class Watch(Callback):
    """The model and the joules of devices after every round."""

    def __init__(self) -> None:
        self.models: list[Any] = []
        self.transmit: list[Any] = [0.0]

    def on_round(self, run: Run, record: Record) -> None:
        self.models.append(run.weights.parameters.astype(np.float64))
        self.transmit.append(run.ledger.devices[1].copy())


@pytest.mark.parametrize(("over", "digital"), [(Together, FedAvg), (Leaders, Clustered)])
def test_without_noise_the_model_is_that_of_the_digital_scheme(
    tiny: Tiny, over: type[camu.Scheme], digital: type[camu.Scheme]
) -> None:
    changes: dict[str, Any] = {"faults__dropout_probability": 0.2, "radio__d2d": "free"}
    found = simulate(noiseless(tiny(**changes)), over()).history
    expected = simulate(tiny(radio__uplink="digital", **changes), digital()).history
    assert found.weights_sha256 == expected.weights_sha256
    assert [one.units for one in found.records] == [one.units for one in expected.records]


def test_one_unit_has_all_its_power_and_the_error_is_the_largest_of_all() -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        own = draw_senders(draw, 6)
        squares = draw.uniform(0.1, 10.0, 6)
        found = aligned(own, squares)
        assert (found.power_watts <= own.power_watts).all()
        assert (found.power_watts == own.power_watts).sum() == 1
        # What a unit radiates arrives as sqrt(eta) w_k s_k, for one eta.
        eta = found.power_watts * own.gain * own.symbols / (own.weight**2 * squares)
        assert eta == pytest.approx(np.full(6, eta[0]), rel=1e-12)
        snr = own.power_watts * own.gain / own.noise_watts
        error = 2 * own.symbols * found.noise**2
        assert error == pytest.approx((own.weight**2 * squares / snr).max(), rel=1e-12)
        louder = aligned(replace(own, power_watts=2 * own.power_watts), squares)
        assert found.noise**2 == pytest.approx(2 * louder.noise**2, rel=1e-12)


def test_nobody_radiates_where_there_is_nothing_to_send() -> None:
    found = aligned(draw_senders(np.random.default_rng(0), 3), np.zeros(3))
    assert found.noise == 0
    assert (found.power_watts == 0).all()


def burst_of(air: Air, own: Senders) -> Burst:
    return Burst(air, own)


def test_the_error_of_the_mean_is_that_of_the_formula() -> None:
    """As an average over 40 rounds of 1000 entries; the formula is written out here."""
    draw = np.random.default_rng(5)
    own, updates = draw_senders(draw, 6), updates_of(draw, ALIGNED, 6, 1000)
    exact = sum(w * one.update.astype(float) for w, one in zip(own.weight, updates, strict=True))
    errors = []
    for round_ in range(40):
        burst = burst_of(ALIGNED, replace(own, round=round_))
        found = burst.receive(updates, start_of(1000), np.inf)
        assert found.arrival is not None
        errors.append(np.square(found.arrival.update - exact).sum())
    norms = [float(np.square(one.update, dtype=float).sum()) for one in updates]
    snr = own.power_watts * own.gain / own.noise_watts
    expected = (own.weight**2 * norms / snr).max()
    assert np.mean(errors) == pytest.approx(expected, rel=4 * np.sqrt(2 / 40_000))


def test_every_round_draws_its_own_noise() -> None:
    own = draw_senders(np.random.default_rng(1), 4)
    updates = updates_of(np.random.default_rng(2), ALIGNED, 4, 100)
    found = [
        burst_of(ALIGNED, replace(own, round=round_)).receive(updates, start_of(100), np.inf)
        for round_ in (0, 1, 0)
    ]
    first, second, again = (one.arrival.update for one in found if one.arrival is not None)
    assert (first == again).all()
    assert (first != second).all()


def test_power_is_never_exceeded_and_a_round_ends_with_reports_and_one_burst(tiny: Tiny) -> None:
    """Reports are 64 bits each, in turn, at the rate of a round's fading."""
    world, watch = tiny(**NOISY, radio__circuit_watts=0.1, radio__amplifier_efficiency=0.5), Watch()
    history = simulate(world, Together(), [watch]).history
    plan, links, power = camu.plan(Together(), world), world.links, world.devices.power_watts
    seconds = math.ceil(plan.parameters / 2) / world.config.radio.bandwidth_hz
    band, noise = world.config.radio.bandwidth_hz, 10 ** (-8.5 - 3)

    def reports(fading: Any) -> Any:
        return 64 / (band * np.log2(1 + power * links.uplink_gain * fading / noise))

    on_air = seconds + reports(1.0).sum()
    assert plan.column("uplink_seconds") == pytest.approx(np.full(6, on_air), rel=1e-12)
    assert plan.round_seconds == pytest.approx(plan.column("ready_seconds").max() + on_air)
    watts, lasting = power / 0.5 + 0.1, 0.0
    for round_, (before, after) in enumerate(itertools.pairwise(watch.transmit)):
        report = reports(links.fading(round_))
        spent, most = after - before, watts * (seconds + report)
        assert (spent <= most * (1 + 1e-12)).all()
        assert (spent > 0.1 * seconds + watts * report).all()  # circuits
        assert np.isclose(spent, most, rtol=1e-12).sum() == 1
        lasting += plan.column("ready_seconds").max() + seconds + report.sum()
    forecast = dry_run(world, Together()).final
    final = history.final
    assert final.total_joules < forecast.total_joules
    assert final.joules["compute"] == forecast.joules["compute"]
    assert final.virtual_seconds == forecast.virtual_seconds
    assert final.virtual_seconds == pytest.approx(lasting, rel=1e-12)


def test_a_corrupt_unit_spoils_the_burst(tiny: Tiny) -> None:
    world = tiny(faults__corrupt_probability=0.3, run__rounds=4, run__seed=4)
    history, forecast = simulate(world, Together()).history, dry_run(world, Together())
    refused = [record for record in history.records if record.faults["refused"]]
    assert 0 < len(refused) <= 4
    assert all(record.units == 0 and record.faults["refused"] == 1 for record in refused)
    for dry, real in zip(forecast.records, history.records, strict=True):
        assert (dry.units, dry.faults) == (real.units, real.faults)


@dataclass(frozen=True)
class Half(Air):
    """The weaker half of the units is silent."""

    def silent(self, senders: Senders) -> Any:
        return senders.gain < np.median(senders.gain)


def test_silent_units_train_and_do_not_pay_for_sending(tiny: Tiny) -> None:
    @dataclass(frozen=True)
    class Loud(FedAvg):
        def plan(self, world: World) -> camu.Plan:
            return super().plan(world).over_the_air(Half())

    watch = Watch()
    world = tiny(**NOISY, run__rounds=1)
    final = simulate(world, Loud(), [watch]).history.final
    assert (final.units, final.faults["truncated"]) == (3, 3)
    assert (watch.transmit[1] > 0).sum() == 3
    assert final.joules["compute"] == dry_run(world, Together()).final.joules["compute"]


def test_a_scheme_sees_one_arrival_for_all(tiny: Tiny) -> None:
    world = noiseless(tiny())
    assert simulate(world, Heavy()).history.final.units == 6


def test_a_plan_over_the_air_comes_back_from_its_file(tiny: Tiny) -> None:
    world = tiny()
    plan = camu.plan(Together(), world)
    document = plan.to_dict(world)
    assert document["air"] == {"name": "camu.planning.air:Air"}
    assert camu.Plan.from_dict(document) == plan
    with pytest.raises(InputError, match=r"air = camu\.planning\.air:Sideways"):
        camu.Plan.from_dict({**document, "air": {"name": "camu.planning.air:Sideways"}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"radio__uplink": "packet"}, 'radio.uplink = "packet" is for updates that are sent one'),
        ({"radio__outage_snr_db": 3.0}, "unset radio.outage_snr_db"),
        ({"scheme__aggregation": "median"}, 'scheme.aggregation = "median" is impossible'),
    ],
)
def test_what_has_no_meaning_at_once_is_refused(
    tiny: Tiny, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        camu.plan(Together(), tiny(**changes))


def test_schemes_and_units_that_send_one_by_one_are_refused(tiny: Tiny) -> None:
    class Early(Together):
        def ready(self, view: View, state: dict[str, Any]) -> bool:
            return True

    class Knowing(Together):
        uses_oracle = True

    world = tiny()
    with pytest.raises(InputError, match="a method ready or deadline has no meaning"):
        camu.plan(Early(), world)
    with pytest.raises(InputError, match="no model of a single unit is received"):
        camu.plan(Knowing(), world)
    plan = FedAvg().plan(world)
    with pytest.raises(InputError, match="unit 0: all units that transmit at once send uncoded"):
        plan.with_columns(codec=[Quantised()] * 6).over_the_air(ALIGNED)
    with pytest.raises(InputError, match="on the same band"):
        plan.with_columns(bandwidth_hz=[1e5] * 6).over_the_air(ALIGNED)
    with pytest.raises(InputError, match="belong together"):
        replace(plan, air=ALIGNED)


def test_channels_and_phases_that_are_missed_mix_the_numbers_of_a_symbol(tiny: Tiny) -> None:
    """Against complex arithmetic written out here, with all three errors at once."""
    world = tiny(
        radio__fading="rayleigh",
        radio__pilot_symbols=2,
        radio__noise_dbm=-85.0,
        radio__phase_error_rad=0.3,
        radio__time_offset_symbols=0.4,
    )
    links = world.links
    own = replace(draw_senders(np.random.default_rng(1), 4), links=links, noise_watts=0.0, round=2)
    mismatch = Mismatch.of(own)
    assert mismatch is not None
    ratio = links.channels(2)[:4, 0] / links.known_channels(2)[:4, 0]
    assert np.abs(mismatch.turns) == pytest.approx(np.abs(ratio), rel=1e-12)
    assert (np.abs(ratio - 1) > 1e-3).all()
    assert ((mismatch.late >= 0) & (mismatch.late <= 0.4)).all()
    updates = updates_of(np.random.default_rng(2), ALIGNED, 4, 7)  # an odd number of entries
    found = Burst(ALIGNED, own, mismatch=mismatch).receive(updates, start_of(7), np.inf)
    total = np.zeros(4, complex)
    for k, one in enumerate(updates):
        pairs = np.append(one.update.astype(float), 0.0)
        symbols = pairs[0::2] + 1j * pairs[1::2]
        for m in range(4):
            before = symbols[m - 1] if m else 0.0
            mixed = (1 - mismatch.late[k]) * symbols[m] + mismatch.late[k] * before
            total[m] += own.weight[k] * mismatch.turns[k] * mixed
    expected = np.stack([total.real, total.imag], axis=1).ravel()[:7]
    assert found.arrival is not None
    assert found.arrival.update == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_phases_are_as_wide_as_configured(tiny: Tiny) -> None:
    world = tiny(radio__phase_error_rad=0.2)
    own = replace(draw_senders(np.random.default_rng(1), 6), links=world.links)
    phases = [np.angle(Mismatch.of(replace(own, round=r)).turns) for r in range(200)]  # type: ignore[union-attr]
    assert np.std(phases) == pytest.approx(0.2, rel=4 / math.sqrt(2 * 1200))
    exact = replace(own, links=tiny().links)
    assert Mismatch.of(exact) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"radio__phase_error_rad": 0.5},
        {"radio__time_offset_symbols": 0.5},
        {"radio__fading": "rayleigh", "radio__pilot_symbols": 1, "radio__noise_dbm": -85.0},
    ],
)
def test_every_mismatch_changes_the_model_and_nothing_that_it_costs(
    tiny: Tiny, changes: dict[str, Any]
) -> None:
    usual = {key: changes[key] for key in ("radio__fading", "radio__noise_dbm") if key in changes}

    class Quiet(FedAvg):
        def plan(self, world: World) -> camu.Plan:
            return super().plan(world).over_the_air(Unreported())

    found, exact = (simulate(tiny(**own), Quiet()).history for own in (changes, usual))
    assert found.weights_sha256 != exact.weights_sha256
    assert found.final.virtual_seconds == exact.final.virtual_seconds


def test_nodes_have_no_air(tiny: Tiny, tmp_path: Path) -> None:
    class Nodes:
        """Just enough of a trainer on nodes."""

        fault_kinds = ()
        oracle = None
        take_faults = wall_seconds = take_nodes = dict

    plan = camu.plan(Together(), tiny())
    with pytest.raises(InputError, match="there is no air between the sockets of nodes"):
        check_trainer(Together(), Nodes(), plan, tiny().config)  # type: ignore[arg-type]
    config = tiny(scheme__name="cotaf").config
    with pytest.raises(InputError, match=r"scheme.name = cotaf: its devices transmit at once"):
        check_run(Deployment(config, str(tmp_path / "out"), nodes=2))


def test_the_shown_price_is_a_limit(camu: Callable[..., Any]) -> None:
    shown = camu("plan", "--preset", "demo", "--scheme", "cotaf").out
    assert " s, at most " in shown
    assert "at most" not in camu("plan", "--preset", "demo", "--scheme", "fedavg").out
