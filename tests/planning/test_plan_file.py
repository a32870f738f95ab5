"""A plan written as JSON and read back is the same plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

from camu.config import load_config
from camu.errors import InputError
from camu.schemes import SCHEMES, FedAvg, Plan, make_scheme
from camu.world import World, build_world
from helpers import killed_runs

FLEET = Path(__file__).parents[2] / "docs" / "examples" / "fleet.csv"


@lru_cache
def world_of(kind: str) -> World:
    if kind == "demo":
        return build_world(load_config(preset="demo"))
    return build_world(load_config(preset="paper").replace({"fleet.file": str(FLEET)}))


def through_text(plan: Plan, world: World) -> Plan:
    return Plan.from_dict(json.loads(json.dumps(plan.to_dict(world), allow_nan=False)))


@pytest.mark.parametrize("kind", ["demo", "fleet"])
@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_plans_what_its_file_says(kind: str, name: str) -> None:
    world = world_of(kind)
    plan = make_scheme(world.config, name).plan(world)
    again = through_text(plan, world)
    assert again == plan
    assert again.round_joules == plan.round_joules
    assert again.round_seconds == plan.round_seconds
    assert (again.allocation is None) == (plan.allocation is None)
    if plan.allocation is not None and again.allocation is not None:
        assert again.allocation.objective == plan.allocation.objective
        assert again.to_dict(world)["allocation"] == plan.to_dict(world)["allocation"]
    document = plan.to_dict(world)
    names = {device["id"] for device in document["devices"]}
    assert all(isinstance(one, str if kind == "fleet" else int) for one in names)
    assert {one for unit in document["units"] for one in unit["members"]} <= names


def test_rules_and_codecs_are_in_the_file(tiny: Callable[..., World]) -> None:
    world = tiny()
    plan = killed_runs.Everything().plan(world)
    assert len({type(unit.codec) for unit in plan.units}) == 3
    assert through_text(plan, world) == plan


def test_a_file_that_is_no_plan_is_named(tiny: Callable[..., World]) -> None:
    world = tiny()
    document = FedAvg().plan(world).to_dict(world)
    with pytest.raises(InputError, match=r"runs/plan\.json: is not a plan .*KeyError: 'units'"):
        Plan.from_dict({k: v for k, v in document.items() if k != "units"}, "runs/plan.json")
    document["units"][0]["leader"] = "nobody"
    with pytest.raises(InputError, match="nobody"):
        Plan.from_dict(document)
