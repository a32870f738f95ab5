"""camu-p2: the run spends what P2's answer says, and never more than its budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import camu
from camu.data.batches import batch_samples
from camu.errors import CamuError, InputError
from camu.schemes import SCHEMES
from camu.simulation import Callback, Record, Run
from camu.simulation.dry_run import round_cost
from camu.world import World
from helpers.configs import IDEAL, small

CamuP2 = SCHEMES["camu-p2"]
BUDGETS = {"run.max_joules": 12.0, "run.max_virtual_seconds": 14.0, "run.rounds": 1000}
FAST = {"training.model": "logistic", "run.eval_every": 1000, "machine.workers": 1}
# P2 knows all that costs something in these.
KNOWN: dict[str, dict[str, Any]] = {
    "free medium": {},
    "noise": {"radio.uplink": "hybrid", "radio.noise_dbm": -80.0},
    "circuits and amplifiers": {"radio.circuit_watts": 0.1, "radio.amplifier_efficiency": 0.35},
    "codes": {"radio.snr_gap_db": 3.0, "radio.max_bits_per_hz": 7.4},
    "4 bits, unequal data": {
        "radio.bits_per_parameter": 4,
        "data.partition": "dirichlet",
        "data.size_exponent": 0.7,
        "data.with_replacement": True,
    },
    "boards": {"fleet.cycles_per_sample": "auto", "fleet.cpu_hz": (2e8, 2e9)},
}
# And something more in these.
MORE: dict[str, dict[str, Any]] = {
    "shared medium": {"radio.d2d": "shared"},
    "static and idle power": {"fleet.static_watts": 0.2, "fleet.idle_watts": 0.05},
    "real devices, slow-down of all": {
        "fleet.static_watts": 0.2,
        "fleet.idle_watts": 0.05,
        "fleet.min_hz": 1e8,
        "fleet.dvfs": True,
        "radio.d2d": "shared",
        "radio.receive_watts": 0.1,
    },
}


class Last(Callback):
    """The plan and the state at the end of a run."""

    def on_round(self, run: Run, record: Record) -> None:
        self.plan, self.state = run.plan, dict(run.state)


def world_of(**keys: Any) -> World:
    base = {**IDEAL, "radio.d2d": "free", **FAST, **BUDGETS, **keys}
    return camu.build_world(camu.load_config(preset="demo", overrides=base))


def run_of(world: World, scheme: Any) -> tuple[camu.History, Last]:
    last = Last()
    return camu.simulate(world, scheme, [last]).history, last


@pytest.mark.parametrize("where", KNOWN)
def test_the_run_spends_what_the_answer_says(where: str) -> None:
    history, last = run_of(world_of(**KNOWN[where]), CamuP2(models=2))
    pilot, final, state = history.records[0], history.final, last.state
    assert history.stopped == "scheme"
    assert final.round == state["rounds"] > 2
    spent = final.total_joules - pilot.total_joules
    seconds = final.virtual_seconds - pilot.virtual_seconds
    assert spent == pytest.approx(state["joules"], rel=1e-9)
    assert seconds == pytest.approx(state["seconds"], rel=1e-9)
    # A whole number of rounds leaves less than one of them over, in one of the budgets.
    rounds = state["rounds"]
    over = min((12.0 - final.total_joules) / spent, (14.0 - final.virtual_seconds) / seconds)
    assert -1e-9 <= over * rounds < 1


@pytest.mark.parametrize("where", MORE)
def test_what_p2_does_not_know_is_paid_from_its_budgets(where: str) -> None:
    history, last = run_of(world_of(**MORE[where]), CamuP2(models=2))
    final = history.final
    assert final.round == last.state["rounds"]
    assert max(final.total_joules / 12.0, final.virtual_seconds / 14.0) > 0.7
    assert final.total_joules <= 12.0 * (1 + 1e-9)
    assert final.virtual_seconds <= 14.0 * (1 + 1e-9)


def test_devices_run_at_the_frequencies_of_the_answer() -> None:
    """All members of a unit take the same time, and all units are ready at the same moment."""
    world = world_of()
    _, last = run_of(world, CamuP2(models=2))
    ready = []
    for unit in last.plan.units:
        assert unit.dvfs is not None
        own = list(unit.members)
        batch = batch_samples(world.config.training.batch, world.devices.samples)[own]
        seconds = world.devices.cycles_per_sample[own] * batch / np.array(unit.dvfs.cpu_hz)
        slowest = float(seconds.max())
        assert seconds == pytest.approx(slowest, rel=1e-9)
        ready.append(unit.local_updates * (slowest + unit.per_update.gather_seconds))
    assert ready == pytest.approx([max(ready)] * len(ready), rel=1e-6)


def test_the_pilot_is_charged_and_its_last_model_is_the_first_of_the_run() -> None:
    world = world_of()
    few, many = (run_of(world, CamuP2(models=n))[0].records[0] for n in (2, 4))
    assert many.total_joules == pytest.approx(2 * few.total_joules)
    assert many.virtual_seconds == pytest.approx(2 * few.virtual_seconds)
    assert many.loss is not None
    assert few.loss is not None
    assert many.loss < few.loss  # it has followed the gradient for longer


def test_the_bounds_rate_is_slower() -> None:
    world = world_of(**{"training.learning_rate": 1.0})
    plans = [run_of(world, CamuP2(models=2, bound_rate=own))[1].plan for own in (False, True)]
    assert {unit.rule.rate for unit in plans[0].units} == {1.0}
    assert max(unit.rule.rate for unit in plans[1].units) < 1.0


def test_without_max_the_least_joules_and_seconds_are_the_budgets() -> None:
    asked = {"run.max_joules": None, "run.max_virtual_seconds": None}
    least = {"run.min_joules": 12.0, "run.min_virtual_seconds": 14.0}
    states = [run_of(world_of(**keys), CamuP2(models=2))[1].state for keys in ({}, asked | least)]
    assert states[0] == states[1]


def test_a_dry_run_knows_the_pilot_and_one_update() -> None:
    world, scheme = world_of(), CamuP2(models=2)
    plan = camu.plan(scheme, world)
    cost = round_cost(world, scheme, plan)
    assert cost.guessed
    assert cost.pilot_joules == pytest.approx(run_of(world, scheme)[0].records[0].total_joules)
    assert cost.joules == pytest.approx(plan.round_joules)


def test_a_budget_that_the_pilot_uses_up_is_refused_in_words() -> None:
    with pytest.raises(CamuError, match=r"scheme camu-p2: its pilot takes .* lower"):
        run_of(world_of(**{"run.max_joules": 0.1}), CamuP2())


@pytest.mark.parametrize(
    ("key", "value"),
    [("radio.access", "ofdma"), ("radio.downlink", True), ("radio.uplink", "analog")],
)
def test_what_p2_cannot_say_is_refused(key: str, value: Any) -> None:
    world = camu.build_world(small().replace({key: value}))
    with pytest.raises(InputError, match=f"scheme camu-p2: .*{key}"):
        camu.plan(CamuP2(), replace(world))
