"""The common baselines: limiting cases, formulas written out once more, fixed points."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from camu.learning.weights import Weights
from camu.planning.codecs import Raw
from camu.planning.contribution import gradient_steps
from camu.planning.groups import clusters, make_plan
from camu.schemes import (
    SCHEMES,
    Camu,
    ClusterNova,
    ClusterScaffold,
    ComputeRounds,
    FedAdam,
    FedAsync,
    FedAvg,
    FedAvgM,
    FedBuff,
    FedDyn,
    FedNova,
    FedProx,
    HierFavg,
    LabelKMeans,
    LocalSgd,
    Oort,
    ParallelRestartedSgd,
    Plan,
    RandomClusters,
    Scaffold,
    Scheme,
    State,
    View,
)
from camu.simulation import Callback, Record, Run, simulate
from camu.simulation.dry_run import dry_run
from camu.simulation.result import build_engine
from camu.world import World
from helpers.scheme_runs import bits, ends_at, models

Tiny = Callable[..., World]
UNEVEN: dict[str, Any] = {"data__size_exponent": 1.0, "data__with_replacement": True}


# Limiting cases


def test_fedprox_is_fedavg_with_one_update_and_local_sgd_without_its_term(tiny: Tiny) -> None:
    world = tiny()
    assert bits(world, FedProx(1, proximal=1.0)) == bits(world, FedAvg())
    assert bits(world, FedProx(4, proximal=0.0)) == bits(world, LocalSgd(4))
    assert bits(world, FedProx(4, proximal=0.5)) != bits(world, LocalSgd(4))


def test_scaffold_with_one_update_is_fedavg(tiny: Tiny) -> None:
    world = tiny(run__rounds=6, radio__uplink="digital", **UNEVEN)
    mine, plain = models(world, Scaffold(1)), models(world, FedAvg())
    assert np.array_equal(mine[1], plain[1])
    for one, two in zip(mine, plain, strict=True):
        assert np.abs(one - two).max() < 1e-5
    plan = Scaffold(3).plan(world)
    assert {unit.codec for unit in plan.units} == {Raw(copies=2)}


def test_fednova_with_equal_counts_is_local_sgd(tiny: Tiny) -> None:
    world = tiny(**UNEVEN)
    assert bits(world, FedNova(max_extra_updates=0)) == bits(world, FedAvg())
    assert bits(world, ParallelRestartedSgd(max_extra_updates=0)) == bits(world, FedAvg())
    assert bits(world, ClusterNova(0)) == bits(world, ComputeRounds(0))


def test_momentum_zero_is_local_sgd(tiny: Tiny) -> None:
    world = tiny()
    assert bits(world, FedAvgM(3, momentum=0.0)) == bits(world, LocalSgd(3))
    assert bits(world, FedAvgM(1, momentum=0.0)) == bits(world, FedAvg())


def test_a_buffer_for_everyone_is_local_sgd(tiny: Tiny) -> None:
    world = tiny()
    mine, plain = models(world, FedBuff(3, buffer=6)), models(world, LocalSgd(3))
    for one, other in zip(mine, plain, strict=True):
        assert np.abs(one - other).max() < 1e-6
    assert bits(world, FedBuff(3, buffer=2)) != bits(world, LocalSgd(3))


def test_hierfavg_reduces_to_clusters_and_to_local_sgd(tiny: Tiny) -> None:
    class Clusters(Scheme):
        def plan(self, world: World) -> Plan:
            groups = clusters(world)
            return make_plan(self, groups, groups.sample_weights, 3)

    world = tiny(radio__uplink="digital", **UNEVEN)
    assert bits(world, HierFavg(local_updates=3, steps=1)) == bits(world, Clusters())
    mine, plain = models(world, HierFavg(local_updates=1, steps=3)), models(world, LocalSgd(3))
    for one, two in zip(mine, plain, strict=True):
        assert np.abs(one - two).max() < 1e-6


def test_hierfavg_gathers_once_per_average(tiny: Tiny) -> None:
    world = tiny()
    once, often = HierFavg(2, steps=3).plan(world), HierFavg(6, steps=1).plan(world)
    for one, other in zip(once.units, often.units, strict=True):
        assert one.compute_joules == pytest.approx(other.compute_joules)
        assert one.gather_joules == pytest.approx(other.gather_joules / 3)


def test_oort_with_everyone_is_local_sgd(tiny: Tiny) -> None:
    world = tiny(run__rounds=4)
    assert bits(world, Oort(2, share=1.0)) == bits(world, LocalSgd(2))


# Formulas


def test_momentum_against_its_recursion(tiny: Tiny) -> None:
    world = tiny(run__rounds=5, radio__uplink="digital")
    steps: list[np.ndarray] = []

    class Spy(FedAvgM):
        def aggregate(self, view: View, state: State) -> Weights:
            plain = LocalSgd.aggregate(self, view, state)
            steps.append(plain.parameters.astype(float) - view.weights.parameters)
            return super().aggregate(view, state)

    seen = models(world, Spy(2, momentum=0.8, server_rate=0.5))
    x, velocity = seen[0].astype(float), np.zeros(seen[0].size)
    for step, found in zip(steps, seen[1:], strict=True):
        velocity = 0.8 * velocity + step
        x = x + 0.5 * velocity
        assert np.abs(x - found).max() < 1e-6


def test_adam_against_its_recursion(tiny: Tiny) -> None:
    world = tiny(run__rounds=5, radio__uplink="digital")
    steps: list[np.ndarray] = []

    class Spy(FedAdam):
        def aggregate(self, view: View, state: State) -> Weights:
            plain = LocalSgd.aggregate(self, view, state)
            steps.append(plain.parameters.astype(float) - view.weights.parameters)
            return super().aggregate(view, state)

    seen = models(world, Spy(2, server_rate=0.02))
    x = seen[0].astype(float)
    m, v = np.zeros(x.size), np.full(x.size, 1e-6)
    for step, found in zip(steps, seen[1:], strict=True):
        m, v = 0.9 * m + 0.1 * step, 0.99 * v + 0.01 * step**2
        x = x + 0.02 * m / (np.sqrt(v) + 1e-3)
        assert np.abs(x - found).max() < 1e-5


def test_fedbuff_weighs_late_updates_by_their_staleness(tiny: Tiny) -> None:
    staleness: list[int] = []

    class Spy(FedBuff):
        def aggregate(self, view: View, state: State) -> Weights:
            new = super().aggregate(view, state)
            assert len(view.arrived) == 2
            total = sum(a.weight for a in view.arrived)
            step = np.zeros(new.parameters.size)
            for a in view.arrived:
                staleness.append(a.staleness)
                step += 0.7 * a.weight / total * (1 + a.staleness) ** -0.5 * a.update.astype(float)
            assert np.abs(new.parameters - (view.weights.parameters + step)).max() < 1e-6
            return new

    simulate(tiny(run__rounds=25, radio__access="ofdma"), Spy(buffer=2, server_rate=0.7))
    assert max(staleness) >= 3


def test_fedasync_mixes_each_model_as_it_arrives(tiny: Tiny) -> None:
    world = tiny(run__rounds=30, radio__access="ofdma", radio__uplink="digital")
    history: list[np.ndarray] = []
    staleness: list[int] = []

    class Spy(FedAsync):
        def aggregate(self, view: View, state: State) -> Weights:
            history.append(view.weights.parameters.astype(float))
            (one,) = view.arrived
            staleness.append(one.staleness)
            share = 0.8 * (1 + one.staleness) ** -0.5
            # The model it started from is the global one of that many aggregations ago.
            theirs = history[-1 - one.staleness] + one.update.astype(float)
            new = super().aggregate(view, state)
            expected = (1 - share) * history[-1] + share * theirs
            assert np.abs(new.parameters - expected).max() < 1e-6
            return new

    simulate(world, Spy(mixing=0.8))
    assert max(staleness) >= 3


def test_fedasync_with_full_mixing_takes_the_model_that_arrives(tiny: Tiny) -> None:
    world = tiny(run__rounds=1, radio__uplink="digital")
    first = int(np.argmin(FedAsync().plan(world).arrival_seconds))
    before, after = models(world, FedAsync(2, mixing=1.0, decay=0.0, proximal=0.0))
    with build_engine(world) as engine:
        from camu.learning.job import Job

        (alone,) = engine.train(engine.initial, [Job((first,), (1.0,), 2)], 0)
    assert np.abs(after - alone.parameters).max() < 1e-6
    assert not np.array_equal(before, after)


def test_oort_prefers_high_losses_and_short_rounds(tiny: Tiny) -> None:
    scheme = Oort(share=0.5, speed_quantile=1.0)
    world = tiny()
    view = View(
        world=world,
        plan=scheme.plan(world),
        round=4,
        seconds=0.0,
        joules=0.0,
        device_joules=np.zeros(6),
        battery_joules=np.full(6, np.inf),
        weights=None,  # type: ignore[arg-type]
        before=None,  # type: ignore[arg-type]
    )
    state: State = {"loss": np.array([1.0, 2, 3, 4, 5, 6]), "last": np.full(6, 4)}
    samples = world.devices.samples
    bonus = np.sqrt(0.1 * np.log(5) / 5)
    worth, everyone = samples * state["loss"], np.arange(6)
    expected = (worth - 0.999 * worth.min()) / (worth.max() - 0.999 * worth.min()) + bonus
    assert scheme.utility(view, state, everyone) == pytest.approx(expected)
    clipped = np.minimum(worth, np.sort(worth)[3])  # 0.5 of six: the fourth of them
    cut = (clipped - 0.999 * worth.min()) / (worth.max() - 0.999 * worth.min()) + bonus
    assert replace(scheme, clip=0.5).utility(view, state, everyone) == pytest.approx(cut)
    slow = replace(scheme, speed_quantile=0.0)
    seconds = np.array([u.ready_seconds + u.uplink_seconds for u in view.plan.units])
    factor = (seconds.min() / seconds) ** 2
    assert slow.utility(view, state, everyone) == pytest.approx(expected * factor)
    # Without fresh devices, only those at the top can be drawn.
    assert set(scheme.select(view, state)) == {3, 4, 5}
    state["last"][0] = -1
    chosen = list(replace(scheme, exploration=0.9).select(view, state))
    assert 0 in chosen
    assert len(chosen) == 3


def test_every_device_is_tried_before_oort_settles(tiny: Tiny) -> None:
    seen: set[int] = set()

    class Spy(Oort):
        def aggregate(self, view: View, state: State) -> Weights:
            seen.update(a.unit for a in view.arrived)
            assert len(view.arrived) == 2
            return super().aggregate(view, state)

    simulate(tiny(run__rounds=6), Spy(share=1 / 3))
    assert seen == set(range(6))


# Fixed points on quadratics


def quadratic_world(tiny: Tiny, rounds: int = 400) -> World:
    return tiny(
        run__rounds=rounds,
        radio__uplink="digital",
        training__learning_rate=0.1,
        run__eval_every=1000,
        training__max_update_norm=1e9,
        **UNEVEN,
    )


def shares(world: World, scheme: Scheme) -> np.ndarray:
    """How much each device counts in a scheme's objective."""
    found = np.zeros(world.devices.count)
    for unit in scheme.plan(world).units:
        found[list(unit.members)] = unit.weight * np.array(unit.member_weights)
    return found


