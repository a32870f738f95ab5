"""The contract of a scheme: every method does what it says, and is charged for it."""

from __future__ import annotations

import dataclasses
import heapq
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.errors import CamuError, InputError, UserCodeError
from camu.learning.weights import Weights
from camu.schemes import (
    Clustered,
    FedAvg,
    LocalRule,
    LocalSgd,
    Pilot,
    Plan,
    Raw,
    Scheme,
    Sparse,
    State,
    View,
    assess,
    clusters,
    make_plan,
    single_devices,
)
from camu.schemes.contract import PilotRun
from camu.simulation import Callback, History, Record, Run, simulate
from camu.simulation.hooks import check_trainer
from camu.world import World
from helpers.small_fleets import device_gain

Tiny = Callable[..., World]


class Watch(Callback):
    """Notes the energy of each device and the model after every round."""

    def __init__(self) -> None:
        self.device_joules: list[np.ndarray] = []
        self.models: list[np.ndarray] = []
        self.totals: list[float] = []

    def on_start(self, run: Run) -> None:
        self.models.append(run.weights.parameters)

    def on_round(self, run: Run, record: Record) -> None:
        self.device_joules.append(run.device_joules.copy())
        self.models.append(run.weights.parameters)
        self.totals.append(record.total_joules)


# When the server aggregates


@dataclasses.dataclass(frozen=True)
class FirstK(FedAvg):
    k: int = 1

    def ready(self, view: View, state: State) -> bool:
        return len(view.arrived) >= self.k


@dataclasses.dataclass(frozen=True)
class Until(FedAvg):
    seconds: float = 0.0  # after the start of the round

    def deadline(self, view: View, state: State) -> float | None:
        return view.seconds + self.seconds


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_the_first_k_arrivals_end_the_round(tiny: Tiny, access: str, k: int) -> None:
    world = tiny(radio__access=access)
    arrivals = np.sort(FirstK(k).plan(world).arrival_seconds)
    first = simulate(world, FirstK(k)).history.records[1]
    assert first.units == k
    assert first.virtual_seconds == pytest.approx(arrivals[k - 1], rel=1e-12)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_a_deadline_ends_the_round_and_late_updates_come_later(tiny: Tiny, access: str) -> None:
    world = tiny(radio__access=access, run__rounds=2)
    arrivals = FedAvg().plan(world).arrival_seconds
    order = np.argsort(arrivals)
    between = float(arrivals[order[1]] + arrivals[order[2]]) / 2
    seen: list[list[tuple[int, int, float]]] = []

    class Spy(Until):
        def aggregate(self, view: View, state: State) -> Weights:
            seen.append([(a.unit, a.staleness, a.seconds) for a in view.arrived])
            return super().aggregate(view, state)

    records = simulate(world, Spy(between)).history.records
    assert [unit for unit, _, _ in seen[0]] == list(order[:2])
    assert records[1].virtual_seconds == between
    assert all(staleness == 0 for _, staleness, _ in seen[0])
    late = {unit: seconds for unit, staleness, seconds in seen[1] if staleness == 1}
    assert set(late) <= set(order[2:])
    assert order[2] in late
    assert late[order[2]] == pytest.approx(arrivals[order[2]], rel=1e-12)


def test_an_arrival_at_the_deadline_is_in_time(tiny: Tiny) -> None:
    world = tiny(run__rounds=1)
    arrivals = np.sort(FedAvg().plan(world).arrival_seconds)
    assert simulate(world, Until(float(arrivals[2]))).history.final.units == 3
    before = math.nextafter(float(arrivals[2]), 0.0)
    assert simulate(world, Until(before)).history.final.units == 2


def test_a_deadline_that_all_keep_changes_nothing(tiny: Tiny) -> None:
    world = tiny()
    plain = simulate(world, FedAvg()).history
    for seconds in (1e6, math.inf):
        assert simulate(world, Until(seconds)).history.records == plain.records


