"""Dry runs: what the real loop costs, without training."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
from camu.schemes import SCHEMES, FedAvg, Scheme, State, View, make_scheme, plans
from camu.simulation import History, simulate
from camu.simulation.dry_run import battery_life, dry_run, round_cost
from camu.world import World, build_world
from helpers.configs import IDEAL

# Schemes that decide by losses, by updates or by what they try out before the first round.
BY_TRAINING = {"adaptive-tau", "age-scheduling", "camu-auto", "camu-p2", "cost-effective"}
BY_TRAINING |= {"fedsa", "oort"}


def demo(name: str, **changes: Any) -> tuple[World, Scheme]:
    settings = {"scheme.name": name, "run.rounds": 5, "run.eval_every": 100, **changes}
    config = load_config(preset="demo", overrides=settings)
    return build_world(config), make_scheme(config)


def costs(history: History) -> list[tuple[object, ...]]:
    return [
        (r.virtual_seconds, r.joules, r.bits, r.units, r.waiting_seconds, r.faults, r.empty)
        for r in history.records
    ]


@pytest.mark.parametrize("name", SCHEMES)
def test_a_dry_run_costs_what_a_run_costs(name: str) -> None:
    world, scheme = demo(name)
    cost = round_cost(world, scheme, plans.plan(scheme, world))
    assert cost.guessed == (name in BY_TRAINING)
    if cost.guessed:
        return
    dry, real = dry_run(world, scheme), simulate(world, scheme).history
    if scheme.family == "over the air":  # what is radiated depends on the updates; less is spent
        assert all(
            one.joules.pop("transmit") >= other.joules.pop("transmit")
            for one, other in zip(dry.records, real.records, strict=True)
        )
        assert costs(dry) == costs(real)
        return
    assert costs(dry) == costs(real)
    assert dry.stopped == real.stopped
    first, last = real.records[0], real.final
    assert cost.seconds == pytest.approx((last.virtual_seconds - first.virtual_seconds) / 5)
    assert cost.joules == pytest.approx((last.total_joules - first.total_joules) / 5)
    sent = ((last.total_bits or 0) - (first.total_bits or 0)) / 5
    assert cost.megabytes == pytest.approx(sent / 8e6)


HARD: dict[str, Any] = {
    "radio.fading": "rayleigh",
    "radio.downlink": True,
    "radio.outage_snr_db": 35.0,
    "faults.dropout_probability": 0.1,
    "faults.corrupt_probability": 0.1,
    "fleet.battery_joules": 0.3,
    "fleet.dvfs": True,
    "clustering.leader": "rotating",
    "clustering.rotate_every": 2,
    "run.rounds": 25,
}


@pytest.mark.parametrize("name", ["camu", "fedpaq", "near-iid-bandit"])
@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_a_dry_run_has_the_same_faults_fading_batteries_and_leaders(name: str, access: str) -> None:
    world, scheme = demo(name, **{**IDEAL, **HARD, "radio.access": access})
    dry, real = dry_run(world, scheme), simulate(world, scheme).history
    assert costs(dry) == costs(real)
    assert sum(record.faults["outages"] for record in real.records) > 0
    assert sum(record.faults["absent"] for record in real.records) > 0
    assert (real.final.empty > 0) == (name == "camu")
    assert dry.devices is not None
    assert real.devices is not None
    np.testing.assert_array_equal(dry.devices.left_joules, real.devices.left_joules)


def test_asynchronous_rounds_have_the_same_arrivals() -> None:
    changes = {**IDEAL, **HARD, "faults.corrupt_probability": 0.0, "radio.outage_snr_db": None}
    del changes["clustering.leader"], changes["clustering.rotate_every"]
    for name in ("fedbuff", "fedat"):
        world, scheme = demo(name, **changes)
        assert costs(dry_run(world, scheme)) == costs(simulate(world, scheme).history)


@pytest.mark.parametrize("name", ["fedpaq", "near-iid-bandit"])
def test_the_battery_of_a_device_that_is_drawn_lasts_longer(name: str) -> None:
    """A forecast that counts every unit in every round would be wrong by half."""
    world, scheme = demo(name, **{"fleet.battery_joules": 0.25, "run.rounds": 90})
    found = battery_life(world, scheme, plans.plan(scheme, world))
    real = simulate(world, scheme).history
    assert real.devices is not None
    reached = real.devices.empty_round
    assert reached.max() > 0
    known = (reached >= 0) & (reached < 90)
    np.testing.assert_array_equal(found.empty_round[known], reached[known])


def test_long_lives_are_forecast_in_stretches() -> None:
    for name, changes in (("fedavg", {}), ("camu", {"clustering.leader": "rotating"})):
        world, scheme = demo(name, **{"fleet.battery_joules": 3000.0, **changes})
        plan = plans.plan(scheme, world)
        began = time.process_time()
        found = battery_life(world, scheme, plan)
        assert time.process_time() - began < 10
        rounds = world.devices.battery_joules.sum() / plan.round_joules
        assert (found.empty_round > 0).all()
        assert 0.2 * rounds < found.empty_round.mean() < 5 * rounds


def test_a_hundred_rounds_of_thirty_devices_take_well_under_a_second() -> None:
    config = load_config(preset="study", overrides={"scheme.name": "fedavg"})
    world = build_world(config)
    dry_run(world, FedAvg(), 1)  # loads what it needs
    began = time.process_time()
    history = dry_run(world, FedAvg(), 100)
    assert history.final.round == 100
    assert history.evaluated == []
    assert time.process_time() - began < 1.0


class Losses(FedAvg):
    """Starts fewer units when the loss is small."""

    def select(self, view: View, state: State) -> list[int]:
        return list(view.idle) if state.get("loss", 1.0) >= 1.0 else [0]

    def revise(self, view: View, state: State) -> None:
        state["loss"] = float(np.mean([arrival.loss for arrival in view.arrived]))


def test_a_scheme_of_ones_own_that_looks_at_losses_is_noticed() -> None:
    world, _ = demo("fedavg")
    plan = plans.plan(Losses(), world)
    assert round_cost(world, Losses(), plan).guessed
    assert not round_cost(world, FedAvg(), plan).guessed


def test_plan_says_what_a_round_costs_in_a_run(camu: Any) -> None:
    """near-iid-bandit draws a few devices per round; its plan used to cost all of them."""
    done = camu("plan", "--preset", "demo", "--scheme", "near-iid-bandit", "--json").out
    found = json.loads(done)
    world, scheme = demo("near-iid-bandit", **{"run.rounds": found["forecast"]["rounds"]})
    final = simulate(world, scheme).history.final
    assert found["round_joules"] * final.round == pytest.approx(final.total_joules)
    assert found["round_seconds"] * final.round == pytest.approx(final.virtual_seconds)
    assert "a round of all units takes" in plans.plan(scheme, world)._repr_html_()
    text = camu("plan", "--preset", "demo", "--scheme", "oort").out
    assert "oort decides by what training shows" in text