@pytest.mark.parametrize(
    "scheme",
    [Scaffold(5), ClusterScaffold(5), FedDyn(5, strength=0.5)],
    ids=lambda scheme: scheme.name,
)
def test_the_fixed_point_is_the_optimum_despite_many_updates(tiny: Tiny, scheme: Scheme) -> None:
    world = quadratic_world(tiny)
    found, trainer = ends_at(world, scheme)
    best = trainer.optimum(shares(world, scheme))
    assert np.abs(found - best).max() < 1e-4
    drifted, _ = ends_at(world, LocalSgd(5))
    assert np.abs(drifted - trainer.optimum(shares(world, LocalSgd(5)))).max() > 0.01


@pytest.mark.slow
def test_normalised_updates_take_the_first_order_bias_away(tiny: Tiny) -> None:
    """With unlike counts the optimum moves at any rate; normalised, the error falls with it."""
    plain, nova = ParallelRestartedSgd(), FedNova()
    errors: dict[str, list[float]] = {"pr-sgd": [], "fednova": []}
    for rate in (0.1, 0.01):
        world = tiny(
            run__rounds=int(20 / rate),
            run__eval_every=100000,
            radio__uplink="digital",
            training__learning_rate=rate,
            training__max_update_norm=1e9,
        )
        assert len({unit.local_updates for unit in plain.plan(world).units}) > 1
        for scheme in (plain, nova):
            found, trainer = ends_at(world, scheme)
            best = trainer.optimum(shares(world, scheme))
            errors[scheme.name].append(float(np.abs(found - best).max()))
    assert errors["pr-sgd"][1] > 0.02
    assert errors["fednova"][1] < 0.15 * errors["fednova"][0] + 1e-4
    assert errors["fednova"][1] < 0.1 * errors["pr-sgd"][1]


