"""`camu.plan` is the plan with which a run starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import camu
from camu.schemes import Camu, ComputeRounds
from camu.world import World

SETTINGS = {
    "plain": {},
    "dvfs": {"fleet__dvfs": True},
    "rotating leaders": {"clustering__leader": "rotating", "fleet__battery_joules": 50.0},
    "both": {
        "fleet__dvfs": True,
        "clustering__leader": "rotating",
        "fleet__battery_joules": 50.0,
    },
}


@pytest.mark.parametrize("scheme", [Camu(), ComputeRounds()], ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("name", SETTINGS)
def test_the_public_plan_is_the_one_that_runs(
    name: str, scheme: camu.Scheme, tiny: Callable[..., World]
) -> None:
    settings: dict[str, Any] = SETTINGS[name]
    world = tiny(run__rounds=1, **settings)
    result = camu.simulate(world, scheme)
    assert camu.plan(scheme, world) == result.plan
    final = result.history.final
    assert camu.plan(scheme, world).round_joules == pytest.approx(final.total_joules)
    assert (camu.plan(scheme, world) == scheme.plan(world)) == (name == "plain")


@pytest.mark.parametrize("name", camu.schemes.SCHEMES)
def test_a_device_without_samples_is_refused_by_every_scheme(name: str) -> None:
    counts = np.full((20, 10), 3)
    counts[3] = 0
    world = camu.build_world(camu.load_config(preset="demo"), label_counts=counts)
    with pytest.raises(camu.InputError, match="label_counts: device 3 holds no samples; leave it"):
        camu.plan(camu.make_scheme(world.config, name), world)
