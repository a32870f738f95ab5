"""The loop: same bits for any number of workers, an honest clock and ledger, faults counted."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from camu.config import Config
from camu.data.batches import Batches
from camu.learning.models import build_model
from camu.learning.weights import Weights
from camu.schemes import FedAvg, State, View, add_updates, make_scheme
from camu.seeding import derive
from camu.simulation import Callback, History, Record, Run, loop, simulate
from camu.simulation.callbacks import Patience
from camu.world import build_world
from helpers.configs import small

tiny = partial(small, run__rounds=4, run__eval_every=2, data__samples_per_device=30)


class Models(Callback):
    """Keeps the parameters of every round, and the last running average."""

    def on_start(self, run: Run) -> None:
        self.models = [run.weights.parameters]

    def on_round(self, run: Run, record: Record) -> None:
        self.models.append(run.weights.parameters)
        self.average = None if run.average is None else run.average.parameters


def play(config: Config, callbacks: tuple[Callback, ...] = ()) -> History:
    return simulate(build_world(config), make_scheme(config), callbacks).history


@pytest.mark.parametrize("scheme", ["fedavg", "camu"])
@pytest.mark.parametrize("local_update", ["step", pytest.param("epoch", marks=pytest.mark.slow)])
def test_same_bits_for_any_number_of_workers(scheme: str, local_update: str) -> None:
    outcomes = {
        play(
            tiny(
                machine__workers=workers,
                scheme__name=scheme,
                training__local_update=local_update,
                radio__fading="rayleigh",
            )
        ).weights_sha256
        for workers in (1, 2, 3)
    }
    assert len(outcomes) == 1


def test_another_seed_gives_another_result() -> None:
    assert play(tiny()).weights_sha256 != play(tiny(run__seed=1)).weights_sha256


@pytest.mark.slow
def test_camu_threshold_limits_are_petrel_and_clustered() -> None:
    def bits(**changes: Any) -> str:
        return play(tiny(**changes)).weights_sha256

    petrel, clustered = bits(scheme__name="petrel"), bits(scheme__name="clustered")
    assert petrel != clustered
    assert bits(scheme__name="camu", scheme__parameters={"threshold": 0.0}) == petrel
    assert bits(scheme__name="camu", scheme__parameters={"threshold": math.inf}) == clustered


def test_fedavg_on_one_update_is_centralised_sgd() -> None:
    """Averaging one gradient step of equal devices is one step on the union of their batches."""
    config = tiny(
        scheme__name="fedavg",
        data__partition="iid",
        training__normalisation="none",
        radio__uplink="digital",
    )
    seen: list[np.ndarray] = []

    class Watch(Callback):
        def on_round(self, run: Run, record: Record) -> None:
            seen.append(run.weights.parameters.copy())

    world = build_world(config)
    simulate(world, make_scheme(config), [Watch()])
    data, training = world.federation.dataset, config.training
    model = build_model("cnn", (8, 8), 10, "none", derive(config.run.seed, "model"))
    batches = Batches(config.run.seed, world.federation.indices, training.batch)
    images = torch.from_numpy(data.train_inputs).float().div(255).unsqueeze(1)
    labels = torch.from_numpy(data.train_labels).long()
    for round_ in range(config.run.rounds):
        union = np.concatenate([batches.step(round_, k, 0) for k in range(20)])
        loss = torch.nn.functional.cross_entropy(model(images[union]), labels[union])
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= training.learning_rate * parameter.grad
        flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
        assert np.abs(flat - seen[round_]).max() < 1e-5


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("scheme", ["fedavg", "petrel"])
def test_clock_and_ledger_follow_the_plan(access: str, scheme: str) -> None:
    config = tiny(radio__access=access, scheme__name=scheme)
    world = build_world(config)
    plan = json.loads(json.dumps(make_scheme(config).plan(world).to_dict(world)))
    history = simulate(world, make_scheme(config)).history
    compute = sum(unit["compute_joules"] for unit in plan["units"])
    transmit = sum(unit["transmit_joules"] for unit in plan["units"])
    for record in history.records:
        assert record.joules["compute"] == pytest.approx(record.round * compute, rel=1e-9)
        assert record.joules["transmit"] == pytest.approx(record.round * transmit, rel=1e-9)
        seconds = record.round * plan["round_seconds"]
        assert record.virtual_seconds == pytest.approx(seconds, rel=1e-9)
    idle = [unit["idle_seconds"] for unit in plan["units"]]
    assert history.final.waiting_seconds == pytest.approx(idle, rel=1e-9, abs=1e-12)


def test_fading_changes_the_uplink_and_nothing_else() -> None:
    still, faded = play(tiny()), play(tiny(radio__fading="rayleigh"))
    assert faded.final.joules["compute"] == still.final.joules["compute"]
    assert faded.final.joules["transmit"] != still.final.joules["transmit"]


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({}, 1),
        ({"radio__fading": "rayleigh"}, 4),
        ({"clustering__leader": "rotating", "clustering__rotate_every": 1}, 4),
        ({"faults__dropout_probability": 0.3, "run__rounds": 8}, 8),
        ({"scheme__name": "fedasync", "radio__access": "ofdma", "run__rounds": 8}, 8),
    ],
)
def test_costs_are_computed_anew_where_anything_differs(
    changes: dict[str, Any], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(**({"scheme__name": "camu"} | changes))
    counted: list[int] = []
    compute, price = loop.full_speed_costs, loop.Loop.price

    def count(*given: Any, **settings: Any) -> Any:
        counted.append(1)
        return compute(*given, **settings)

    def price_anew(self: loop.Loop, units: Any) -> Any:
        self.priced = None
        return price(self, units)

    monkeypatch.setattr(loop, "full_speed_costs", count)
    found = play(config)
    assert len(counted) == asked
    monkeypatch.setattr(loop.Loop, "price", price_anew)
    expected = play(config)
    for one, other in zip(found.records, expected.records, strict=True):
        assert (one.virtual_seconds, one.joules) == (other.virtual_seconds, other.joules)


def test_evaluation_rhythm() -> None:
    records = play(tiny(run__rounds=5, run__eval_every=2)).records
    assert [r.round for r in records if r.accuracy is not None] == [0, 2, 4, 5]
    assert [r.round for r in records] == list(range(6))
    records = play(tiny(run__rounds=7, run__eval_every=4, run__eval_last=2)).records
    assert [r.round for r in records if r.accuracy is not None] == [0, 4, 6, 7]


def test_the_running_average_and_momentum_of_the_server() -> None:
    """Against the models of each round, put together by hand; an average changes no model."""
    plain, averaged, heavy = Models(), Models(), Models()
    digital = partial(tiny, radio__uplink="digital", run__rounds=3)
    play(digital(), callbacks=(plain,))
    history = play(digital(run__server_average=0.8), callbacks=(averaged,))
    play(digital(training__server_momentum=0.5), callbacks=(heavy,))
    mean = plain.models[0]
    for one, two in zip(plain.models[1:], averaged.models[1:], strict=True):
        assert np.array_equal(one, two)
        mean = 0.8 * mean + 0.2 * one
    assert averaged.average == pytest.approx(mean, abs=1e-6)
    assert history.average_score is not None
    moved = plain.models[2] + 0.5 * (plain.models[1] - plain.models[0])
    assert np.array_equal(heavy.models[1], plain.models[1])
    assert heavy.models[2] == pytest.approx(moved, abs=1e-6)


@pytest.mark.slow
def test_it_learns() -> None:
    history = play(tiny(run__rounds=40, scheme__name="local-sgd", data__samples_per_device=60))
    assert history.final_score > 0.8


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"run__target": 0.01}, "target"),
        ({"run__max_joules": 0.3}, "energy budget"),
        ({"run__max_virtual_seconds": 0.3}, "time budget"),
        ({}, "rounds"),
    ],
)
def test_budgets_stop_the_run(changes: dict[str, float], reason: str) -> None:
    config = tiny(**changes)
    history = play(config)
    assert history.stopped == reason
    if reason == "energy budget":
        assert history.final.total_joules >= 0.3 > history.records[-2].total_joules
    if reason == "time budget":
        assert history.final.virtual_seconds >= 0.3 > history.records[-2].virtual_seconds


@pytest.mark.parametrize(
    ("key", "measure"),
    [
        ("run__min_joules", lambda record: record.total_joules),
        ("run__min_virtual_seconds", lambda record: record.virtual_seconds),
        ("run__min_megabytes", lambda record: sum(record.bits.values()) / 8e6),
    ],
)
def test_a_run_continues_until_it_has_spent_enough(key: str, measure: Any) -> None:
    """Until six and a half rounds' worth, and with an evaluation at the end."""
    one = measure(play(tiny()).records[1])
    history = play(tiny(**{key: 6.5 * one}))
    assert history.final.round == 7
    assert history.stopped == "rounds"
    assert [record.round for record in history.evaluated] == [0, 2, 4, 6, 7]
    assert play(tiny(**{key: 0.5 * one})).final.round == 4