def test_steps_are_counted_in_batches_where_an_update_is_an_epoch(tiny: Tiny) -> None:
    for settings in ({}, {"training__local_update": "epoch", "training__batch_fraction": 0.25}):
        world = tiny(**settings, **UNEVEN)
        with build_engine(world) as engine:
            for unit in LocalSgd(3).plan(world).units:
                each = engine.batches.per_epoch(unit.members[0]) if settings else 1
                assert gradient_steps(world, unit) == 3 * each


def test_scaffold_estimates_gradients_also_in_epochs(tiny: Tiny) -> None:
    """With one batch per epoch, an epoch is a step."""
    settings = {"training__batch_fraction": 1.0, "radio__uplink": "digital", "run__rounds": 4}
    steps = models(tiny(**settings), Scaffold(3))
    epochs = models(tiny(training__local_update="epoch", **settings), Scaffold(3))
    assert np.abs(steps[-1] - epochs[-1]).max() < 1e-6


# Controls


def test_random_clusters_have_the_sizes_of_the_clusters(tiny: Tiny) -> None:
    world = tiny()
    mine, theirs = RandomClusters().plan(world), Camu().plan(world)
    assert sorted(len(u.members) for u in mine.units) == sorted(
        len(u.members) for u in theirs.units
    )
    assert sorted(k for unit in mine.units for k in unit.members) == list(range(6))
    dealt = {RandomClusters().plan(tiny(run__seed=s)).units[0].members for s in range(8)}
    assert len(dealt) > 3


