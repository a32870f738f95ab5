"""Idle power: drawn by every device from its start until its update is aggregated, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from camu.planning.plan import Plan
from camu.schemes import make_scheme
from camu.simulation import Callback, History, Record, Run, simulate
from camu.simulation.ledger import KINDS, DeviceEnergy, Ledger
from camu.world import World, build_world
from helpers.configs import small

WATTS = 0.25


def world_of(scheme: str, **changes: Any) -> World:
    base = {"scheme__name": scheme, "training__model": "logistic", "run__rounds": 6}
    return build_world(small(**{**base, "run__eval_every": 6, **changes}))


class InFlight(Callback):
    """When the units that are on their way at the end have started."""

    def on_round(self, run: Run, record: Record) -> None:
        self.started = {unit: one.started_seconds for unit, one in run.in_flight.items()}
        self.units = run.plan.units


def played(world: World, *callbacks: Callback) -> History:
    return simulate(world, make_scheme(world.config), list(callbacks)).history


@pytest.mark.parametrize("changes", [{}, {"radio__downlink": True}, {"radio__access": "ofdma"}])
@pytest.mark.parametrize("scheme", ["fedavg", "camu", "camu-balanced"])
def test_where_the_server_waits_for_all_everyone_draws_it_all_the_time(
    scheme: str, changes: dict[str, Any]
) -> None:
    world = world_of(scheme, fleet__idle_watts=WATTS, **changes)
    history = played(world)
    assert history.devices is not None
    seconds = history.final.virtual_seconds
    assert history.devices.idle_joules == pytest.approx([WATTS * seconds] * 20, rel=1e-9)
    assert history.final.joules["idle"] == pytest.approx(20 * WATTS * seconds, rel=1e-9)
    others = sum(history.final.joules[kind] for kind in KINDS[:3])
    assert history.final.total_joules == pytest.approx(others + 20 * WATTS * seconds, rel=1e-12)
    plan = make_scheme(world.config).plan(world)
    assert history.final.total_joules == pytest.approx(6 * plan.round_joules, rel=1e-9)
    units = sum(plan.unit_joules(index) for index in range(len(plan.units)))
    assert units == pytest.approx(plan.round_joules, rel=1e-12)
    again = Plan.from_dict(plan.to_dict(world))
    assert again.round_joules == plan.round_joules


def test_nothing_else_of_a_given_plan_changes() -> None:
    plain, idle = (played(world_of("camu", fleet__idle_watts=w)) for w in (0.0, WATTS))
    assert plain.weights_sha256 == idle.weights_sha256
    assert plain.final.virtual_seconds == idle.final.virtual_seconds
    assert [plain.final.joules[k] for k in KINDS[:3]] == [idle.final.joules[k] for k in KINDS[:3]]
    assert plain.final.joules["idle"] == 0.0


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_an_asynchronous_unit_draws_it_until_its_update_arrives(access: str) -> None:
    """Units start again when they have arrived, so that they are on their way at all times."""
    watch = InFlight()
    world = world_of("fedasync", fleet__idle_watts=WATTS, radio__access=access, run__rounds=50)
    history = played(world, watch)
    assert len(watch.started) == 19  # one has just arrived
    drawn = sum(watch.started.values()) + history.final.virtual_seconds
    assert history.final.joules["idle"] == pytest.approx(WATTS * drawn, rel=1e-9)
    assert history.devices is not None
    assert history.devices.joules.sum() == pytest.approx(history.final.total_joules, rel=1e-9)


def test_devices_that_are_absent_draw_nothing() -> None:
    world = world_of("fedavg", fleet__idle_watts=WATTS, faults__dropout_probability=0.5)
    history = played(world)
    seconds = np.diff([record.virtual_seconds for record in history.records])
    there = [20 - record.faults["absent"] for record in history.records[1:]]
    expected = WATTS * float((seconds * there).sum())
    assert history.final.joules["idle"] == pytest.approx(expected, rel=1e-9)


def test_the_numbers_of_earlier_versions_are_read_without_it() -> None:
    old = Ledger(np.ones((3, 2)), {"compute": 2.0, "transmit": 2.0, "receive": 2.0})
    assert old.devices.tolist() == [[1, 1], [1, 1], [1, 1], [0, 0]]
    assert old.joules == 6.0
    text = (
        "device,compute_joules,transmit_joules,receive_joules,battery_joules,left_joules,"
        "empty_round\na,1,2,3,,,\n"
    )
    found = DeviceEnergy.from_csv(text, "devices.csv")
    assert found.joules.tolist() == [6.0]
    assert found.idle_joules.tolist() == [0.0]
    assert DeviceEnergy.from_csv(found.to_csv(), "devices.csv").joules.tolist() == [6.0]