def test_a_round_in_which_nobody_starts_lasts_until_its_deadline(tiny: Tiny) -> None:
    class Nobody(Until):
        def select(self, view: View, state: State) -> Sequence[int]:
            return ()

    watch = Watch()
    history = simulate(tiny(), Nobody(2.0), [watch]).history
    assert [record.virtual_seconds for record in history.records] == [0.0, 2.0, 4.0, 6.0]
    assert history.final.total_joules == 0
    assert all(np.array_equal(model, watch.models[0]) for model in watch.models)


def test_staleness_and_clock_of_single_arrivals(tiny: Tiny) -> None:
    """OFDMA, one arrival per round: an event queue written down here gives the same story."""
    rounds = 30
    world = tiny(radio__access="ofdma", run__rounds=rounds)
    period = FedAvg().plan(world).arrival_seconds
    queue = [(float(seconds), unit) for unit, seconds in enumerate(period)]
    heapq.heapify(queue)
    started = [0] * len(period)
    expected = []
    for done in range(rounds):
        now, unit = heapq.heappop(queue)
        expected.append((unit, done - started[unit], now))
        started[unit] = done + 1
        heapq.heappush(queue, (now + float(period[unit]), unit))
    found: list[tuple[int, int, float]] = []

    class Spy(FirstK):
        def aggregate(self, view: View, state: State) -> Weights:
            (arrival,) = view.arrived
            found.append((arrival.unit, arrival.staleness, arrival.arrived_seconds))
            assert view.seconds == arrival.arrived_seconds
            return super().aggregate(view, state)

    simulate(world, Spy())
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    assert [one[2] for one in found] == pytest.approx([one[2] for one in expected], rel=1e-9)
    assert max(staleness for _, staleness, _ in found) > 3


# Who starts, and what it costs


def test_only_those_who_start_are_charged(tiny: Tiny) -> None:
    class Two(FedAvg):
        def select(self, view: View, state: State) -> Sequence[int]:
            return [4, 1]

    world, watch = tiny(), Watch()
    history = simulate(world, Two(), [watch]).history
    assert history.final.units == 2
    assert set(np.flatnonzero(watch.device_joules[-1])) == {1, 4}
    units = Two().plan(world).units
    for device in (1, 4):
        own = units[device].compute_joules + units[device].transmit_joules
        assert watch.device_joules[-1][device] == pytest.approx(3 * own, rel=1e-12)


@pytest.mark.parametrize("scheme", [FedAvg(), Clustered(), FirstK(2), LocalSgd(3)])
def test_the_devices_joules_add_up_to_the_total(tiny: Tiny, scheme: Scheme) -> None:
    faults = {"faults__dropout_probability": 0.2, "faults__leader_failure_probability": 0.2}
    world, watch = tiny(run__rounds=6, radio__fading="rayleigh", **faults), Watch()
    simulate(world, scheme, [watch])
    for devices, total in zip(watch.device_joules, watch.totals, strict=True):
        assert devices.sum() == pytest.approx(total, rel=1e-9)
    assert watch.totals[-1] > 0


class TwoGroups(Scheme):
    """Two units of three devices; members take several steps between two gathers."""

    rule = LocalRule(steps=4, batch=5)

    def plan(self, world: World) -> Plan:
        groups = assess(world, [(0, 1, 2), (3, 4, 5)], [1, 3])
        return make_plan(self, groups, groups.sample_weights, 2, rule=self.rule)


