"""The preset `paper` costs and trains what it did before clusters shared a medium.

The numbers were printed by the code of commit f2a7a4f, where gathers took no turns and leaders did
not answer. Since then only this answer has been added under `radio.d2d = "free"`, and nothing for
single devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import camu
from camu.config import load_config
from camu.schemes import SCHEMES
from camu.world import World, build_world

SETTINGS: dict[str, Any] = {
    "data.dataset": "digits",
    "data.samples_per_device": 40,
    "training.model": "logistic",
    "machine.kernel": "torch",
    "machine.workers": 1,
    "run.rounds": 2,
    "run.eval_every": 2,
}


def run_of(name: str, **changes: Any) -> tuple[World, camu.Plan, camu.Result]:
    own = {key.replace("__", "."): value for key, value in changes.items()}
    world = build_world(load_config(preset="paper", overrides=SETTINGS | own))
    scheme = SCHEMES[name]()
    return world, camu.plan(scheme, world), camu.simulate(world, scheme)


def model_of(result: camu.Result) -> list[float]:
    """Two numbers in which every parameter counts."""
    own = result.weights.parameters.astype(float)
    return [float(np.linalg.norm(own)), float(own @ np.cos(np.arange(own.size)))]


def test_fedavg_is_as_it_was() -> None:
    _, plan, result = run_of("fedsgd")
    final = result.history.final
    assert plan.round_seconds == pytest.approx(0.08160083141062185, rel=1e-12)
    assert plan.round_joules == pytest.approx(0.09957080079925323, rel=1e-12)
    assert final.virtual_seconds == pytest.approx(0.16320166282124374, rel=1e-12)
    assert final.joules["compute"] == pytest.approx(0.12594702756338316, rel=1e-12)
    assert final.joules["transmit"] == pytest.approx(0.07319457403512333, rel=1e-12)
    assert sum(final.joules.values()) == pytest.approx(0.1991416015985065, rel=1e-12)
    assert final.bits == {"uplink": 1248000, "downlink": 41600, "gather": 0}
    assert model_of(result) == pytest.approx([1.8622840849742193, -1.1073048190216064], rel=1e-5)


def test_a_free_medium_is_as_it_was_but_for_the_answers() -> None:
    world, plan, result = run_of("clustered", radio__d2d="free")
    links, seconds, joules, answers = world.links, 0.0, 0.0, 0
    bits = world.config.radio.bits_per_parameter * plan.parameters
    for unit in plan.units:
        others = np.array([device for device in unit.members if device != unit.leader])
        if others.size:  # the leader answers at the rate of the weakest, at Shannon's rate
            gain = links.pair_gain(np.full(others.size, unit.leader), others).min()
            power = world.devices.power_watts[unit.leader]
            rate = np.log2(1 + power * gain / links.noise_watts)
            own = unit.local_updates * bits / (world.config.radio.bandwidth_hz * rate)
            seconds, joules = seconds + own, joules + power * own
            answers += unit.local_updates
    final = result.history.final
    gathers = sum(unit.gather_seconds for unit in plan.units)
    assert gathers - seconds == pytest.approx(0.02198678073507433, rel=1e-9)
    assert plan.round_joules - joules == pytest.approx(0.08610069378351083, rel=1e-9)
    assert final.total_joules - 2 * joules == pytest.approx(0.17220138756702166, rel=1e-9)
    assert final.joules["compute"] == pytest.approx(0.12594702756338313, rel=1e-12)
    assert final.bits == {
        "uplink": 416000,
        "downlink": 41600,
        "gather": 832000 + 2 * answers * bits,
    }
    assert model_of(result) == pytest.approx([1.8622857751960937, -1.107431634770846], rel=1e-5)