def test_kmeans_on_labels_does_not_see_the_links(tiny: Tiny) -> None:
    near, far = tiny(), tiny(radio__carrier_hz=5e9)
    own, theirs = LabelKMeans().plan(near), Camu().plan(near)
    assert len(own.units) == len(theirs.units)
    members = [unit.members for unit in own.units]
    if len(Camu().plan(far).units) == len(members):
        assert [unit.members for unit in LabelKMeans().plan(far).units] == members
    # Devices with the same labels are together.
    labels = near.devices.label_counts / near.devices.label_counts.sum(axis=1, keepdims=True)
    place = {k: c for c, group in enumerate(members) for k in group}
    for i in range(6):
        for j in range(6):
            if np.array_equal(labels[i], labels[j]):
                assert place[i] == place[j]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("fedpaq", {}),
        ("two-sided", {}),
        ("oort", {}),
        ("age-scheduling", {}),
        ("fedcs", {}),
        ("round-robin", {}),
        ("best-channel", {}),
        ("proportional-fair", {}),
        ("near-iid-bandit", {"size": 1}),
        ("cost-effective", {"participants": 3, "updates": 1}),
    ],
)
def test_no_device_that_is_empty_for_good_is_drawn(
    tiny: Tiny, name: str, parameters: dict[str, Any]
) -> None:
    kind: Any = SCHEMES[name]
    empty: list[int] = []

    class Watched(kind):  # type: ignore[misc]
        def select(self, view: View, state: State) -> Iterable[int]:
            chosen = list(super().select(view, state))
            members = {view.plan.units[unit].leader for unit in chosen}
            assert len(view.empty) == 6 or not members & view.empty
            empty.append(len(view.empty))
            return chosen

    world = tiny(fleet__battery_joules=0.05, run__rounds=100, run__eval_every=100)
    assert simulate(world, Watched(**parameters)).history.stopped == "batteries empty"
    assert len(set(empty)) > 3


