"""Devices that move in a run: prices follow them, plans are made again, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu
from camu.errors import InputError
from camu.planning.replanning import replanning_costs
from camu.schemes import FedAvg, Scheme, State, View
from camu.simulation import Callback, Record, Run, simulate
from camu.simulation.dry_run import dry_run
from camu.simulation.moving import replan
from camu.world import World

Tiny = Callable[..., World]
SHANNON = {"radio__snr_gap_db": 0.0, "radio__max_bits_per_hz": np.inf}
FAST = {"fleet__speed_mps": (50.0, 100.0)}
MIXED = {  # so fast, in one region, that clusters change
    "fleet__regions": [{"name": "I", "devices": 6, "x": [-30.0, 30.0], "y": [-30.0, 30.0]}],
    "fleet__speed_mps": (900.0, 1500.0),
}


class Plans(Callback):
    """The plan, its members and the place of a device after every round."""

    def __init__(self) -> None:
        self.plans: list[camu.Plan] = []
        self.worlds: list[World] = []
        self.kept: list[dict[int, Any]] = []

    def on_start(self, run: Run) -> None:
        self.plans.append(run.plan)
        self.worlds.append(run.world)

    def on_round(self, run: Run, record: Record) -> None:
        self.plans.append(run.plan)
        self.worlds.append(run.world)
        self.kept.append(dict(run.kept))


def members(plan: camu.Plan) -> list[tuple[int, ...]]:
    return [unit.members for unit in plan.units]


@pytest.mark.parametrize("dvfs", [False, True])
@pytest.mark.parametrize("name", ["fedavg", "camu"])
def test_a_round_costs_what_the_plan_costs_where_the_devices_are(
    tiny: Tiny, name: str, dvfs: bool
) -> None:
    world = tiny(**FAST, run__rounds=4, fleet__dvfs=dvfs)
    scheme = camu.make_scheme(world.config, name)
    plan, now, joules = camu.plan(scheme, world), 0.0, 0.0
    history = simulate(world, scheme).history
    lengths = []
    for record in history.records[1:]:
        moved = camu.build_world(
            world.config.replace(
                {
                    "fleet.speed_mps": None,
                    "fleet.positions": world.at(now).devices.positions.tolist(),
                }
            )
        )
        priced = plan.repriced(moved)
        lengths.append(priced.round_seconds)
        now, joules = now + priced.round_seconds, joules + priced.round_joules
        assert record.virtual_seconds == pytest.approx(now, rel=1e-9)
        assert record.total_joules == pytest.approx(joules, rel=1e-9)
    assert len(set(lengths)) == 4
    assert camu.simulate(world, scheme).history.weights_sha256 == history.weights_sha256


def test_planning_again_costs_reports_and_a_broadcast(tiny: Tiny) -> None:
    """K = 6, one base station, 2 units: 6 reports of 32 (1 + 5) bits, 32 (6 + 3 * 2) bits back."""
    radio: dict[str, Any] = {
        "radio__downlink": True,
        "radio__receive_watts": 2.0,
        "radio__circuit_watts": 0.1,
    }
    radio |= {"radio__amplifier_efficiency": 1.0, **SHANNON}
    world = tiny(**radio, fleet__idle_watts=0.25)
    plan = camu.plan(camu.schemes.Clustered(), world)
    gain = world.links.uplink_gain
    found = replanning_costs(world, plan, gain, np.ones(6, dtype=bool))
    noise = 10 ** ((-174 + 60 + 7 - 30) / 10)
    report = [192 / (1e6 * np.log2(1 + 0.5 * one / noise)) for one in gain]
    bits = 32 * (6 + 3 * len(plan.units))
    heard = bits / (1e6 * np.log2(1 + gain.min() / 15 / noise))
    assert found.seconds == pytest.approx(sum(report) + heard, rel=1e-12)
    assert found.transmit_joules == pytest.approx([0.6 * one for one in report], rel=1e-12)
    assert found.receive_joules == pytest.approx([2.0 * heard] * 6, rel=1e-12)
    assert found.idle_joules == pytest.approx([0.25 * found.seconds] * 6, rel=1e-12)
    assert found.base_station_joules == pytest.approx(heard, rel=1e-12)
    assert (found.uplink_bits, found.downlink_bits) == (6 * 192, bits)
    at_once = tiny(radio__access="ofdma", radio__downlink=False, **SHANNON)
    found = replanning_costs(at_once, plan, gain, np.arange(6) > 1)
    band = 1e6 / 4
    share = [192 / (band * np.log2(1 + 0.5 * one / (noise / 4))) for one in gain[2:]]
    assert found.seconds == pytest.approx(max(share), rel=1e-12)
    assert found.transmit_joules[:2].tolist() == [0, 0]
    assert found.receive_joules.tolist() == [0] * 6


def test_planning_again_is_charged_to_clock_devices_and_bits(tiny: Tiny) -> None:
    still, again = tiny(run__rounds=5), tiny(run__rounds=5, clustering__replan_every=2)
    plan = camu.plan(FedAvg(), still)
    cost = replanning_costs(still, plan, still.links.uplink_gain, np.ones(6, dtype=bool))
    before, after = simulate(still, FedAvg()).history, simulate(again, FedAvg()).history
    for one, other in zip(before.records, after.records, strict=True):
        times = max(0, one.round - 1) // 2  # before rounds 3 and 5
        assert other.virtual_seconds == pytest.approx(one.virtual_seconds + times * cost.seconds)
        more = times * cost.transmit_joules.sum()
        assert other.total_joules == pytest.approx(one.total_joules + more)
        assert one.bits is not None
        assert other.bits == {
            "uplink": one.bits["uplink"] + times * cost.uplink_bits,
            "downlink": one.bits["downlink"] + times * cost.downlink_bits,
            "gather": one.bits["gather"],
        }
    assert before.devices is not None
    assert after.devices is not None
    extra = after.devices.transmit_joules - before.devices.transmit_joules
    assert extra == pytest.approx(2 * cost.transmit_joules, rel=1e-6)
    assert before.weights_sha256 == after.weights_sha256  # the plan is the same


def test_a_device_that_cannot_pay_does_not_report(tiny: Tiny) -> None:
    bits = []
    for every in (None, 1):
        world = tiny(run__rounds=2, clustering__replan_every=every, radio__downlink=True)
        world = world.with_devices(battery_joules=np.where(np.arange(6) == 2, 1e-9, 1e3))
        history = simulate(world, FedAvg()).history
        assert history.devices is not None
        assert history.devices.joules[2] == 0
        assert history.final.bits is not None
        bits.append(history.final.bits)
    assert bits[1]["uplink"] - bits[0]["uplink"] == 5 * 192
    assert bits[1]["downlink"] - bits[0]["downlink"] == 32 * (6 + 3 * 6)


def test_clusters_and_leaders_follow(tiny: Tiny) -> None:
    world = tiny(**MIXED, run__rounds=5, clustering__replan_every=2)
    scheme, watch = camu.make_scheme(world.config, "clustered"), Plans()
    history = simulate(world, scheme, [watch]).history
    first = members(watch.plans[0])
    assert members(watch.plans[1]) == members(watch.plans[2]) == first
    assert members(watch.plans[4]) == members(watch.plans[3])
    for number in (3, 5):
        # Where the devices were at the end of the round before.
        now = world.at(history.records[number - 1].virtual_seconds)
        there = camu.plan(scheme, now)
        assert members(watch.plans[number]) == members(there) != first
        leaders = watch.plans[number].column("leader")
        assert (leaders == there.column("leader")).all()
    forecast = dry_run(world, scheme)
    assert [one.virtual_seconds for one in forecast.records] == [
        one.virtual_seconds for one in history.records
    ]


class Counting(Scheme):
    """Units count the rounds that they remember."""

    def keep(self, view: View, state: State, unit: int, change: Any, kept: Any) -> Any:
        return np.ones(1) if kept is None else kept + 1


def test_units_with_other_members_forget_what_they_kept(tiny: Tiny) -> None:
    world, watch = tiny(**MIXED, run__rounds=4, clustering__replan_every=2), Plans()

    class Clusters(Counting, camu.schemes.Clustered):
        pass

    class Devices(Counting, FedAvg):
        pass

    simulate(world, Clusters(), [watch])
    assert members(watch.plans[3]) != members(watch.plans[2])
    assert [max(own.values()) for own in watch.kept] == [1, 2, 1, 2]
    watch = Plans()
    simulate(world, Devices(), [watch])
    assert [max(own.values()) for own in watch.kept] == [1, 2, 3, 4]


def test_a_revised_plan_stays_while_members_do(tiny: Tiny) -> None:
    class Growing(FedAvg):
        def revise(self, view: View, state: Any) -> camu.Plan:
            return view.plan.with_updates([1 + view.round] * 6)

    watch = Plans()
    simulate(tiny(**FAST, clustering__replan_every=1, run__rounds=3), Growing(), [watch])
    assert [plan.units[0].local_updates for plan in watch.plans] == [1, 2, 3, 4]


def test_units_on_their_way_go_on_or_are_given_up(tiny: Tiny) -> None:
    """Single devices stay units, so an asynchronous scheme loses nothing."""
    world = tiny(**MIXED, run__rounds=9, clustering__replan_every=2, radio__access="ofdma")
    scheme = camu.make_scheme(world.config, "fedbuff")
    history = simulate(world, scheme).history
    assert [record.units for record in history.records[1:]] == [history.records[1].units] * 9
    seconds = [record.virtual_seconds for record in history.records]
    assert seconds == sorted(seconds)

    class Impatient(camu.schemes.Clustered):
        def ready(self, view: View, state: Any) -> bool:
            return bool(view.arrived)

    given_up = Plans()
    simulate(world, Impatient(), [given_up])
    assert len({tuple(members(plan)) for plan in given_up.plans}) > 1


def test_members_that_are_absent_pay_idle_power_while_the_others_are_on_their_way(
    tiny: Tiny,
) -> None:
    class Impatient(camu.schemes.Clustered):
        def ready(self, view: View, state: Any) -> bool:
            return bool(view.arrived)

    class Last(Callback):
        def on_end(self, run: Run, history: camu.History) -> None:
            self.run = run

    absent = {"faults__dropout_probability": 0.4, "fleet__idle_watts": 0.25}
    world = tiny(**absent, run__rounds=2, clustering__replan_every=2, run__seed=3)
    last = Last()
    simulate(world, Impatient(), [last])
    run = last.run
    away = {device for update in run.in_flight.values() for device in update.members}
    units = {device for unit in run.in_flight for device in run.plan.units[unit].members}
    assert away < units  # one of them is absent
    before, began = run.ledger.devices[3].copy(), run.clock.now_seconds
    replan(run, Impatient())
    seconds = run.clock.now_seconds - began
    paid = [0.0 if device in away else 0.25 * seconds for device in range(6)]
    assert run.ledger.devices[3] - before == pytest.approx(paid)


def test_leaders_in_place_of_empty_ones_are_the_best_where_they_are(
    tiny: Tiny, tmp_path: Path
) -> None:
    """The leader has no charge; of the others, the one nearest to the base station leads."""
    trace = tmp_path / "trace.csv"
    rows = "0,1,-40,0\n0,2,0,0\n1e-6,1,0,0\n1e-6,2,-40,0\n1e9,0,5,5\n"
    trace.write_text("seconds,device,x,y\n" + rows)
    world = tiny(fleet__position_trace=str(trace), run__rounds=2)
    battery = np.where(np.arange(6) == 0, 0.0, 1e3)
    world = world.with_devices(battery_joules=battery)
    groups = camu.schemes.assess(world, [(0, 1, 2), (3, 4, 5)], [0, 3])
    plan = camu.make_plan(FedAvg(), groups, [0.5, 0.5])

    leaders = []

    class Leaders(Callback):
        def on_round(self, run: Run, record: Record) -> None:
            reduced = run.batteries._reduced[0][2]
            leaders.append(reduced.leader)

    simulate(world, FedAvg(), [Leaders()], plan=plan)
    assert leaders == [1, 2]


def test_a_trace_that_ends_early_is_refused_before_training(tiny: Tiny, tmp_path: Path) -> None:
    length = simulate(tiny(run__rounds=1), FedAvg()).history.final.virtual_seconds
    trace = tmp_path / "trace.csv"
    trace.write_text(f"seconds,device,x,y\n0,0,0,0\n{1.5 * length},0,1,0\n")
    watch = Plans()
    early = tiny(fleet__position_trace=str(trace), run__rounds=3)
    with pytest.raises(InputError) as error:
        simulate(early, FedAvg(), [watch])
    assert f"fleet.position_trace = {trace}: round 3 begins at second" in str(error.value)
    assert "write rows until the run ends, or end it with run.max_virtual_seconds" in str(
        error.value
    )
    assert watch.plans == []
    limit = {"run.max_virtual_seconds": 1.5 * length}
    history = simulate(replace(early, config=early.config.replace(limit)), FedAvg()).history
    assert history.stopped == "time budget"
