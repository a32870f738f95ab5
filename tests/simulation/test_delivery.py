"""Updates on their way to the server: made on workers, added up as they come, never kept."""

from __future__ import annotations

import dataclasses
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.errors import UserCodeError
from camu.learning import pool
from camu.learning.batched_kernel import UNITS
from camu.learning.engine import Engine
from camu.learning.job import Job, Trained
from camu.learning.weights import WeightedSum, Weights
from camu.planning.codecs import Sparse
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes import FedAvg, State, View
from camu.schemes.aggregation import MeanUpdate
from camu.seeding import Stream
from camu.simulation import Callback, Record, Run, loop, simulate
from camu.simulation.hooks import Hooks
from camu.simulation.loop import Loop
from camu.simulation.result import build_engine
from camu.simulation.run import Update
from camu.simulation.uplink import Delivery, delivery_of
from camu.world import World, build_world
from helpers.configs import small

FAULTY = {
    "faults__dropout_probability": 0.2,
    "faults__corrupt_probability": 0.3,
    "radio__outage_snr_db": 23.0,
    "radio__fading": "rayleigh",
}

TASKS = 4  # that the pool holds in these tests, and the results of so many
RESULTS = TASKS * max(pool.BUNDLE_ITEMS, UNITS)  # a task is a bundle, or units that step at once


@dataclass(frozen=True)
class Uneven(FedAvg):
    """Units that differ in weight, updates and codec."""

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        shares = np.arange(1.0, len(groups) + 1)
        codecs = [Sparse(0.2) if k % 3 else Sparse(1.0) for k in range(len(groups))]
        updates = [1 + k % 3 for k in range(len(groups))]
        return make_plan(self, groups, shares / shares.sum(), updates, codec=codecs)


@dataclass(frozen=True)
class Collected(Uneven):
    """The same, but all updates of a round are collected before they are added."""

    def aggregate(self, view: View, state: State) -> Weights:
        arrived = sorted(view.arrived, key=lambda arrival: arrival.unit)
        changes = []
        for before, of in (
            (view.weights.parameters, [a.update for a in arrived]),
            (view.weights.buffers, [a.buffers for a in arrived]),
        ):
            total, mean = 0.0, np.zeros(before.shape)
            for arrival, change in zip(arrived, of, strict=True):
                total += arrival.weight
                mean += arrival.weight * change.astype(np.float64)
            changes.append((before.astype(np.float64) + mean / total).astype(np.float32))
        return Weights(changes[0], changes[1], view.weights.layout)


class Watch(Callback):
    """Keeps the models and the records of a run."""

    def __init__(self) -> None:
        self.models: list[str] = []
        self.records: list[Record] = []

    def on_round(self, run: Run, record: Record) -> None:
        self.models.append(run.weights.sha256())
        self.records.append(record)
        assert not run.in_flight


def play(scheme: FedAvg, **changes: Any) -> Watch:
    watch = Watch()
    simulate(build_world(small(run__rounds=4, **changes)), scheme, [watch])
    return watch


def test_a_scheme_that_sees_arrivals_gets_them_and_any_other_needs_none() -> None:
    assert not Hooks(Uneven(), {}).shows_arrivals
    assert Hooks(Collected(), {}).shows_arrivals


@pytest.mark.parametrize("changes", [{}, FAULTY, {"radio__access": "ofdma"}])
def test_adding_up_as_they_come_gives_the_bits_of_collecting_first(changes: dict[str, Any]) -> None:
    streamed, collected = play(Uneven(), **changes), play(Collected(), **changes)
    assert streamed.models == collected.models
    assert streamed.records == collected.records
    assert len(set(streamed.models)) == 4


def test_faults_are_met_while_adding_up() -> None:
    faults = [record.faults for record in play(Uneven(), **FAULTY).records]
    for kind in ("absent", "outages", "refused"):
        assert sum(each[kind] for each in faults) > 2


def test_same_bits_for_any_number_of_workers_with_faults_and_codecs() -> None:
    runs = [play(Uneven(), machine__workers=workers, **FAULTY) for workers in (1, 2, 3)]
    assert runs[0].models == runs[1].models == runs[2].models
    assert runs[0].records == runs[1].records == runs[2].records


def test_a_round_in_which_nothing_usable_arrives_changes_nothing() -> None:
    for changes in ({"radio__outage_snr_db": 200.0}, {"training__max_update_norm": 1e-9}):
        watch = play(Uneven(), **changes)
        assert len(set(watch.models)) == 1
        assert [record.units for record in watch.records] == [0] * 4


class Counting:
    """Counts the updates that are alive at the same time."""

    def __init__(self) -> None:
        self.alive, self.most, self.made = 0, 0, 0
        self.lock = threading.Lock()

    def watch(self, received: Update) -> Update:
        assert received.update.size
        with self.lock:
            self.made += 1
            self.alive += 1
            self.most = max(self.most, self.alive)
        weakref.finalize(received.update, self.forget)
        return received

    def forget(self) -> None:
        with self.lock:
            self.alive -= 1