def test_steps_between_gathers_cost_computing_only(tiny: Tiny) -> None:
    """Two updates of four steps: eight steps of computing, two gathers, one uplink."""
    world, watch = tiny(run__rounds=1), Watch()
    plan = TwoGroups().plan(world)
    history = simulate(world, TwoGroups(), [watch]).history
    devices, links, config = world.devices, world.links, world.config
    bits = 32 * plan.parameters
    total = 0.0
    expected = np.zeros(6)
    for unit in plan.units:
        work = devices.cycles_per_sample * np.full(6, 5.0)
        own = list(unit.members)
        seconds = 8 * max(work[own] / devices.cpu_hz[own])
        assert unit.compute_seconds == pytest.approx(seconds, rel=1e-12)
        gather, gains = 0.0, []
        expected[own] += 8 * devices.capacitance[own] * work[own] * devices.cpu_hz[own] ** 2
        for member in set(own) - {unit.leader}:
            power = devices.power_watts[member]
            snr = power * device_gain(links, [member], [unit.leader])[0, 0] / links.noise_watts
            air = bits / (links.radio.bandwidth_hz * math.log2(1 + snr))
            gather += air
            gains.append(snr / power)
            expected[member] += 2 * power * air
        power = devices.power_watts[unit.leader]  # the leader answers its weakest member
        answer = bits / (links.radio.bandwidth_hz * math.log2(1 + power * min(gains)))
        gather += answer
        expected[unit.leader] += 2 * power * answer
        assert unit.gather_seconds == pytest.approx(2 * gather, rel=1e-9)
        expected[unit.leader] += unit.uplink_joules
        total = expected.sum()
    assert config.readings.compute_model == "cycles"
    assert watch.device_joules[0] == pytest.approx(expected, rel=1e-9)
    assert history.final.total_joules == pytest.approx(total, rel=1e-9)
    assert history.final.virtual_seconds == pytest.approx(plan.round_seconds, rel=1e-12)


def test_twice_the_payload_takes_exactly_twice_the_time_and_energy(tiny: Tiny) -> None:
    @dataclasses.dataclass(frozen=True)
    class Copies(Scheme):
        copies: int = 1

        def plan(self, world: World) -> Plan:
            groups = single_devices(world)
            return make_plan(self, groups, groups.sample_weights, codec=Raw(self.copies))

    world = tiny()
    one, two = Copies(1).plan(world), Copies(2).plan(world)
    for single, double in zip(one.units, two.units, strict=True):
        assert double.payload_bits == 2 * single.payload_bits
        assert double.uplink_seconds == 2 * single.uplink_seconds
        assert double.uplink_joules == 2 * single.uplink_joules
        assert double.compute_joules == single.compute_joules
    records = [simulate(world, Copies(copies)).history.final.joules for copies in (1, 2)]
    assert records[1]["transmit"] == 2 * records[0]["transmit"]
    assert records[1]["compute"] == records[0]["compute"]


# The pilot


class Piloted(FedAvg):
    runs: tuple[PilotRun, ...] = ()

    def pilot(self, pilot: Pilot, state: State) -> Plan | None:
        trial = pilot.train(pilot.plan.with_updates([2] * 6), rounds=2)
        again = pilot.train(pilot.plan, rounds=1, weights=trial.weights)
        type(self).runs = (trial, again)
        return None


def test_a_pilot_is_charged_and_leaves_the_rest_as_it_was(tiny: Tiny) -> None:
    world, watch = tiny(), Watch()
    history = simulate(world, Piloted(), [watch]).history
    plan = FedAvg().plan(world)
    twice = plan.with_updates([2] * 6)
    seconds = [2 * twice.round_seconds, plan.round_seconds]
    joules = [2 * twice.round_joules, plan.round_joules]
    assert [run.seconds for run in Piloted.runs] == pytest.approx(seconds, rel=1e-12)
    assert [run.joules for run in Piloted.runs] == pytest.approx(joules, rel=1e-12)
    assert [len(run.losses) for run in Piloted.runs] == [2, 1]
    first = history.records[0]
    assert first.virtual_seconds == pytest.approx(sum(seconds), rel=1e-12)
    assert first.total_joules == pytest.approx(sum(joules), rel=1e-12)
    assert watch.device_joules[-1].sum() == pytest.approx(history.final.total_joules, rel=1e-9)
    # The run itself starts from the same model and ends with the same one.
    plain = simulate(world, FedAvg()).history
    assert history.weights_sha256 == plain.weights_sha256
    spent = history.final.total_joules - first.total_joules
    assert spent == pytest.approx(plain.final.total_joules, rel=1e-9)
    before = Piloted.runs
    simulate(world, Piloted())
    assert [run.losses for run in before] == [run.losses for run in Piloted.runs]
    assert before[0].weights.sha256() == Piloted.runs[0].weights.sha256()


