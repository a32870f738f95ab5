"""The schemes that optimise or adapt: budgets kept, certified, and what they claim to be."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace as change
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu.planning.groups
import camu.schemes.camu_joint
import camu.schemes.hti
from camu.allocation.p1_exact import solve_exact
from camu.errors import CamuError, InputError
from camu.planning.contribution import extra_updates, gate
from camu.schemes import SCHEMES, FedAvg, Plan, State, View, clusters, make_scheme
from camu.schemes.adaptive_tau import AdaptiveTau, control_value
from camu.schemes.camu_joint import CamuJoint, problem_of
from camu.schemes.compute_rounds import energy_budget
from camu.simulation import simulate
from camu.world import build_world
from helpers.configs import small

noisy = partial(small, radio__noise_dbm=-90.0, run__rounds=4, run__eval_every=2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["camu-joint", "hti"])
def test_budget_is_petrels_round(name: str, seed: int) -> None:
    config = noisy(run__seed=seed)
    world = build_world(config)
    petrel = make_scheme(config, "petrel").plan(world)
    plan = make_scheme(config, name).plan(world)
    assert plan.round_joules <= petrel.round_joules * (1 + 1e-9)
    assert [unit.members for unit in plan.units] == [unit.members for unit in petrel.units]


@pytest.mark.parametrize("name", ["camu-joint", "hti"])
def test_clusters_are_formed_once_and_the_problem_solved_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def count(module: Any, function: str) -> None:
        inner = getattr(module, function)

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[function] += 1
            return inner(*args, **kwargs)

        monkeypatch.setattr(module, function, counted)

    count(camu.planning.groups, "cluster_devices")
    count(camu.schemes.camu_joint, "solve")
    count(camu.schemes.hti, "minimise_arrival_spread")
    config = noisy()
    make_scheme(config, name).plan(build_world(config))
    solver = {"camu-joint": "solve", "hti": "minimise_arrival_spread"}[name]
    assert calls == {"cluster_devices": 1, solver: 1}


@pytest.mark.parametrize("bound", ["theorem1", "corrected"])
@pytest.mark.parametrize("power_law", ["power", "amplitude"])
def test_joint_plan_is_the_certified_answer(bound: str, power_law: str) -> None:
    config = noisy(readings__bound=bound, readings__power_law=power_law)
    world = build_world(config)
    plan = CamuJoint().plan(world)
    answer = plan.allocation
    assert answer is not None
    assert answer.gap < 1e-6
    assert [unit.power_watts for unit in plan.units] == pytest.approx(answer.power_watts)
    assert [unit.local_updates - 1 for unit in plan.units] == answer.extra_updates.tolist()
    uplink = sum(unit.uplink_joules for unit in plan.units)
    updates = sum(unit.compute_joules + unit.gather_joules for unit in plan.units)
    assert uplink + updates == pytest.approx(answer.energy_joules, rel=1e-9)


def test_problem_energy_is_the_plans_energy() -> None:
    """P1 charges exactly what the plan then spends, whatever powers and updates are chosen."""
    world = build_world(noisy())
    groups = clusters(world)
    count = len(groups.members)
    limit = extra_updates(groups.step_seconds, 4)
    problem = problem_of(groups, np.ones(count, bool), limit, 100.0)
    power = np.linspace(0.1, 1.5, count)
    from camu.schemes import make_plan

    plan = make_plan(FedAvg(), groups, groups.contribution_weights, 1 + limit, power)
    assert float(problem.spent_joules(power, limit)) == pytest.approx(plan.round_joules, rel=1e-9)


def test_joint_improves_on_petrels_own_allocation() -> None:
    config = noisy()
    world = build_world(config)
    groups = clusters(world)
    multi = gate(groups.log_contribution, None, 0.5)
    limit = extra_updates(groups.step_seconds, 4)
    problem = problem_of(groups, multi, limit, energy_budget(groups, 4))
    flat = world.devices.power_watts[np.array(groups.leaders)]
    best = solve_exact(problem).objective
    feasible = [
        extra
        for extra in (np.zeros_like(limit), problem.extra_limit)
        if not problem.violations(flat, extra)
    ]
    assert len(feasible) == 2
    for extra in feasible:
        assert best < float(problem.objective(flat, extra))


def unequal_fleet(tmp_path: Path) -> Path:
    """Four pairs of devices; the pairs' power limits differ up to twenty times."""
    path = tmp_path / "fleet.csv"
    rows = ["id,x,y,power_watts,max_power_watts,label_0,label_1"]
    for pair, cap in enumerate((0.1, 0.25, 0.5, 2.0)):
        for device in range(2):
            x = 300 * (pair % 2) + 5 * device + 50
            rows.append(f"d{pair}{device},{x},{300 * (pair // 2) + 50},{cap / 2},{cap},30,10")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_every_leader_has_its_own_power_cap(tmp_path: Path) -> None:
    """With energy to spare the best power of each leader is its own cap, not the weakest one."""
    config = noisy(fleet__file=str(unequal_fleet(tmp_path)), allocation__energy_joules=1e6)
    world = build_world(config)
    plan = make_scheme(config, "camu-joint").plan(world)
    caps = [float(world.devices.max_power_watts[unit.leader]) for unit in plan.units]
    assert len(set(caps)) > 1
    assert [unit.power_watts for unit in plan.units] == pytest.approx(caps)


