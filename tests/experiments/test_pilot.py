"""P2 of a plan with measured constants: what the pilot sees, what it costs, what is printed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from camu.allocation.p2 import P2Problem
from camu.experiments.pilot import look_around, measured_problem, pilot_plan
from camu.learning.kernel import DeviceBatch, Kernel
from camu.schemes import Clustered, make_scheme
from camu.schemes.plans import config_of_plan
from camu.simulation.dry_run import dry_run
from camu.simulation.result import build_engine
from camu.world import World, build_world

Tiny = Callable[..., World]
Camu = Callable[..., Any]


@pytest.fixture
def plan_file(camu: Camu, tmp_path: Path) -> Callable[..., Path]:
    def write(*settings: str) -> Path:
        known = ("fleet.static_watts=0", "fleet.idle_watts=0")
        options = [text for setting in (*known, *settings) for text in ("--set", setting)]
        base = ("plan", "--preset", "demo", "--scheme", "clustered", "--json")
        path = tmp_path / "plan.json"
        path.write_text(camu(*base, *options, "--set", "machine.workers=1").out)
        return path

    return write


def test_the_pilot_sees_exact_gradients_and_the_scatter_of_batches(tiny: Tiny) -> None:
    """Against the gradients of single samples, of which everything else follows."""
    world = tiny(training__l2=0.1)
    plan = Clustered().plan(world)

    def single(device: int, kernel: Kernel) -> npt.NDArray[Any]:
        rows = [
            kernel.full_pass(at, [DeviceBatch(device, np.array([sample]), 1.0)], True)[0]
            for sample in engine.batches.device_indices[device]
        ]
        return np.stack(rows).astype(np.float64)

    with build_engine(world) as engine:
        at = engine.initial
        looks = look_around(engine, plan, 0.0, 2)
        for (round_, look), (c, unit) in itertools.product(enumerate(looks), enumerate(plan.units)):
            gradient, variance = 0.1 * at.parameters.astype(np.float64), 0.0
            for device, share in zip(unit.members, unit.member_weights, strict=True):
                rows = engine.on_worker("samples", partial(single, device))
                place = {
                    sample: k for k, sample in enumerate(engine.batches.device_indices[device])
                }
                away = [
                    np.square(rows[[place[s] for s in own]].mean(axis=0) - rows.mean(axis=0)).sum()
                    for own in engine.batches.epoch(round_, device, 0)
                ]
                assert len(away) == 5
                variance += share**2 * float(np.mean(away))
                gradient += share * rows.mean(axis=0)
            assert np.allclose(look.gradients[c], gradient, rtol=1e-4, atol=1e-6)
            loss = engine.loss(at, unit.members, unit.member_weights)
            assert look.losses[c] == pytest.approx(loss, rel=1e-5)
            assert look.variance[c] == pytest.approx(variance, rel=1e-4)
    assert looks[0].variance != pytest.approx(looks[1].variance, rel=1e-3)  # other batches


def test_a_round_of_the_pilot_costs_a_pass_over_all_data(tiny: Tiny) -> None:
    world = tiny(radio__noise_dbm=-90.0)
    plan = Clustered().plan(world)
    devices, cost = world.devices, pilot_plan(plan, world)
    for before, unit in zip(plan.units, cost.units, strict=True):
        own = list(unit.members)
        cycles = devices.cycles_per_sample[own] * devices.samples[own]
        joules = float((devices.capacitance[own] * cycles * devices.cpu_hz[own] ** 2).sum())
        assert unit.compute_joules == pytest.approx(joules)
        assert unit.compute_seconds == pytest.approx((cycles / devices.cpu_hz[own]).max())
        assert unit.transmit_joules == pytest.approx(before.transmit_joules)


def test_both_budgets_pay_for_the_pilot(plan_file: Callable[..., Path]) -> None:
    path = plan_file("run.max_joules=30", "run.max_virtual_seconds=60")
    few, many = measured_problem(path, 2), measured_problem(path, 4)
    each = (30 - few.energy_joules) / 2, (60 - few.seconds) / 2
    assert min(each) > 0
    assert 30 - many.energy_joules == pytest.approx(4 * each[0])
    assert 60 - many.seconds == pytest.approx(4 * each[1])
    assert f"less {2 * each[0]:.4g} J of the pilot" in few.origin["energy_joules"]
    assert few.learning_rate * few.smoothness * float(few.weight @ few.dissimilarity**2) <= 1 + 1e-9


@pytest.mark.parametrize("setting", ["radio.fading=none", "radio.fading=rayleigh"])
def test_budgets_that_are_not_given_are_those_of_a_dry_run(
    plan_file: Callable[..., Path], setting: str
) -> None:
    path = plan_file(setting, "run.rounds=60")
    few, many = measured_problem(path, 2), measured_problem(path, 4)
    config = config_of_plan(path)
    spent = dry_run(build_world(config), make_scheme(config)).final
    assert spent.round == 60
    assert 2 * few.energy_joules - many.energy_joules == pytest.approx(spent.total_joules)
    assert 2 * few.seconds - many.seconds == pytest.approx(spent.virtual_seconds)


def test_the_command_names_where_numbers_come_from(
    camu: Camu, plan_file: Callable[..., Path], tmp_path: Path
) -> None:
    path, saved = plan_file(), tmp_path / "p2.json"
    arguments = ("allocate", "--from-plan", str(path), "--measure", "3")
    text = " ".join(camu(*arguments, "--problem", str(saved)).out.split())
    for words in (
        "pilot, 3 models",
        "of the pilot",
        "1 + scheme.parameters.max_extra_updates",
        "certified",
    ):
        assert words in text
    again = P2Problem.from_json(saved)
    document = json.loads(saved.read_text())
    assert again.to_dict() == document
    assert set(document["origin"]) >= {"convexity", "smoothness", "variance", "energy_joules"}
    done = camu("allocate", str(saved), "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["origin"] == document["origin"]
    direct = json.loads(camu(*arguments, "--json").out)
    assert direct["objective"] == answer["objective"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("radio.access=ofdma", "radio.access = ofdma: problem P2 knows only tdma"),
        ("radio.downlink=true", "radio.downlink = true: problem P2 knows only false"),
        ("training.local_update=epoch", "training.local_update = epoch"),
        ("readings.compute_model=literal", "readings.compute_model = literal"),
    ],
)
def test_settings_that_p2_does_not_know_are_refused(
    camu: Camu, plan_file: Callable[..., Path], setting: str, message: str
) -> None:
    done = camu("allocate", "--from-plan", str(plan_file(setting)), "--measure", "2")
    assert done.code == 2
    assert message in " ".join(done.err.split())


def test_budgets_that_the_pilot_uses_up_are_refused(
    camu: Camu, plan_file: Callable[..., Path]
) -> None:
    path = str(plan_file("run.max_joules=0.1"))
    done = camu("allocate", "--from-plan", path, "--measure", "5")
    assert done.code == 1
    assert "nothing is left" in " ".join(done.err.split())
    done = camu("allocate", "docs/examples/problem.json", "--measure", "5")
    assert done.code == 2
    assert "needs --from-plan" in " ".join(done.err.split())