def test_a_second_pilot_begins_when_the_first_one_has_ended(tiny: Tiny) -> None:
    begun: list[float] = []

    class Seen(FedAvg):
        def select(self, view: View, state: State) -> Iterable[int]:
            begun.append(view.seconds)
            return view.idle

    class Twice(FedAvg):
        def pilot(self, pilot: Pilot, state: State) -> Plan | None:
            for _ in range(2):
                pilot.train(pilot.plan, rounds=2, scheme=Seen())
            return None

    world = tiny()
    length = FedAvg().plan(world).round_seconds
    history = simulate(world, Twice()).history
    assert begun == pytest.approx([0.0, length, 2 * length, 3 * length])
    assert history.records[0].virtual_seconds == pytest.approx(4 * length)


def test_a_pilot_without_arrivals_is_an_error(tiny: Tiny) -> None:
    with pytest.raises(CamuError, match="no update of its pilot arrived"):
        simulate(tiny(radio__outage_snr_db=200.0), Piloted())


# Another plan


def pairs(world: World) -> Plan:
    groups = assess(world, [(0, 1), (2, 3), (4, 5)])
    return make_plan(FedAvg(), groups, groups.sample_weights)


def test_members_may_change_when_nobody_is_on_its_way(tiny: Tiny) -> None:
    class Pairs(FedAvg):
        def revise(self, view: View, state: State) -> Plan | None:
            return pairs(view.world)

    result = simulate(tiny(), Pairs())
    assert [record.units for record in result.history.records] == [0, 6, 3, 3]
    assert [unit.members for unit in result.plan.units] == [(0, 1), (2, 3), (4, 5)]


def test_members_may_not_change_while_they_are_on_their_way(tiny: Tiny) -> None:
    class Pairs(FirstK):
        def revise(self, view: View, state: State) -> Plan | None:
            return pairs(view.world)

    with pytest.raises(InputError, match="is on its way, so its members cannot change yet"):
        simulate(tiny(), Pairs())


def test_weights_and_updates_may_change_while_units_are_on_their_way(tiny: Tiny) -> None:
    class Growing(FirstK):
        def revise(self, view: View, state: State) -> Plan | None:
            return view.plan.with_updates([view.round + 1] * 6)

    assert simulate(tiny(), Growing(2)).plan.units[0].local_updates == 4


# Views


def test_views_are_read_only_and_before_is_the_start_of_the_round(tiny: Tiny) -> None:
    seen: dict[str, list[tuple[str, str]]] = {"select": [], "aggregate": [], "revise": []}

    class Spy(FedAvg):
        def note(self, name: str, view: View) -> None:
            seen[name].append((view.before.sha256(), view.weights.sha256()))
            assert view.oracle is None
            with pytest.raises(dataclasses.FrozenInstanceError):
                view.round = 7  # type: ignore[misc]
            with pytest.raises(TypeError):
                view.in_flight[0] = None  # type: ignore[index]
            arrays = [view.device_joules, view.weights.parameters]
            for array in [*arrays, *(arrival.update for arrival in view.arrived)]:
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 1

        def select(self, view: View, state: State) -> Sequence[int]:
            self.note("select", view)
            return view.idle

        def aggregate(self, view: View, state: State) -> Weights:
            self.note("aggregate", view)
            return super().aggregate(view, state)

        def revise(self, view: View, state: State) -> Plan | None:
            self.note("revise", view)
            return None

    simulate(tiny(), Spy())
    models = [after for _, after in seen["revise"]]
    assert len(set(models)) == 3
    assert [before for before, _ in seen["revise"]][1:] == models[:-1]
    for name in ("select", "aggregate"):
        assert all(before == now for before, now in seen[name])