def test_joint_takes_a_solver_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "joint_solver.py").write_text(
        "from dataclasses import replace\n"
        "from camu.allocation import solve_exact\ndef mine(problem):\n"
        "    return replace(solve_exact(problem), details={'mine': True})\n"
    )
    monkeypatch.chdir(tmp_path)
    config = noisy(allocation__solver="joint_solver:mine")
    answer = make_scheme(config, "camu-joint").plan(build_world(config)).allocation
    assert answer is not None
    assert answer.details == {"mine": True}


def test_hti_plans_at_a_learning_rate_where_the_bound_says_nothing() -> None:
    config = small(radio__noise_dbm=-90.0, training__learning_rate=5.0)
    plan = make_scheme(config, "hti").plan(build_world(config))
    calm = small(radio__noise_dbm=-90.0, training__learning_rate=0.1)
    same = make_scheme(calm, "hti").plan(build_world(calm))
    assert [u.local_updates for u in plan.units] == [u.local_updates for u in same.units]


def test_hti_keeps_each_leaders_power_in_a_fleet_with_unequal_limits(tmp_path: Path) -> None:
    config = noisy(fleet__file=str(unequal_fleet(tmp_path)))
    world = build_world(config)
    plan = make_scheme(config, "hti").plan(world)
    own = [float(world.devices.power_watts[unit.leader]) for unit in plan.units]
    assert len(set(own)) > 1
    assert [unit.power_watts for unit in plan.units] == own


def test_more_energy_never_hurts() -> None:
    world = build_world(noisy())
    spent = energy_budget(clusters(world), 4)
    objectives = [
        CamuJoint().plan(build_world(noisy(allocation__energy_joules=factor * spent))).allocation
        for factor in (0.7, 1.0, 1.5)
    ]
    values = [answer.objective for answer in objectives]
    assert values == sorted(values, reverse=True)


REAL: dict[str, Any] = {
    "fleet__idle_watts": 0.1,
    "radio__circuit_watts": 0.1,
    "radio__downlink": True,
}


@pytest.mark.parametrize("radio", [{}, REAL, {**REAL, "radio__access": "ofdma"}])
def test_impossible_budget_names_one_that_would_do(radio: dict[str, Any]) -> None:
    with pytest.raises(CamuError, match="a budget of 1e-06 J is too small") as caught:
        CamuJoint().plan(build_world(noisy(**radio, allocation__energy_joules=1e-6)))
    assert caught.value.exit_code == 1
    found = re.search(r"small: (\S+) J would do \(allocation.energy", str(caught.value))
    assert found is not None
    budget = float(found[1])
    plan = CamuJoint().plan(build_world(noisy(**radio, allocation__energy_joules=budget)))
    assert 0.9 * budget < plan.round_joules <= budget * (1 + 1e-9)
    with pytest.raises(CamuError, match="too small"):
        CamuJoint().plan(build_world(noisy(**radio, allocation__energy_joules=0.9 * budget)))


