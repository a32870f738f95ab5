"""Runs that kill their own process at a chosen moment, and schemes that have much to lose."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from camu import files, sealed
from camu.config import Config
from camu.learning.engine import Engine
from camu.learning.weights import Weights
from camu.schemes import (
    FedAvg,
    Pilot,
    Plan,
    Quantised,
    Sparse,
    State,
    View,
    make_plan,
    single_devices,
)
from camu.seeding import Stream
from camu.simulation import Callback, Record, Run, callbacks, checkpoint
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.world import World

# The moments at which a run dies, in the order in which they are tried on one directory that is
# saved after every second round.
MOMENTS = (
    "before plan.json",
    "after round 3",
    "in training after round 4",
    "inside checkpoint 6",
    "while rounds.jsonl is rewritten",
    "before checkpoint 8 is renamed",
    "inside line 9",
)


# Processes are forked from one that has imported everything and computed nothing.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["camu.simulation.directory", "camu.learning.models", "sklearn.cluster"]
)


def in_own_process(config: str, out: Path, moment: str | None) -> int:
    """The exit code of a run in a process of its own."""
    process = PROCESSES.Process(target=run, args=(config, str(out), moment))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def run(config: str, out: str, moment: str | None) -> None:
    """Run or resume until the end, or until the process kills itself."""
    watchers: list[Callback] = []
    if moment is not None:
        watchers = _prepare(moment)
    run_in_directory(Config.from_toml(config, "test"), RunDirectory(Path(out)), True, watchers)


def read_plan(out: str) -> None:
    """Read the plan of a run."""
    RunDirectory(Path(out)).read_plan()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _After(Callback):
    def __init__(self, last: int) -> None:
        self.last = last

    def on_round(self, run: Run, record: Record) -> None:
        if record.round == self.last:
            _die()


def _prepare(moment: str) -> list[Callback]:
    """Make this process die at a moment; nothing is undone, because nothing outlives it."""
    if moment == "after round 3":
        return [_After(3)]
    if moment == "in training after round 4":
        _die_in_training(4)
    elif moment == "inside checkpoint 6":
        _die_inside_a_checkpoint(6)
    elif moment == "inside line 9":
        _die_inside_a_line(9)
    else:
        names = {
            "before plan.json": "plan.json",
            "while rounds.jsonl is rewritten": "rounds.jsonl",
            "before checkpoint 8 is renamed": "state.safetensors",
        }
        _die_before_renaming(names[moment], 8 if "8" in moment else None)
    return []


def _die_in_training(rounds: int) -> None:
    plain = Engine.iterate

    def iterate(
        self: Engine, start: Any, jobs: Any, round_number: int, deliver: Any
    ) -> Iterator[Any]:
        jobs = list(jobs)
        for number, outcome in enumerate(plain(self, start, jobs, round_number, deliver)):
            if round_number >= rounds and number == len(jobs) - 1:
                _die()
            yield outcome

    Engine.iterate = iterate  # type: ignore[method-assign]


def _die_inside_a_checkpoint(last: int) -> None:
    plain = sealed.save_file

    def save(arrays: Any, path: Any, metadata: dict[str, str]) -> None:
        plain(arrays, path, metadata=metadata)
        if json.loads(metadata["camu"])["round"] == last:
            os.truncate(path, os.path.getsize(path) // 2)
            _die()

    sealed.save_file = save


def _die_inside_a_line(last: int) -> None:
    plain = callbacks.HistoryFile.on_round

    def on_round(self: callbacks.HistoryFile, run: Run, record: Record) -> None:
        if record.round == last:
            assert self.stream is not None
            self.stream.write(json.dumps(record.to_dict())[:40])
            self.stream.flush()
            _die()
        plain(self, run, record)

    callbacks.HistoryFile.on_round = on_round  # type: ignore[method-assign]


def _die_before_renaming(name: str, last: int | None) -> None:
    plain = os.replace

    def replace(source: Any, target: Any) -> None:
        chosen = Path(target).name == name
        if chosen and (last is None or checkpoint.checkpoint_place(Path(source))[0] == last):
            _die()
        plain(source, target)

    files.os.replace = replace  # type: ignore[attr-defined]


# Schemes


@dataclass(frozen=True)
class Sparsified(FedAvg):
    """A codec with memory."""

    share: float = 0.2

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights, 2, codec=Sparse(self.share))


@dataclass(frozen=True)
class Signs:
    """A codec of one's own, with memory."""

    factor: float = 1.0

    def bits(self, parameters: int) -> int:
        return 32 + parameters

    def encode(
        self, update: np.ndarray, memory: np.ndarray | None, stream: Stream
    ) -> tuple[np.ndarray, np.ndarray | None]:
        whole = update if memory is None else update + memory
        sent = np.sign(whole) * np.float32(self.factor) * np.abs(whole).mean()
        return sent, whole - sent