def test_random_streams_of_a_view(tiny: Tiny) -> None:
    drawn: list[list[float]] = []

    class Dice(FedAvg):
        def select(self, view: View, state: State) -> Sequence[int]:
            streams = [view.random(), view.random(), view.random(3)]
            drawn.append([float(stream.numpy().random()) for stream in streams])
            return view.idle

    world = tiny()
    simulate(world, Dice())
    assert all(one == two != three for one, two, three in drawn)
    assert len({one for one, _, _ in drawn}) == 3
    first = list(drawn)
    drawn.clear()
    simulate(world, Dice())
    assert drawn == first


def test_a_scheme_that_needs_the_oracle_is_refused_without_it(tiny: Callable[..., World]) -> None:
    class Nodes:
        oracle = None

    class Needy(FedAvg):
        uses_oracle = True

    world = tiny()
    plan = FedAvg().plan(world)
    check_trainer(FedAvg(), Nodes(), plan, world.config)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="only a simulation has; choose another scheme"):
        check_trainer(Needy(), Nodes(), plan, world.config)  # type: ignore[arg-type]


# Mistakes


HOOKS = (
    "plan", "pilot", "select", "correction", "keep", "deadline", "ready", "aggregate", "revise"
)  # fmt: skip


def broken(hook: str, answer: Callable[..., Any]) -> Scheme:
    return type("Broken", (FedAvg,), {hook: answer})()


@pytest.mark.parametrize("hook", HOOKS)
def test_an_error_in_a_method_is_reported_with_its_line(tiny: Tiny, hook: str) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("oh no")

    line = fails.__code__.co_firstlineno + 1
    words = rf"scheme .*Broken: .*test_contract\.py, line {line}, in fails: ZeroDivisionError: oh"
    with pytest.raises(UserCodeError, match=words):
        simulate(tiny(), broken(hook, fails))


def test_an_error_inside_a_generator_is_the_users_too(tiny: Tiny) -> None:
    def lazy(self: Scheme, view: View, state: State) -> Any:
        yield 0
        raise KeyError("later")

    with pytest.raises(UserCodeError, match=r"in lazy: KeyError"):
        simulate(tiny(), broken("select", lazy))


def test_a_selection_without_end_is_refused(tiny: Tiny) -> None:
    def endless(self: Scheme, view: View, state: State) -> Any:
        while True:
            yield 0

    with pytest.raises(InputError, match=r"select\(\) returned more numbers than the 6 units"):
        simulate(tiny(), broken("select", endless))