@pytest.mark.slow
def test_ppo_plan_is_feasible_and_close() -> None:
    config = noisy(allocation__solver="ppo", allocation__ppo_steps=20_000)
    world = build_world(config)
    plan = CamuJoint().plan(world)
    answer = plan.allocation
    exact = CamuJoint().plan(build_world(noisy())).allocation
    assert answer.energy_joules <= energy_budget(clusters(world), 4) * (1 + 1e-9)
    assert exact.objective <= answer.objective * (1 + 1e-9)
    assert answer.objective <= 1.1 * exact.objective
    kept = plan.to_dict(world)["allocation"]
    assert kept["lower_bound"] == answer.lower_bound
    assert [point[0] for point in kept["learning_curve"]][-1] >= 20_000
    assert "seconds" not in kept


def spread(plan: Plan) -> float:
    """Seconds between the first and the last arrival of a round."""
    return float(plan.arrival_seconds.max() - plan.arrival_seconds.min())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_hti_arrives_closest_together_of_all_counts_within_the_budget(
    access: str, seed: int
) -> None:
    """No other counts near its own, nor one update each, bring the real arrivals closer."""
    config = noisy(radio__access=access, run__seed=seed, radio__d2d="free")
    world = build_world(config)
    hti = make_scheme(config, "hti").plan(world)
    budget = energy_budget(clusters(world), 4)
    counts = np.array([unit.local_updates for unit in hti.units])
    steps = np.vstack([np.eye(len(counts)), -np.eye(len(counts))]).astype(int)
    others = [np.ones_like(counts), *(counts + step for step in steps)]
    others += [np.clip(counts + a + b, 1, 5) for a in steps for b in steps]
    checked = 0
    for other in others:
        if other.min() < 1 or other.max() > 5:
            continue
        plan = hti.with_updates(other.tolist())
        if plan.round_joules <= budget:
            assert spread(hti) <= spread(plan) + 1e-9
            checked += 1
    assert checked > len(counts)
    assert {unit.power_watts for unit in hti.units} == {0.5}


def test_nova_divides_by_steps_and_keeps_the_length() -> None:
    config = noisy(scheme__parameters={"threshold": 0.0})
    world = build_world(config)
    camu, nova = (make_scheme(config, name).plan(world) for name in ("camu", "camu-nova"))
    mean = sum(unit.weight * unit.local_updates for unit in camu.units)
    for a, b in zip(camu.units, nova.units, strict=True):
        assert b.update_scale == pytest.approx(mean / a.local_updates)
        assert change(b, update_scale=1.0) == a


def test_nova_with_equal_steps_changes_nothing() -> None:
    config = noisy(scheme__parameters={"max_extra_updates": 0})
    world = build_world(config)
    runs = [simulate(world, make_scheme(config, name)).history for name in ("camu", "camu-nova")]
    assert runs[0].weights_sha256 == runs[1].weights_sha256