@pytest.mark.parametrize(
    ("key", "measure"),
    [
        ("run__min_joules", lambda record: record.total_joules),
        ("run__min_virtual_seconds", lambda record: record.virtual_seconds),
        ("run__min_megabytes", lambda record: sum(record.bits.values()) / 8e6),
    ],
)
def test_a_run_is_evaluated_near_the_budget_that_it_has_to_spend(key: str, measure: Any) -> None:
    """At 80, 85, 90, 95 and 100 % of 20.5 rounds' worth, and before training."""
    one = measure(play(tiny()).records[1])
    history = play(tiny(**{key: 20.5 * one, "run__rounds": 1, "run__eval_every": 1000}))
    assert [record.round for record in history.evaluated] == [0, 1, 17, 18, 19, 20, 21]


def test_patience_counts_evaluations_since_the_best() -> None:
    class Run_:
        stopped = None

        def __init__(self, records: list[Record]) -> None:
            self.records = records

        def stop(self, reason: str) -> None:
            self.stopped = reason

    records = [Record(i, a, 1.0, 0, {}) for i, a in enumerate([0.1, 0.5, None, 0.4, 0.5])]
    for patience, stops in ((3, False), (2, True)):
        for resumed in range(5):  # the rest is seen round by round
            run, watch = Run_(records[:resumed]), Patience(patience)
            watch.on_start(run)
            for record in records[resumed:]:
                watch.on_round(run, record)
            assert (run.stopped is not None) == stops