@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        ("plan", None, r"plan\(\) returned None; it must return a Plan"),
        ("pilot", 3, r"pilot\(\) returned a value of type int; it must return a Plan or None"),
        ("select", [0, 17], r"select\(\) chose unit 17, which is not idle"),
        ("select", None, r"select\(\) returned None; it must return the numbers of units"),
        ("select", [0.5], r"select\(\) returned a value of type float among them; it must return"),
        ("select", [True] * 6, r"select\(\) returned a value of type bool among them"),
        ("select", np.ones(6, bool), r"select\(\) returned a value of type bool\w* among them"),
        ("correction", np.zeros(3), r"correction\(\) returned float64 of shape \(3,\)"),
        ("correction", "much", r"correction\(\) returned .* one number per parameter"),
        ("correction", [[1.0], [1.0, 2.0]], r"correction\(\) returned .* one number per parameter"),
        ("keep", [1.0], r"keep\(\) returned a value of type list; it must return a numpy array"),
        ("keep", np.array(["a"]), r"keep\(\) returned a value of type ndarray; it must return a"),
        ("ready", [], r"ready\(\) returned a value of type list; it must return True or False"),
        ("ready", np.ones(3, bool), r"ready\(\) returned a value of type ndarray; it must"),
        ("finished", None, r"finished\(\) returned None; it must return True or False"),
        ("deadline", "soon", r"deadline\(\) returned a value of type str; it must return virtual"),
        ("deadline", math.nan, r"deadline\(\) returned nan"),
        ("deadline", -1.0, r"deadline\(\) returned -1; it must return a time from now on"),
        ("aggregate", np.zeros(3), r"aggregate\(\) returned a value of type ndarray"),
        ("aggregate", None, r"aggregate\(\) returned None; it must return the model's weights"),
        ("revise", [1], r"revise\(\) returned a value of type list; it must return a Plan or None"),
    ],
)
def test_a_wrong_answer_is_refused_in_words(
    tiny: Tiny, hook: str, answer: object, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        simulate(tiny(), broken(hook, lambda *_: answer))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("list", [1, 2], r"state\['list'\] is a value of type list; a state holds numpy arrays"),
        ("text", np.array(["a"]), "a state holds numpy arrays of numbers"),
        (3, 1.0, r'the names in a state are text; write state\["3"\]'),
    ],
)
def test_a_state_that_no_checkpoint_holds_is_refused(
    tiny: Tiny, name: Any, value: object, words: str
) -> None:
    class Wrong(FedAvg):
        def aggregate(self, view: View, state: State) -> Weights:
            state[name] = value
            return super().aggregate(view, state)

    with pytest.raises(InputError, match=words):
        simulate(tiny(), Wrong())


def test_an_error_in_a_codec_is_the_users(tiny: Tiny) -> None:
    @dataclasses.dataclass(frozen=True)
    class Bad(Raw):
        def encode(self, *_: Any) -> Any:
            raise OverflowError

    class Coded(FedAvg):
        def plan(self, world: World) -> Plan:
            groups = single_devices(world)
            return make_plan(self, groups, groups.sample_weights, codec=Bad())

    with pytest.raises(UserCodeError, match=r"codec Bad: .*in encode: OverflowError"):
        simulate(tiny(), Coded())


def test_arrays_of_a_state_share_nothing_after_a_round(tiny: Tiny) -> None:
    found: list[State] = []

    class Shared(FedAvg):
        def aggregate(self, view: View, state: State) -> Weights:
            if view.round == 0:
                state["kept"] = state["twin"] = np.arange(6.0).reshape(2, 3).copy()
                state["row"], state["turned"] = state["kept"][1], state["kept"].T
            state["kept"] += 1
            found.append(dict(state))
            return super().aggregate(view, state)

    simulate(tiny(), Shared())
    first, last = found[0]["kept"], found[-1]
    assert last["kept"] is first  # not copied without need
    assert np.array_equal(last["kept"], np.arange(6.0).reshape(2, 3) + 3)
    for name, expected in (("twin", first - 2), ("row", first[1] - 2), ("turned", first.T - 2)):
        assert np.array_equal(last[name], expected)
        assert last[name].flags.c_contiguous


def test_steps_of_single_devices_are_local_sgd_bit_for_bit(tiny: Tiny) -> None:
    class Steps(Scheme):
        def plan(self, world: World) -> Plan:
            groups = single_devices(world)
            return make_plan(self, groups, groups.sample_weights, rule=LocalRule(steps=3))

    world = tiny()
    mine, plain = simulate(world, Steps()).history, simulate(world, LocalSgd(3)).history
    assert mine.weights_sha256 == plain.weights_sha256
    assert mine.final.total_joules == pytest.approx(plain.final.total_joules, rel=1e-12)
    assert mine.final.virtual_seconds == pytest.approx(plain.final.virtual_seconds, rel=1e-12)