# Partial work


class Updates(Callback):
    """The local updates of each unit in every round, and what the devices have spent after it."""

    def __init__(self) -> None:
        self.updates: list[list[int]] = []
        self.joules: list[np.ndarray] = []

    def on_start(self, run: Run) -> None:
        self.next = [unit.local_updates for unit in run.plan.units]

    def on_round(self, run: Run, record: Record) -> None:
        self.updates.append(self.next)
        self.joules.append(run.device_joules.copy())
        self.next = [unit.local_updates for unit in run.plan.units]


def test_stragglers_of_fedprox_do_and_pay_for_what_was_drawn(tiny: Tiny) -> None:
    world, scheme = tiny(run__rounds=6), FedProx(5, straggler_share=0.5)
    watch = Updates()
    history = simulate(world, scheme, [watch]).history
    count = world.devices.count
    plain = LocalSgd(1).plan(world)
    once = np.array([u.per_update.compute_joules for u in plain.units])
    fixed = np.array([unit.fixed_joules for unit in plain.units])
    drawn = np.array(watch.updates)
    assert drawn.min() >= 1
    assert drawn.max() == 5
    assert (drawn < 5).any()
    assert ((drawn < 5).sum(axis=1) <= round(0.5 * count)).all()  # 5 of 5 may be drawn, too
    assert len({tuple(row) for row in drawn.tolist()}) == len(drawn)  # others in each round
    spent = np.diff(np.array(watch.joules), axis=0, prepend=0.0)
    np.testing.assert_allclose(spent, drawn * once + fixed, rtol=1e-9)
    seconds = np.diff([record.virtual_seconds for record in history.records])
    for updates, took in zip(drawn, seconds, strict=True):
        assert took == pytest.approx(plain.with_updates(updates.tolist()).round_seconds, rel=1e-9)
    forecast = dry_run(world, scheme)
    for dry, real in zip(forecast.records, history.records, strict=True):
        assert dry.joules == pytest.approx(real.joules, rel=1e-9)
        assert dry.virtual_seconds == pytest.approx(real.virtual_seconds, rel=1e-9)


def test_stragglers_are_those_of_the_seed_and_change_the_model(tiny: Tiny) -> None:
    world = tiny(run__rounds=3)
    found = [bits(world, FedProx(4, straggler_share=share)) for share in (0.5, 0.5, 0.9, 0.0)]
    assert found[0] == found[1]
    assert len(set(found)) == 3
    other = tiny(run__rounds=3, run__seed=1)
    plans = [FedProx(4, straggler_share=0.9).plan(own) for own in (world, other)]
    first, second = ([unit.local_updates for unit in plan.units] for plan in plans)
    assert first != second
