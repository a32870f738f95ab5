"""camu-auto: its prices are those of plans, its search moves to the best, its switches switch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import camu
from camu.errors import InputError
from camu.learning.job import LocalRule
from camu.planning.air import ALIGNED
from camu.planning.codecs import Quantised
from camu.planning.groups import assess, make_plan
from camu.schemes import CamuAuto, FedSgd
from camu.schemes.auto_pilot import Found, look_around
from camu.schemes.camu_auto import OFF
from camu.schemes.designs import Design, codec_of, cohorts_of
from camu.schemes.levers import Levers, Training, amplified, levels_of, noise_power, reached
from camu.seeding import derive
from camu.simulation import Callback, Record, Run
from camu.simulation.dry_run import dry_run
from camu.world import World

SMALL: dict[str, Any] = {
    "fleet.devices": 8,
    "data.samples_per_device": 20,
    "data.noniid_devices": 6,
    "training.model": "logistic",
    "training.normalisation": "none",
    "run.rounds": 1000,
    "run.max_joules": 4.0,
    "run.eval_every": 1000,
    "machine.workers": 1,
}


def world_of(**keys: Any) -> World:
    return camu.build_world(camu.load_config(preset="demo", overrides={**SMALL, **keys}))


class Last(Callback):
    """The plan and the state at the end of a run."""

    def on_round(self, run: Run, record: Record) -> None:
        self.plan, self.state = run.plan, dict(run.state)


def cohort_plans(scheme: CamuAuto, world: World, design: Design) -> list[camu.Plan]:
    """A plan of each cohort by itself."""
    groups, levers = design.groups, design.levers
    part = np.zeros(len(groups), dtype=int)
    if levers.cohorts > 1:
        part = cohorts_of(world, groups.members, levers.cohorts)
    found = []
    for number in range(levers.cohorts):
        own = np.flatnonzero(part == number)
        members = [groups.members[k] for k in own]
        some = assess(world, members, [groups.leaders[k] for k in own])
        rule, codec = LocalRule(steps=levers.steps), codec_of(levers.bits)
        power, weights = design.power_watts[own], some.sample_weights
        plan = make_plan(scheme, some, weights, levers.gathers, power, rule=rule, codec=codec)
        plan = plan.over_the_air(ALIGNED).repriced(world) if levers.air else plan
        found.append(plan.with_dvfs(world) if scheme.dvfs else plan)
    return found


@pytest.mark.parametrize(
    ("parameters", "keys"),
    [
        ({}, {}),
        ({"dvfs": False, "structure": "near-iid", "cohorts": 2}, {"radio.access": "ofdma"}),
        ({"structure": "near-iid", "gathers": 2, "steps": 3}, {}),
        ({"structure": "dual-segment", "cohorts": 1}, {"radio.downlink": True}),
        ({}, {"radio.uplink": "analog", "radio.noise_dbm": -80.0}),
    ],
)
def test_the_price_of_a_design_is_that_of_its_plans(
    parameters: dict[str, Any], keys: dict[str, Any]
) -> None:
    world, scheme = world_of(**keys), CamuAuto(**parameters)
    design = scheme.design(world)
    plans = cohort_plans(scheme, world, design)
    assert design.joules == pytest.approx(np.mean([one.round_joules for one in plans]), rel=1e-9)
    assert design.seconds == pytest.approx(np.mean([one.round_seconds for one in plans]), rel=1e-9)
    assert design.rounds == pytest.approx(4.0 / design.joules)


def test_no_lever_alone_gets_farther() -> None:
    """With single devices nobody waits for the medium, so that the search knows exact prices."""
    world = world_of()
    scheme = CamuAuto(structure="devices")
    best = scheme.design(world)
    for name, values in {
        "cohorts": (1, 2, 3, 4),
        "steps": (1, 2, 3, 5, 8),
        "bits": (2, 4, 8, 32),
        "momentum": (0.0, 0.5, 0.7, 0.9),
    }.items():
        for value in values:
            fixed = replace(best.levers, **{name: value})
            other = replace(
                scheme, **{key: getattr(fixed, key) for key in ("cohorts", "steps", "bits")}
            )
            found = replace(other, momentum=fixed.momentum).design(world)
            assert found.worth <= best.worth * (1 + 1e-9), (name, value)


def test_each_budget_has_a_design_of_its_own() -> None:
    """The design for joules gets less far within seconds, and the other way round."""
    worlds = [world_of(), world_of(**{"run.max_joules": None, "run.max_virtual_seconds": 2.0})]
    scheme = CamuAuto()
    designs = [scheme.design(world) for world in worlds]
    for world, own, other in zip(worlds, designs, reversed(designs), strict=True):
        search = scheme._search(world, None, scheme.goal(world), None)
        found = search.design(own.structure, replace(own.levers, power=other.levers.power), True)
        assert found.worth < own.worth
    assert designs[1].power_watts.max() > 2 * designs[0].power_watts.max()


@pytest.mark.parametrize("lever", OFF)
def test_each_lever_is_switched_off_alone(lever: str) -> None:
    world = world_of()
    design = CamuAuto(**OFF[lever]).design(world)
    own, leaders = design.levers, np.array(design.groups.leaders)
    off = {
        "structure": all(len(one) == 1 for one in design.groups.members),
        "participation": own.cohorts == 1,
        "gathers": own.gathers == 1,
        "steps": own.steps == 1,
        "codec": own.bits == 32,
        "power": (design.power_watts == world.devices.power_watts[leaders]).all(),
        "frequencies": camu.plan(CamuAuto(dvfs=False), world).dvfs == "none",
        "learning rate": own.rate == 1.0,
        "momentum": own.momentum == 0.0,
        "over the air": not own.air,
    }
    assert off[lever]


def test_what_levers_are_worth_is_what_is_lost_without_them() -> None:
    world, scheme = world_of(), CamuAuto()
    whole = scheme.design(world).worth
    found = {one.lever: one for one in scheme.worth(world)}
    assert list(found) == list(OFF)
    codec = replace(scheme, bits=32).design(world).worth
    assert found["codec"].lost == pytest.approx(1 - codec / whole)
    assert found["learning rate"].lost == 0.0  # before a pilot it stays as configured
    assert max(one.lost for one in found.values()) > 0.1


def test_momentum_makes_the_mean_step_longer() -> None:
    """Against the sum of velocities, round by round."""
    for momentum in (0.0, 0.5, 0.9):
        for rounds in (1, 2, 7, 40):
            velocity, way = 0.0, 0.0
            for _ in range(rounds):
                velocity = momentum * velocity + 1.0
                way += velocity
            assert amplified(momentum, rounds) == pytest.approx(way / rounds)


def test_the_noise_of_a_codec_is_not_above_its_formula() -> None:
    """The measured variance of rounded updates, whose shape is known."""
    update = derive(3, "own-update").numpy().standard_t(3, 2000).astype(np.float32)
    norm = float(np.linalg.norm(update))
    training = Training(step=0.5, spread=8.0, shape=float(np.abs(update).sum()) / norm)
    for bits in (2, 3, 4, 5, 8):
        codec = Quantised(levels_of(bits))
        errors = [
            float(
                np.square(codec.encode(update, None, derive(3, "own-codec", n))[0] - update).sum()
            )
            for n in range(20)
        ]
        ratio = np.mean(errors) / norm**2
        assert 0.5 * ratio < training.codec_noise(bits, len(update)) < 2.5 * ratio
    assert training.codec_noise(32, len(update)) == 0.0


def test_noise_and_long_steps_take_from_what_is_reached() -> None:
    world = world_of()
    design = CamuAuto(structure="devices").design(world)
    search = CamuAuto()._search(world, None, CamuAuto().goal(world), None)
    calm = Training(step=0.2, spread=4.0, shape=10.0)

    def far(levers: Levers, training: Training = calm) -> float:
        makeup = search.makeup(design.groups, levers)
        return reached(levers, training, makeup, float(levers.steps), 650, 50.0)

    plain = Levers()
    assert far(replace(plain, bits=2)) < far(plain)
    assert far(replace(plain, cohorts=4)) < far(plain)
    assert far(plain, replace(calm, spread=40.0)) < far(plain)
    assert far(replace(plain, rate=2.0)) > far(plain)
    assert far(replace(plain, rate=40.0)) < far(plain)  # diverges
    assert far(replace(plain, momentum=0.5)) > far(plain)
    makeup = search.makeup(design.groups, plain)  # everyone: what is left is the chance of batches
    distance = makeup.device_distance
    assert noise_power(plain, calm, makeup, 1, 650) == pytest.approx(4.0 * (1 - distance) / 8)


class Looking(FedSgd):
    """Only the pilot."""

    def pilot(self, pilot: camu.schemes.Pilot, state: camu.schemes.State) -> None:
        self.found.append(look_around(pilot, self))

    found: list[Found] = []  # noqa: RUF012


def test_the_pilot_finds_the_curvature_of_its_batches() -> None:
    """A loss that is a square: the curvature does not depend on where the pilot looks."""
    Looking.found.clear()
    for rate in (0.01, 0.02):
        keys = {"training.learning_rate": rate, "run.rounds": 1, "run.max_joules": None}
        camu.simulate(world_of(**keys), Looking())
    one, two = (found.training for found in Looking.found)
    assert one is not None
    assert two is not None
    assert two.step == pytest.approx(2 * one.step, rel=0.05)
    assert two.spread == pytest.approx(one.spread, rel=1e-4)
    assert two.shape == pytest.approx(one.shape, rel=1e-4)
    assert one.spread > 1.0
    assert 1.0 < one.shape < np.sqrt(650)


def test_the_pilot_is_charged_and_its_steps_are_kept() -> None:
    last, keys = Last(), {"run.max_joules": 1.0}
    history = camu.simulate(world_of(**keys), CamuAuto(), [last]).history
    first, dry = history.records[0], dry_run(world_of(**keys), CamuAuto(), 1).records[0]
    assert first.total_joules == pytest.approx(dry.total_joules, rel=1e-9)
    assert 0 < first.total_joules < 0.5 * history.final.total_joules
    once = world_of(**{"run.rounds": 1})
    plain = camu.simulate(once, CamuAuto(measure=False)).history.records[0]
    assert plain.total_joules == 0
    assert first.loss is not None
    assert plain.loss is not None
    assert first.loss < plain.loss
    assert last.state["cohorts"] >= 1


def test_cohorts_take_turns_and_cover_everyone() -> None:
    class Units(Callback):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def on_round(self, run: Run, record: Record) -> None:
            self.seen.append(record.units)

    units, scheme = Units(), CamuAuto(structure="devices", cohorts=3, measure=False)
    keys = {"run.rounds": 3, "run.max_joules": None}
    world = world_of(**keys)
    camu.simulate(world, scheme, [units])
    part = cohorts_of(world, [(k,) for k in range(8)], 3)
    assert units.seen[-3:] == np.bincount(part).tolist()
    assert sum(units.seen[-3:]) == 8


def test_units_send_at_once_only_where_the_server_receives_analogue_signals() -> None:
    analog = {"radio.uplink": "analog", "training.model": "cnn", "radio.bandwidth_hz": 1e5}
    assert CamuAuto().design(world_of(**analog)).levers.air
    assert camu.plan(CamuAuto(), world_of(**analog)).air is not None
    assert not CamuAuto(over_the_air=False).design(world_of(**analog)).levers.air
    assert not CamuAuto().design(world_of(**{"training.model": "cnn"})).levers.air
    history = camu.simulate(world_of(**analog, **{"run.rounds": 2}), CamuAuto()).history
    assert history.final.round > 0


def test_the_bound_chooses_shorter_steps_than_the_price() -> None:
    """It promises something for every smooth loss, so that it trusts no long step."""
    training = Training(step=0.5, spread=8.0, shape=10.0, square=0.5, loss=2.3)
    world = world_of()
    price, bound = (
        CamuAuto(predictor=own).design(world, training)  # type: ignore[arg-type]
        for own in ("price", "bound")
    )
    assert bound.levers.rate * bound.levers.steps < price.levers.rate * price.levers.steps
    assert bound.worth > 0


def test_the_plan_command_says_why(camu: Callable[..., Any]) -> None:
    settings = [part for key in SMALL for part in ("--set", f"{key}={json.dumps(SMALL[key])}")]
    command = ("plan", "--preset", "demo", "--scheme", "camu-auto", *settings)
    printed = camu(*command).out
    assert "Why: what each lever is worth" in printed
    document = json.loads(camu(*command, "--json").out)
    assert [one["lever"] for one in document["levers"]] == list(OFF)


def test_without_progress_there_is_no_plan() -> None:
    with pytest.raises(InputError, match="camu-auto: no design makes progress"):
        CamuAuto(steps=8, drift=50.0).design(world_of())