@pytest.mark.parametrize("where", ["select", "on_round"])
def test_callbacks_learn_of_the_end_after_an_error(tiny: Tiny, where: str) -> None:
    ends: list[str] = []

    class End(Callback):
        def on_round(self, run: Run, record: Record) -> None:
            if where == "on_round":
                raise RuntimeError("a callback fails")

        def on_end(self, run: Run, history: History) -> None:
            ends.append(history.stopped)

    class Late(FedAvg):
        def select(self, view: View, state: State) -> Sequence[int]:
            if where == "select" and view.round == 1:
                raise RuntimeError("a scheme fails")
            return view.idle

    with pytest.raises((RuntimeError, UserCodeError), match="fails"):
        simulate(tiny(), Late(), [End(), End()])
    assert ends == ["failed", "failed"]


def test_clusters_train_together_as_one_unit(tiny: Tiny) -> None:
    """`clusters`, `assess` and `make_plan` agree about who is where."""
    world = tiny()
    groups = clusters(world)
    again = assess(world, groups.members, groups.leaders)
    plans = [make_plan(FedAvg(), own, own.sample_weights) for own in (groups, again)]
    assert plans[0] == plans[1]


def test_costs_follow_a_unit_that_was_changed(tiny: Callable[..., World]) -> None:
    """Codec and power replaced by hand cost the same as through make_plan, planned or revised."""

    class Planned(FedAvg):
        def plan(self, world: World) -> Plan:
            plan = super().plan(world)
            units = [
                dataclasses.replace(u, codec=Sparse(0.01), power_watts=0.2) for u in plan.units
            ]
            return dataclasses.replace(plan, units=tuple(units))

    class Made(FedAvg):
        def plan(self, world: World) -> Plan:
            groups = single_devices(world)
            weights = groups.sample_weights
            return make_plan(self, groups, weights, power_watts=0.2, codec=Sparse(0.01))

    class Revised(FedAvg):
        def revise(self, view: View, state: State) -> Plan | None:
            units = [
                dataclasses.replace(u, codec=Sparse(0.01), power_watts=0.2) for u in view.plan.units
            ]
            return dataclasses.replace(view.plan, units=tuple(units))

    world = tiny()
    planned, made, revised = (simulate(world, kind()) for kind in (Planned, Made, Revised))
    assert planned.plan.units == made.plan.units == revised.plan.units
    assert planned.history.final.total_joules == made.history.final.total_joules
    assert planned.history.weights_sha256 == made.history.weights_sha256


def test_a_scheme_sees_of_flights_only_what_a_server_knows(tiny: Callable[..., World]) -> None:
    seen: set[str] = set()

    class Curious(FedAvg):
        def ready(self, view: View, state: State) -> bool:
            for flight in view.in_flight.values():
                seen.update(name for name in dir(flight) if not name.startswith("_"))
            return len(view.arrived) >= 2

    simulate(tiny(), Curious())
    assert seen == {"unit", "round", "started_seconds"}


@pytest.mark.parametrize("answer", ["(None, None)", "(update[:3], None)", "(update, [1.0])"])
def test_a_codecs_wrong_answer_is_refused_in_words(tiny: Callable[..., World], answer: str) -> None:
    class Odd:
        def bits(self, parameters: int) -> int:
            return 8 * parameters

        def encode(self, update: Any, memory: Any, stream: Any) -> Any:
            return eval(answer)

    class Mine(FedAvg):
        def plan(self, world: World) -> Plan:
            groups = single_devices(world)
            return make_plan(self, groups, groups.sample_weights, codec=Odd())

    with pytest.raises(InputError, match=r"codec Odd: encode\(\) returned"):
        simulate(tiny(), Mine())


def test_a_scheme_that_leaves_the_working_directory_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Away(FedAvg):
        """Goes elsewhere, and relative names of outputs with it."""

        def finished(self, view: View, state: State) -> bool:
            os.chdir(tmp_path)
            return False

    before = Path.cwd()
    with pytest.raises(CamuError, match=r"changed the working directory to .*; use full paths"):
        simulate(tiny(), Away())
    assert Path.cwd() == before