def test_control_value_against_its_definition() -> None:
    """h(tau) and the bound written out with plain powers, as in the original."""
    rho, beta, delta, rate, phi, c, b, budget = 1.2, 3.0, 0.7, 0.05, 0.025, 0.4, 1.1, 50.0
    for tau in (1, 2, 5, 20):
        h = delta / beta * ((rate * beta + 1) ** tau - 1) - rate * delta * tau
        s = (c * tau + b) / ((budget - b - c) * tau)
        expected = (
            s / (2 * rate * phi)
            + (s**2 / (4 * rate**2 * phi**2) + rho * h / (rate * phi * tau)) ** 0.5
            + rho * h
        )
        got = control_value(tau, (rho, beta, delta), (c, b, budget), rate, phi)
        assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_adaptive_tau_adapts_reproducibly_and_within_limits() -> None:
    config = noisy(scheme__name="adaptive-tau", run__rounds=5)
    world = build_world(config)
    seen: list[int] = []

    class Spy(AdaptiveTau):
        def revise(self, view: View, state: State) -> Plan | None:
            plan = super().revise(view, state)
            assert plan is not None
            updates = {unit.local_updates for unit in plan.units}
            assert len(updates) == 1
            seen.append(updates.pop())
            return plan

    first = simulate(world, Spy()).history
    assert len(seen) == first.final.round
    assert first.stopped == "scheme"  # its budget was spent before the fifth round
    assert all(1 <= after <= 10 * before for before, after in itertools.pairwise([1, *seen]))
    again = simulate(build_world(config.replace({"machine.workers": 2})), Spy()).history
    assert again.weights_sha256 == first.weights_sha256
    budget = 5 * Spy().plan(world).round_joules
    assert first.final.total_joules <= budget * (1 + 1e-12)  # the whole budget


def test_expensive_aggregation_asks_for_more_local_steps() -> None:
    def best(fixed: float) -> int:
        values = [
            control_value(tau, (1.0, 1.0, 0.5), (0.01, fixed, 100.0), 0.05, 0.025)
            for tau in range(1, 30)
        ]
        return 1 + int(np.argmin(values))

    assert best(0.001) <= best(0.1) <= best(10.0)
    assert best(0.001) < best(10.0)


@pytest.mark.slow
def test_all_schemes_run_on_the_same_world() -> None:
    config = noisy(run__rounds=2, data__samples_per_device=30)
    world = build_world(config)
    for name in SCHEMES:
        history = simulate(world, make_scheme(config, name)).history
        assert history.final.round == 2 or history.stopped == "scheme"
        assert history.final.loss is not None  # a model that blew up has none


