"""Systems of the literature: limiting cases, formulas written out once more, bounds that hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from camu.arrays import send_in_turn
from camu.errors import InputError
from camu.learning.engine import Engine
from camu.learning.models import seeded_model
from camu.learning.weights import Weights
from camu.planning.codecs import Quantised, Sparse
from camu.planning.prices import unit_costs
from camu.schemes import (
    AdaptiveBatch,
    AgeScheduling,
    FedAsync,
    FedAt,
    FedAvg,
    FedLamp,
    FedPaq,
    FedSa,
    HeterogeneousIntensity,
    HtiDynamic,
    LocalSgd,
    LocalSgdDecay,
    NearIidBandit,
    Plan,
    SemiAsyncClusters,
    State,
    StragglerTiers,
    TwoSided,
    View,
)
from camu.schemes.near_iid_bandit import near_iid_groups
from camu.simulation import simulate
from camu.simulation.result import build_engine
from camu.world import World
from helpers.scheme_runs import bits, ends_at, models

Tiny = Callable[..., World]
UNEVEN: dict[str, Any] = {"data__size_exponent": 1.0, "data__with_replacement": True}
# Links on which fading decides how long an update takes.
FEEBLE: dict[str, Any] = {"radio__noise_dbm": -90.0, "radio__bandwidth_hz": 1e5}


def close(world: World, one: Any, other: Any, by: float = 1e-5) -> None:
    for a, b in zip(models(world, one), models(world, other), strict=True):
        assert np.abs(a - b).max() < by


# FedPAQ


def test_fedpaq_with_everyone_and_many_levels_is_local_sgd(tiny: Tiny) -> None:
    world = tiny(radio__uplink="digital")
    close(world, FedPaq(3, share=1.0, levels=10**7), LocalSgd(3))


def test_fedpaq_pays_for_its_bits_and_draws_a_share(tiny: Tiny) -> None:
    world = tiny(run__rounds=30)
    plan, plain = FedPaq(2, levels=7).plan(world), LocalSgd(2).plan(world)
    q = plan.parameters
    for one, other in zip(plan.units, plain.units, strict=True):
        assert one.codec == Quantised(7)
        assert one.uplink_joules == pytest.approx(other.uplink_joules * (32 + 4 * q) / (32 * q))
    seen: list[tuple[int, ...]] = []

    class Spy(FedPaq):
        def aggregate(self, view: View, state: State) -> Weights:
            seen.append(tuple(sorted(arrival.unit for arrival in view.arrived)))
            return super().aggregate(view, state)

    simulate(world, Spy(share=0.5))
    assert {len(units) for units in seen} == {3}
    assert set().union(*seen) == set(range(6))


# Local SGD with a falling rate, two rates


def test_a_rate_that_hardly_falls_is_local_sgd(tiny: Tiny) -> None:
    world = tiny()
    assert bits(world, LocalSgdDecay(3, shift=1e30)) == bits(world, LocalSgd(3))


def test_the_rate_falls_with_the_steps_so_far(tiny: Tiny) -> None:
    world = tiny(run__rounds=1, training__learning_rate=0.1)
    seen: list[float] = []

    class Spy(LocalSgdDecay):
        def select(self, view: View, state: State) -> Any:
            seen.append(view.plan.units[0].rule.rate)
            return super().select(view, state)

    simulate(tiny(run__rounds=4), Spy(3, shift=6.0))
    assert seen == pytest.approx([6 / (6 + 3 * t) for t in range(4)])
    assert world.config.training.learning_rate == 0.1


def test_two_sided_rates_with_everyone_at_rate_one_is_local_sgd(tiny: Tiny) -> None:
    world = tiny()
    assert bits(world, TwoSided(3, share=1.0)) == bits(world, LocalSgd(3))


def test_small_local_rates_make_one_large_step(tiny: Tiny) -> None:
    """eta_L to 0 with eta eta_L K fixed is gradient descent with step eta eta_L K."""
    errors = []
    for local in (1e-1, 1e-3):
        world = tiny(
            run__rounds=1,
            radio__uplink="digital",
            training__learning_rate=local,
            training__max_update_norm=1e9,
        )
        found, trainer = ends_at(world, TwoSided(4, share=1.0, server_rate=0.4 / (4 * local)))
        slope = np.mean([trainer.gradient_of(k, np.zeros(4)) for k in range(6)], axis=0)
        errors.append(float(np.abs(found + 0.4 * slope).max()))
    assert errors[1] < 0.02 * errors[0]


# FedSA


def test_fedsa_that_waits_for_all_is_fedavg(tiny: Tiny) -> None:
    world = tiny(run__rounds=5, **UNEVEN)
    close(world, FedSa(2, first=6), LocalSgd(2), 1e-6)


@pytest.mark.parametrize("keep_old", [True, False])
def test_fedsa_mixes_the_first_models(tiny: Tiny, keep_old: bool) -> None:
    class Spy(FedSa):
        def aggregate(self, view: View, state: State) -> Weights:
            new = super().aggregate(view, state)
            here = view.weights.parameters.astype(float)
            total = 1.0 if keep_old else sum(a.weight for a in view.arrived)
            expected = here * (1 - sum(a.weight / total for a in view.arrived))
            for a in view.arrived:
                expected = expected + a.weight / total * (a.start.parameters + a.update)
            assert np.abs(new.parameters - expected).max() < 1e-6
            return new

    scheme = Spy(2, first=2, keep_old=keep_old)
    history = simulate(tiny(run__rounds=15, radio__access="ofdma", **UNEVEN), scheme).history
    assert min(record.units for record in history.records[1:]) == 2


@pytest.mark.parametrize("cap", [1, 2, 5])
def test_no_update_of_fedsa_is_older_than_the_cap(tiny: Tiny, cap: int) -> None:
    staleness: list[int] = []

    class Spy(FedSa):
        def aggregate(self, view: View, state: State) -> Weights:
            staleness.extend(arrival.staleness for arrival in view.arrived)
            return super().aggregate(view, state)

    simulate(tiny(run__rounds=40, radio__access="ofdma"), Spy(2, first=1, max_staleness=cap))
    assert max(staleness) == cap


def test_rates_of_fedsa_follow_participation(tiny: Tiny) -> None:
    class Spy(FedSa):
        def revise(self, view: View, state: State) -> Plan | None:
            plan = super().revise(view, state)
            assert plan is not None
            rates = np.array([unit.rule.rate for unit in plan.units])
            assert rates * state["count"] == pytest.approx(np.full(6, state["count"].mean()))
            if self.first == 6:
                assert (rates == 1).all()
            return plan

    simulate(tiny(run__rounds=4), Spy(2, first=6))
    result = simulate(tiny(run__rounds=20, radio__access="ofdma"), Spy(2, first=1))
    assert len({unit.rule.rate for unit in result.plan.units}) > 1


def test_fedsa_chooses_from_its_pilots_and_pays_for_them(tiny: Tiny) -> None:
    history = simulate(tiny(run__rounds=2), FedSa(2, pilot_rounds=3)).history
    assert history.records[0].total_joules > 0
    assert 1 <= history.records[1].units <= 6


# Tiers


def test_one_tier_is_local_sgd(tiny: Tiny) -> None:
    world = tiny(run__rounds=5, radio__uplink="digital", **UNEVEN)
    close(world, FedAt(2, tiers=1), LocalSgd(2))
    close(world, StragglerTiers(2, tiers=1), LocalSgd(2))


def test_as_many_tiers_as_devices_is_fedasync(tiny: Tiny) -> None:
    world = tiny(run__rounds=30, radio__uplink="digital")
    assert len(set(world.devices.samples)) == 1
    mixing = 0.9
    close(
        world,
        StragglerTiers(2, tiers=6, mixing=mixing),
        FedAsync(2, mixing=mixing / 6, decay=0.5, proximal=0.0),
    )


@pytest.mark.parametrize("kind", [FedAt, StragglerTiers])
def test_a_tier_starts_and_counts_as_a_whole(tiny: Tiny, kind: Any) -> None:
    world = tiny(run__rounds=25, radio__access="ofdma")
    tiers = kind(tiers=3).tiers_of(kind(tiers=3).plan(world))
    started: list[set[int]] = []
    done: list[int] = []

    class Spy(kind):  # type: ignore[misc]
        def select(self, view: View, state: State) -> Any:
            chosen = list(super().select(view, state))
            started.append({int(tiers[unit]) for unit in chosen})
            for tier in started[-1]:
                assert set(np.flatnonzero(tiers == tier)) <= set(chosen)
            return chosen

        def combine(self, view: View, state: State, tier: int, model: Any, here: Any) -> Any:
            whole = world.devices.samples[tiers == tier].sum() / world.devices.samples.sum()
            assert state["weights"][tier] == pytest.approx(whole)
            done.append(tier)
            return super().combine(view, state, tier, model, here)

    simulate(world, Spy(tiers=3))
    counts = np.bincount(done, minlength=3)
    assert (counts > 0).all()
    assert counts[0] > counts[2]


def test_fedat_weighs_tiers_by_the_counts_of_their_opposites(tiny: Tiny) -> None:
    counts, latest = np.zeros(3), [np.zeros(0)] * 3

    class Spy(FedAt):
        def combine(self, view: View, state: State, tier: int, model: Any, here: Any) -> Any:
            if not counts.any():
                latest[:] = [here.copy() for _ in range(3)]
            counts[tier] += 1
            latest[tier] = model.copy()
            new = super().combine(view, state, tier, model, here)
            expected = sum(counts[2 - m] / counts.sum() * latest[m] for m in range(3))
            assert np.abs(new - expected).max() < 1e-12
            return new

    simulate(tiny(run__rounds=20, radio__access="ofdma"), Spy(tiers=3))
    assert counts.min() > 0


def test_times_are_closer_inside_tiers_than_in_random_ones(tiny: Tiny) -> None:
    generator = np.random.default_rng(0)
    for seed in range(4):
        plan = LocalSgd(2).plan(tiny(run__seed=seed, radio__access="ofdma"))
        seconds = np.log([unit.ready_seconds + unit.uplink_seconds for unit in plan.units])

        def spread(tiers: np.ndarray) -> float:
            return sum(float(np.ptp(seconds[tiers == t])) for t in set(tiers.tolist()))  # noqa: B023

        for tiers in (FedAt(tiers=3).tiers_of(plan), StragglerTiers(tiers=3).tiers_of(plan)):
            shuffled = [spread(generator.permutation(tiers)) for _ in range(20)]
            assert spread(tiers) < np.mean(shuffled)


# Near-IID groups and a bandit


def test_one_group_of_everyone_is_local_sgd(tiny: Tiny) -> None:
    world = tiny()
    assert bits(world, NearIidBandit(2, size=6, closeness=0.0)) == bits(world, LocalSgd(2))


def test_groups_look_more_like_everyone_than_random_ones(tiny: Tiny) -> None:
    generator = np.random.default_rng(1)
    for seed in range(4):
        world = tiny(run__seed=seed, data__noniid_devices=6)
        counts = world.devices.label_counts

        def apart(group: np.ndarray) -> float:
            pooled = np.array([counts[group == g].sum(axis=0) for g in range(group.max() + 1)])  # noqa: B023
            shares = pooled / pooled.sum(axis=1, keepdims=True)
            return float(np.abs(shares - counts.sum(axis=0) / counts.sum()).sum(axis=1).mean())  # noqa: B023

        found = near_iid_groups(world, 2, 0.1)
        assert set(found) == set(range(found.max() + 1))
        assert max(np.bincount(found)) <= 2
        assert apart(found) <= np.mean([apart(generator.permutation(found)) for _ in range(30)])


def test_the_bandit_comes_to_play_the_fastest_group(tiny: Tiny) -> None:
    """With constant times the share of the best group tends to 1 and its regret is a logarithm."""
    played: list[int] = []

    class Spy(NearIidBandit):
        def select(self, view: View, state: State) -> Any:
            chosen = super().select(view, state)
            played.append(state["arm"])
            return chosen

    history = simulate(tiny(run__rounds=200), Spy(1, size=2, closeness=0.0)).history
    seconds = np.diff([record.virtual_seconds for record in history.records])
    arms = {arm: seconds[np.array(played) == arm].mean() for arm in set(played)}
    best = min(arms, key=arms.__getitem__)
    assert len(arms) == 3
    early, late = np.array(played[:60]) == best, np.array(played[100:]) == best
    assert late.mean() > early.mean()
    assert late.mean() > 0.75
    regret = np.cumsum(seconds - arms[best])
    assert regret[199] - regret[99] < regret[99]


# Adaptive batches


def test_all_devices_finish_within_one_sample_of_each_other(tiny: Tiny) -> None:
    scheme = AdaptiveBatch(3, most=20, least=1)
    world = tiny(data__samples_per_device=60)
    plan, devices = scheme.plan(world), world.devices
    ends = np.array([unit.compute_seconds + unit.uplink_seconds for unit in plan.units])
    sample = 3 * devices.cycles_per_sample / devices.cpu_hz
    batches = np.array([unit.rule.batch for unit in plan.units], dtype=float)
    assert batches.max() == 20
    free = batches > 2
    assert free.sum() >= 2
    assert (ends <= ends[free].max() + 1e-12).all()
    assert (ends[free].max() - ends[free] < sample[free] + 1e-12).all()
    assert [unit.rule.rate for unit in plan.units] == pytest.approx(batches / 20)


def test_one_update_is_a_step_on_the_union_of_the_batches(tiny: Tiny) -> None:
    """With equal data, sum_k (1 / K) eta (B_k / B_max) g_k is a multiple of the mean over all."""
    world = tiny(run__rounds=1, radio__uplink="digital", data__samples_per_device=40)
    scheme = AdaptiveBatch(1, most=24, least=2)
    batches = [int(unit.rule.batch or 0) for unit in scheme.plan(world).units]
    assert len(set(batches)) > 2
    first, last = models(world, scheme)
    federation = world.federation
    assert federation is not None
    data = federation.dataset
    with build_engine(world) as engine:
        union = np.concatenate([engine.batches.step(0, k, 0, b) for k, b in enumerate(batches)])
        assert len(union) == sum(batches)
        with Engine(
            seeded_model(world.config),
            data.train_inputs,
            data.train_labels,
            [union],
            None,
            None,
            learning_rate=0.1,
        ) as pooled:
            slope = pooled.gradient(engine.initial)
    rate = world.config.training.learning_rate * np.mean(batches) / max(batches)
    assert np.abs(last - (first - rate * slope)).max() < 1e-5


def test_adaptive_batches_refuse_epochs_whose_time_no_batch_changes(tiny: Tiny) -> None:
    with pytest.raises(InputError, match=r"set training\.local_update = step"):
        AdaptiveBatch().plan(tiny(training__local_update="epoch"))


# HTI under fading


def test_without_fading_the_dynamic_counts_are_the_static_ones(tiny: Tiny) -> None:
    for access in ("tdma", "ofdma"):
        world = tiny(radio__access=access, radio__fading="none")
        assert bits(world, HtiDynamic()) == bits(world, HeterogeneousIntensity())


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_under_fading_arrivals_are_closer_than_with_static_counts(tiny: Tiny, access: str) -> None:
    settings = {"radio__access": access, "radio__fading": "rayleigh", "radio__d2d": "free"}
    world = tiny(run__rounds=12, **settings, **FEEBLE | {"radio__noise_dbm": -75.0})
    static = HeterogeneousIntensity().plan(world)
    gaps: list[tuple[float, float]] = []

    class Spy(HtiDynamic):
        def select(self, view: View, state: State) -> Any:
            gain = world.links.uplink_gain * world.links.fading(view.round)
            gaps.append((gap(view.plan, gain), gap(static, gain)))
            return super().select(view, state)

    def gap(plan: Plan, gain: np.ndarray) -> float:
        costs = unit_costs(
            world,
            [unit.members for unit in plan.units],
            [unit.leader for unit in plan.units],
            [unit.power_watts for unit in plan.units],
            [unit.payload_bits for unit in plan.units],
            plan.parameters,
            uplink_gain=gain,
        )
        counts = np.array([unit.local_updates for unit in plan.units])
        ready = counts * (costs.compute_seconds + costs.gather_seconds)
        if access == "tdma":
            return float(np.ptp(send_in_turn(ready, costs.uplink_seconds)))
        return float(np.ptp(ready + costs.uplink_seconds))

    simulate(world, Spy())
    assert len(gaps) == 12
    assert all(own <= other + 1e-9 for own, other in gaps)
    if access == "ofdma":  # where uplinks queue, the queue decides here
        assert any(own < 0.99 * other for own, other in gaps)


# FedLamp


def test_one_update_and_every_entry_is_fedavg(tiny: Tiny) -> None:
    world = tiny(radio__uplink="digital")
    scheme = FedLamp(fastest_updates=1, share_per_update=1.0)
    assert {unit.codec for unit in scheme.plan(world).units} == {Sparse(1.0)}
    assert bits(world, scheme) == bits(world, FedAvg())


def test_devices_of_fedlamp_finish_within_one_update_of_the_fastest(tiny: Tiny) -> None:
    world = tiny(radio__access="ofdma")
    scheme = FedLamp(fastest_updates=12, share_per_update=0.05)
    plan, plain = scheme.plan(world), FedAvg().plan(world)
    ratio = Sparse(1.0).bits(plan.parameters) / plain.units[0].payload_bits
    pace = np.array(
        [u.per_update.compute_seconds + 0.05 * ratio * u.uplink_seconds for u in plain.units]
    )
    counts = np.array([unit.local_updates for unit in plan.units])
    ends = counts * pace
    assert counts.max() == 12
    assert len(set(counts)) > 1
    assert (ends <= ends[np.argmax(counts)] + 1e-12).all()
    assert (ends.max() - ends < pace + 1e-12).all()
    weights = np.array([unit.weight for unit in plan.units])
    assert weights == pytest.approx(np.sqrt(counts) / np.sqrt(counts).sum())
    for unit in plan.units:
        assert unit.codec == Sparse(min(1.0, 0.05 * unit.local_updates))
        assert unit.payload_bits == unit.codec.bits(plan.parameters)


def test_fedlamp_learns_how_long_sending_takes(tiny: Tiny) -> None:
    """Without fading and queue the measured times are the known ones; with fading they move."""
    still = tiny(run__rounds=6, radio__access="ofdma")
    assert simulate(still, FedLamp()).plan.units == FedLamp().plan(still).units
    slow: dict[str, Any] = {"radio__access": "ofdma", **FEEBLE}
    faded = tiny(run__rounds=6, radio__fading="rayleigh", **slow)
    scheme = FedLamp(fastest_updates=12)
    now, then = simulate(faded, scheme).plan, scheme.plan(faded)
    assert [u.local_updates for u in now.units] != [u.local_updates for u in then.units]


# Semi-asynchronous clusters


def test_one_group_that_never_synchronises_is_fedasync(tiny: Tiny) -> None:
    world = tiny(run__rounds=30, radio__uplink="digital", radio__access="ofdma")
    mine = SemiAsyncClusters(2, groups=1, mixing=0.7, discrepancy=math.inf, max_staleness=10**6)
    close(world, mine, FedAsync(2, mixing=0.7, decay=0.5, proximal=0.0))


def test_groups_are_equal_after_a_synchronisation_and_staleness_is_bounded(tiny: Tiny) -> None:
    staleness: list[int] = []
    synchronised: list[bool] = []

    class Spy(SemiAsyncClusters):
        def aggregate(self, view: View, state: State) -> Weights:
            staleness.extend(arrival.staleness for arrival in view.arrived)
            new = super().aggregate(view, state)
            lengths = np.linalg.norm(state["models"] - state["models"].mean(axis=0), axis=1)
            whole = np.concatenate((new.parameters, new.buffers)).astype(float)
            apart = np.linalg.norm(state["models"] - whole, axis=1)
            assert apart.max() <= 0.2 * np.linalg.norm(whole) * (1 + 1e-5)
            synchronised.append(bool(lengths.max() == 0))
            return new

    world = tiny(run__rounds=60, radio__access="ofdma", data__noniid_devices=6)
    simulate(world, Spy(2, groups=2, discrepancy=0.2, max_staleness=4))
    assert max(staleness) == 4
    assert 2 <= sum(synchronised) < len(synchronised)


def test_groups_are_alike_in_delay(tiny: Tiny) -> None:
    """Two places, two speeds of the radio: devices of one group answer after similar times."""
    groups: list[np.ndarray] = []
    seconds: dict[int, float] = {}

    class Spy(SemiAsyncClusters):
        def aggregate(self, view: View, state: State) -> Weights:
            new = super().aggregate(view, state)
            if not groups:
                groups.append(state["group"].copy())
                seconds.update({a.unit: a.seconds for a in view.arrived})
            return new

    simulate(tiny(run__rounds=1, radio__access="ofdma"), Spy(2, groups=3))
    (found,) = groups
    assert set(found) == {0, 1, 2}
    delay = np.log([seconds[k] for k in range(6)])
    inside = sum(
        float(np.square(delay[found == g] - delay[found == g].mean()).sum()) for g in range(3)
    )
    assert inside < float(np.square(delay - delay.mean()).sum())


# Age of update


def test_scheduling_everyone_is_local_sgd(tiny: Tiny) -> None:
    world = tiny(run__rounds=5)
    assert bits(world, AgeScheduling(2, share=1.0, damping=0.7)) == bits(world, LocalSgd(2))


def test_equal_importance_is_round_robin(tiny: Tiny) -> None:
    """Ages before selection have the mean (K / q - 1) / 2."""
    ages: list[np.ndarray] = []
    rates: list[np.ndarray] = []

    class Spy(AgeScheduling):
        def select(self, view: View, state: State) -> Any:
            if "slope" in state:
                state["slope"][:] = 1.0
                ages.append(state["age"].copy())
                rates.append(np.array([unit.rule.rate for unit in view.plan.units]))
            return super().select(view, state)

    simulate(tiny(run__rounds=31), Spy(1, share=1 / 3, damping=0.5))
    assert np.mean(ages[6:30]) == pytest.approx((6 / 2 - 1) / 2)
    assert np.array(rates) == pytest.approx((1 + np.array(ages)) ** -0.5)