@dataclass(frozen=True)
class Everything(FedAvg):
    """Uses all there is: a pilot, sampling, corrections, three codecs, stale updates, new plans."""

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        codecs = [Sparse(0.1), Quantised(3), Signs(0.5)] * 2
        return make_plan(self, groups, groups.sample_weights, codec=codecs)

    def pilot(self, pilot: Pilot, state: State) -> Plan | None:
        state["z"] = pilot.train(pilot.plan, 1).losses[0]
        state["rate"] = np.float32(1) / np.float32(3)
        state["text"], state["flag"] = "a.b", True
        return pilot.plan.with_updates([2] * 6)

    def select(self, view: View, state: State) -> Sequence[int]:
        state["counts"] = np.zeros(6, np.int64) if "counts" not in state else state["counts"]
        drawn = view.random().numpy().permutation(view.idle)
        chosen: list[int] = drawn[: max(1, len(drawn) - 1)].tolist()
        state["counts"][chosen] += 1
        return chosen

    def correction(self, view: View, state: State, unit: int) -> np.ndarray | None:
        moved: np.ndarray = view.weights.parameters - view.before.parameters
        own = view.kept.get(unit, np.zeros_like(moved))
        return moved + own + state["rate"] * state.get("velocity", np.zeros_like(moved))

    def keep(
        self, view: View, state: State, unit: int, change: np.ndarray, kept: np.ndarray | None
    ) -> np.ndarray | None:
        if unit == 5 and kept is not None:
            return None
        return 0.1 * (change if kept is None else kept + state["rate"] * change)

    def deadline(self, view: View, state: State) -> float | None:
        return view.seconds + 0.7 * view.plan.round_seconds

    def ready(self, view: View, state: State) -> bool:
        return len(view.arrived) >= 3

    def aggregate(self, view: View, state: State) -> Weights:
        mean = super().aggregate(view, state)
        step = mean.parameters - view.weights.parameters
        for own in view.kept.values():  # in the order in which they came
            step = step + np.float32(0.01) * own
        state["rate"] = state["rate"] * 0.9  # of numpy: stays single precision
        if "one" not in state:  # two names of one array, and an array in another order
            state["one"] = state["two"] = np.zeros(3, np.float32)
            state["across"] = (np.arange(1, 4001, dtype=np.float32) / 7).reshape(40, 100).T
        state["one"] += np.float32(0.001)
        step = step * (1 + state["two"].sum()) * np.float32(state["across"].sum() / 1143000)
        state["velocity"] = state["rate"] * state.get("velocity", np.zeros_like(step)) + step
        # Single numbers, added in the order of their names.
        state["sum"] = sum(
            float(value)
            for value in state.values()
            if np.isscalar(value) and not isinstance(value, str)
        )
        return mean.with_parameters(view.weights.parameters + state["velocity"])

    def revise(self, view: View, state: State) -> Plan | None:
        if view.round % 3:
            return None
        return view.plan.with_updates([1 + (view.round + unit) % 3 for unit in range(6)])