ONE_CLUSTER = {"clustering__count": 1, "clustering__min_link_snr_db": -300.0}


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("seed", range(3))
def test_on_a_shared_medium_no_move_of_one_update_brings_hti_s_arrivals_closer(
    access: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(run__seed=seed, radio__access=access, radio__d2d="shared")
    world, scheme = build_world(config), make_scheme(config, "hti")
    plan = scheme.plan(world)
    budget, most = energy_budget(clusters(world), 4), 5
    assert plan.round_joules <= budget * (1 + 1e-9)
    counts = plan.column("local_updates")
    spread = np.ptp(plan.arrival_seconds)
    first, last = int(plan.arrival_seconds.argmin()), int(plan.arrival_seconds.argmax())
    for unit, step in ((first, 1), (last, -1)):
        other = counts + step * (np.arange(len(counts)) == unit)
        moved = plan.with_updates(np.clip(other, 1, most).tolist()).repriced(world)
        if moved.round_joules <= budget:
            assert np.ptp(moved.arrival_seconds) >= spread * (1 - 1e-9)
    monkeypatch.setattr(camu.schemes.hti, "_closer", lambda costs, access, extra, *rest: extra)
    assert spread <= np.ptp(scheme.plan(world).arrival_seconds) * (1 + 1e-12)


@pytest.mark.parametrize("name", ["hti", "hti-dynamic"])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("settings", [{"scheme__parameters__max_extra_updates": 0}, ONE_CLUSTER])
def test_hti_is_not_refused_by_rounding(settings: dict[str, Any], seed: int, name: str) -> None:
    """The budget is what one update of each cluster costs, up to the last digit."""
    config = small(run__seed=seed, **settings)
    plan = make_scheme(config, name).plan(build_world(config))
    assert {unit.local_updates for unit in plan.units} == {1}


@pytest.mark.parametrize("name", ["hti", "hti-dynamic"])
@pytest.mark.parametrize("radio", [{}, REAL, {"radio__carrier_sense_dbm": -60.0, **REAL}])
def test_hti_names_the_energy_that_one_update_of_each_cluster_takes(
    radio: dict[str, Any], name: str
) -> None:
    """With waits for the medium, idle power and interference, so that it is enough."""
    config = small(**radio)
    once = make_scheme(config, name).plan(build_world(config))
    once = once.with_updates([1] * len(once.units)).repriced(build_world(config))
    config = small(**radio, allocation__energy_joules=0.5 * once.round_joules)
    with pytest.raises(CamuError, match=f"takes {once.round_joules:.6f}"[:-1]):
        make_scheme(config, name).plan(build_world(config))
    config = small(**radio, allocation__energy_joules=once.round_joules)
    plan = make_scheme(config, name).plan(build_world(config))
    assert plan.round_joules == pytest.approx(once.round_joules, rel=1e-9)


def test_hti_refuses_leaders_with_more_power_than_all_may_have() -> None:
    config = small(allocation__max_total_power_watts=0.6)
    with pytest.raises(InputError, match=r"max_total_power_watts = 0\.6: the leaders' own powers"):
        make_scheme(config, "hti").plan(build_world(config))


@pytest.mark.parametrize("name", ["hti", "hti-dynamic"])
@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("share", [1.05, 1.15, 1.5])
def test_what_leaders_spend_listening_is_part_of_the_budget(
    name: str, access: str, share: float
) -> None:
    settings = {
        "radio__downlink": True,
        "radio__receive_watts": 2.0,
        "radio__access": access,
        "fleet__cpu_hz": (2e8, 2e9),
    }
    least = make_scheme(small(), "clustered").plan(build_world(small(**settings))).round_joules
    config = small(**settings, allocation__energy_joules=share * least)
    plan = make_scheme(config, name).plan(build_world(config))
    assert least <= plan.round_joules <= share * least * (1 + 1e-9)
    assert share < 1.5 or max(unit.local_updates for unit in plan.units) > 1


@pytest.mark.parametrize("gap_db", [0.0, 3.0])
def test_p1_counts_circuits_amplifiers_gaps_and_capped_rates_as_the_plan_does(
    gap_db: float,
) -> None:
    radio = {
        "radio__circuit_watts": 0.1,
        "radio__amplifier_efficiency": 0.35,
        "radio__snr_gap_db": gap_db,
        "radio__max_bits_per_hz": 7.4,
        "radio__d2d": "free",
    }
    world = build_world(small(**radio))
    scheme, groups = CamuJoint(), clusters(world)
    problem, plan = scheme.problem(groups), scheme.plan(world)
    power, extra = plan.column("power_watts"), plan.column("local_updates") - 1
    assert problem.spent_joules(power, extra) == pytest.approx(plan.round_joules, rel=1e-9)
    # No power above that of the highest rate, none below the cheapest.
    snr = power * problem.gain / world.links.share(len(power)).noise_watts / 10 ** (gap_db / 10)
    assert (np.log2(1 + snr) <= 7.4 * (1 + 1e-9)).all()
    assert (power >= problem.cheapest_watts * (1 - 1e-9)).all()
    assert plan.allocation is not None
    assert plan.allocation.lower_bound <= plan.allocation.objective


def test_p1_does_not_limit_all_powers_where_a_leader_has_a_cheapest_one() -> None:
    config = small(radio__circuit_watts=0.1, allocation__max_total_power_watts=3.0)
    with pytest.raises(InputError, match=r"camu-joint: .* unset allocation.max_total_power_watts"):
        CamuJoint().plan(build_world(config))


@pytest.mark.parametrize("noise_dbm", [-100.0, -90.0, -80.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_compute_rounds_spends_is_enough_for_camu_joint(noise_dbm: float, seed: int) -> None:
    """Also with idle power, whose share depends on how long the round of the answer is."""
    keys = {"radio.noise_dbm": noise_dbm, "radio.uplink": "hybrid", "run.seed": seed}
    world = camu.build_world(camu.load_config(preset="demo", overrides=keys))
    assert world.config.fleet.idle_watts > 0
    budget = camu.plan(SCHEMES["compute-rounds"](), world).round_joules
    assert camu.plan(SCHEMES["camu-joint"](), world).round_joules <= budget * (1 + 1e-9)