@pytest.mark.parametrize(("scheme", "bounded"), [(FedAvg(), True), (Collected(), False)])
def test_the_updates_in_memory_do_not_grow_with_the_units(
    scheme: FedAvg, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TASKS_AHEAD", TASKS)
    units, counting, plain = 3 * RESULTS, Counting(), Delivery.__call__
    monkeypatch.setattr(
        Delivery, "__call__", lambda self, job, trained: counting.watch(plain(self, job, trained))
    )
    add = MeanUpdate.add

    def add_slowly(*given: Any) -> None:  # workers have time to go as far ahead as they may
        time.sleep(0.001)
        add(*given)

    monkeypatch.setattr(MeanUpdate, "add", add_slowly)
    regions = [{"name": "All", "devices": units, "x": (-10.0, 20.0), "y": (-5.0, 5.0)}]
    config = small(
        run__rounds=1,
        machine__workers=2,
        training__model="logistic",
        fleet__regions=regions,
        data__samples_per_device=3,
        data__partition="iid",
        data__with_replacement=True,
    )
    simulate(build_world(config), scheme)
    assert counting.made == units
    # Those that the pool holds, and those that are being added.
    assert (counting.most <= RESULTS + 2 + WeightedSum.HELD) == bounded


def test_jobs_are_made_as_workers_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "TASKS_AHEAD", TASKS)
    world = build_world(small(training__model="logistic", machine__workers=2))
    made: list[int] = []

    def jobs(count: int) -> Iterator[Job]:
        for number in range(count):
            made.append(number)
            yield Job((number % 20,), (1.0,))

    with build_engine(world) as engine:
        stream = engine.iterate(engine.initial, jobs(3 * RESULTS), 0)
        next(stream)
        assert len(made) <= RESULTS + 1
        assert 1 + sum(1 for _ in stream) == 3 * RESULTS


def test_deliveries_are_made_where_the_job_was_trained() -> None:
    threads: set[str] = set()

    def deliver(number: int, trained: Trained) -> int:
        threads.add(threading.current_thread().name)
        return number

    with build_engine(build_world(small(machine__workers=2))) as engine:
        jobs = [Job((number,), (1.0,)) for number in range(20)]
        assert list(engine.iterate(engine.initial, jobs, 0, deliver)) == list(range(20))
    assert threads
    assert all(name.startswith("camu-worker") for name in threads)


def test_a_delivery_that_went_to_another_process_does_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        loop, "delivery_of", lambda *arguments: pickle.loads(pickle.dumps(delivery_of(*arguments)))
    )
    copied = play(Uneven(), **FAULTY)
    monkeypatch.undo()
    assert copied.models == play(Uneven(), **FAULTY).models


class Other:
    """A trainer from which every third job does not come back, as nodes that are silent."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.oracle, self.initial = None, engine.initial
        self.evaluate, self.provenance = engine.evaluate, engine.provenance

    def iterate(
        self, start: Weights, jobs: Iterable[Job], round_number: int, deliver: Callable[..., Any]
    ) -> Iterator[Any]:
        outcomes = self.engine.iterate(start, jobs, round_number, deliver)
        return (None if number % 3 == 0 else each for number, each in enumerate(outcomes))


def test_a_unit_that_sends_nothing_is_not_charged() -> None:
    world = build_world(small())
    scheme = FedAvg()
    with build_engine(world) as engine:
        run = Run.new(world, scheme.plan(world), engine.initial)
        record = Loop(run, scheme, Other(engine)).round()
    silent = np.arange(0, 20, 3)
    assert record.units == 20 - len(silent)
    assert not run.device_joules[silent].any()
    assert np.delete(run.device_joules, silent).all()
    assert run.device_joules.sum() == pytest.approx(record.total_joules, rel=1e-12)


@dataclass(frozen=True)
class Broken:
    """A codec of the user's that fails."""

    def bits(self, parameters: int) -> int:
        return 32

    def encode(self, update: Any, memory: Any, stream: Stream) -> Any:
        raise ZeroDivisionError("nothing to divide by")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_users_codec_on_a_worker_names_their_line(workers: int) -> None:
    @dataclass(frozen=True)
    class Failing(FedAvg):
        def plan(self, world: World) -> Plan:
            plan = super().plan(world)
            units = [dataclasses.replace(unit, codec=Broken()) for unit in plan.units]
            return dataclasses.replace(plan, units=tuple(units))

    said = r"^codec Broken: .*test_delivery\.py, line \d+, in encode: ZeroDivisionError: nothing"
    with pytest.raises(UserCodeError, match=said):
        play(Failing(), machine__workers=workers)


def test_workers_may_load_the_users_uplink_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "import time\ntime.sleep(0.2)\n\ndef kept(update, snr, generator):\n    return update\n"
    (tmp_path / "slow_air.py").write_text(slow)
    monkeypatch.chdir(tmp_path)
    run = partial(play, FedAvg(), machine__workers=3)
    own = run(radio__uplink="./slow_air.py:kept")
    assert own.models == run(radio__uplink="digital").models