# Faults


def faults_of(history: History) -> dict[str, int]:
    return {
        name: sum(record.faults[name] for record in history.records)
        for name in history.final.faults
    }


def test_dropout_is_counted_and_the_round_goes_on() -> None:
    history = play(tiny(faults__dropout_probability=0.4, run__rounds=6))
    counts = faults_of(history)
    assert 0.2 * 120 < counts["absent"] < 0.6 * 120
    assert history.final.round == 6
    clean = play(tiny(run__rounds=6))
    assert history.final.joules["compute"] < clean.final.joules["compute"]
    again = play(tiny(faults__dropout_probability=0.4, run__rounds=6, machine__workers=2))
    assert again.weights_sha256 == history.weights_sha256


def test_dropout_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("round,device\n1,3\n2,0\n2,1\n")
    history = play(tiny(faults__dropout_trace=str(trace), scheme__name="fedavg"))
    assert [record.faults["absent"] for record in history.records] == [0, 1, 2, 0, 0]
    assert [record.units for record in history.records] == [0, 19, 18, 20, 20]


def test_all_absent_keeps_the_model(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{r},{k}\n" for r in range(1, 5) for k in range(20))
    trace.write_text("round,device\n" + rows)
    seen: list[str] = []

    class Watch(Callback):
        def on_start(self, run: Run) -> None:
            seen.append(run.weights.sha256())

    history = play(tiny(faults__dropout_trace=str(trace)), (Watch(),))
    assert history.weights_sha256 == seen[0]
    assert history.final.round == 4
    assert history.final.total_joules == 0


def test_failing_leader_is_replaced_by_the_best_uplink() -> None:
    config = tiny(faults__leader_failure_probability=0.5, scheme__name="clustered")
    history = play(config)
    assert faults_of(history)["leader_failures"] > 0
    from camu.simulation.attendance import Faults

    world = build_world(config)
    plan = make_scheme(config).plan(world)
    attendance = Faults.of(world).attend(plan, list(range(len(plan.units))), 0, 0.0)
    replaced = 0
    for number, part in attendance.units.items():
        own = plan.units[number]
        assert sum(part.member_weights) == pytest.approx(1)
        if part.leader != own.leader:
            replaced += 1
            assert own.leader not in part.members
            gains = world.links.uplink_gain[list(part.members)]
            assert world.links.uplink_gain[part.leader] == gains.max()
    assert replaced > 0


def test_outage_loses_updates_but_not_energy() -> None:
    history = play(tiny(radio__outage_snr_db=200.0))
    assert faults_of(history)["outages"] == 4 * len(history.records[1].waiting_seconds)
    assert all(record.units == 0 for record in history.records)
    assert history.final.total_joules == pytest.approx(play(tiny()).final.total_joules)


def test_corrupt_updates_are_refused_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    history = play(tiny(faults__corrupt_probability=0.5, run__rounds=6))
    refused = faults_of(history)["refused"]
    assert refused > 5
    assert "not finite" in caplog.text
    assert "max_update_norm" in caplog.text
    together = map(int, re.findall(r"(\d+) of \d+ units are refused; unit", caplog.text))
    assert caplog.text.count("is refused") + sum(together) == refused
    assert caplog.text.count("refused") <= 6  # a line per round
    assert history.final.loss is not None  # a model that blew up has none


# Asynchronous rounds fit the same loop


@dataclasses.dataclass(frozen=True)
class Async(FedAvg):
    """Each arrival is mixed in by itself, late ones less."""

    share: float = 0.5

    def ready(self, view: View, state: State) -> bool:
        return len(view.arrived) >= 1

    def aggregate(self, view: View, state: State) -> Weights:
        return add_updates(view, [self.share / (1 + a.staleness) for a in view.arrived])


def test_asynchronous_scheme_needs_no_second_loop() -> None:
    config = tiny(run__rounds=60, radio__access="ofdma")
    world = build_world(config)
    history = simulate(world, Async()).history
    assert all(record.units == 1 for record in history.records[1:])
    times = [record.virtual_seconds for record in history.records]
    assert times == sorted(times)
    # Fast devices come round again before slow ones have arrived once.
    plan = Async().plan(world)
    first = sorted(unit.ready_seconds + unit.uplink_seconds for unit in plan.units)
    assert times[1] == pytest.approx(first[0])
    assert times[20] < first[-1] or times[20] == pytest.approx(first[-1])
    assert simulate(world, Async()).history.weights_sha256 == history.weights_sha256


def test_a_mixing_weight_is_not_renormalised_away() -> None:
    world = build_world(tiny(run__rounds=8))
    bits = {simulate(world, Async(share)).history.weights_sha256 for share in (1.0, 0.5, 1e-3)}
    assert len(bits) == 3


def test_a_unit_that_starts_alone_shares_the_band_with_those_in_flight() -> None:
    """OFDMA: every unit's uplink takes as long as in the synchronous round it began with."""
    world = build_world(tiny(run__rounds=40, radio__access="ofdma"))
    seen: dict[int, set[float]] = {}

    class Spy(Async):
        def ready(self, view: View, state: State) -> bool:
            for arrival in view.arrived:
                seen.setdefault(arrival.unit, set()).add(round(arrival.seconds, 9))
            return super().ready(view, state)

    simulate(world, Spy())
    assert any(len(times) >= 1 for times in seen.values())
    assert all(len(times) == 1 for times in seen.values())


def test_updates_in_flight_at_the_end_are_charged() -> None:
    world = build_world(tiny(run__rounds=3))
    plan = Async().plan(world)
    history = simulate(world, Async()).history
    # Everybody started at once, and one unit more after each of the first two arrivals.
    assert history.final.total_joules > plan.round_joules
    assert history.records[1].total_joules == pytest.approx(plan.round_joules)


def test_own_callback_can_stop() -> None:
    class Once(Callback):
        ended = False

        def on_round(self, run: Run, record: Record) -> None:
            run.stop("enough")

        def on_end(self, run: Run, history: History) -> None:
            self.ended = True

    once = Once()
    assert play(tiny(), (once,)).stopped == "enough"
    assert once.ended
