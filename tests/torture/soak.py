"""A long deployment with random kills: memory and descriptors of every process must stay flat."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from torture.calls import tell
from torture.deployments import (
    VICTIMS,
    Place,
    clean,
    judge,
    kind_of,
    living,
    make_place,
    note_ports,
    start,
    strike,
)

# Each node has a unit of its own, so that all of them work in every round.
WORLD = """extends = "demo"
[scheme]
name = "fedavg"
[training]
model = "logistic"
[run]
rounds = {rounds}
eval_every = 10
[machine]
workers = 1
[[fleet.regions]]
name = "I"
devices = {nodes}
x = [-10.0, 10.0]
y = [-10.0, 10.0]
"""
FAULTS = ("kill node", "kill node", "kill server", "kill superlink", "stop node")
SAMPLE_SECONDS = 2.0
WARM_UP = 0.3  # share of a process's samples since its first round that are left out
FEWEST_ROUNDS = 10  # a process must have seen so many after its warm-up to be judged
GROWTH = 0.10  # of its memory, over the time that it was watched
GROWTH_BYTES = 20e6  # below this a rise is no growth
GROWTH_DESCRIPTORS = 4.0


@dataclass
class Life:
    """What was seen of one process: rounds done, bytes and descriptors."""

    kind: str
    samples: list[tuple[int, int, int]] = field(default_factory=list)

    def rise(self) -> tuple[int, float, float, float] | None:
        """Rounds watched, mean bytes, and the rise of bytes and descriptors by a fitted line.

        What a process takes before its first round is its start: it loads its modules, and twenty
        nodes open their connections.
        """
        begun = [sample for sample in self.samples if sample[0] > self.samples[0][0]]
        late = np.array(begun[int(WARM_UP * len(begun)) :], dtype=np.float64)
        if len(late) < 5 or np.ptp(late[:, 0]) < FEWEST_ROUNDS:
            return None
        span = np.ptp(late[:, 0])
        slopes = np.polyfit(late[:, 0], late[:, 1:], 1)[0] * span
        return int(span), float(late[:, 1].mean()), float(slopes[0]), float(slopes[1])

    def grows(self) -> bool:
        """Whether memory or descriptors grow."""
        found = self.rise()
        if found is None:
            return False
        _, mean, memory, descriptors = found
        return memory > max(GROWTH * mean, GROWTH_BYTES) or descriptors > GROWTH_DESCRIPTORS


def soak(
    folder: Path, nodes: int, rounds: int, minutes: float, seed: int
) -> tuple[dict[str, int], list[str]]:
    """Run it; the number of processes judged by kind, and a line for each that grows."""
    dice = random.Random(f"{seed}/soak")
    place = make_place(folder / "s", WORLD.format(nodes=nodes, rounds=rounds))
    faults: list[str] = []  # still to come
    lives: dict[tuple[int, float], Life] = {}
    every = max(3, rounds // 12)
    struck, starts = 0, 1
    deadline = time.monotonic() + 60 * minutes
    process = start(place, nodes)
    try:
        while time.monotonic() < deadline:
            time.sleep(SAMPLE_SECONDS)
            done = len(place.rounds())
            note_ports(place)
            look(place, done, lives)
            if done < rounds - every and done > every * (struck + 1):
                struck += 1
                faults = faults or dice.sample(FAULTS, len(FAULTS))
                strike(place, faults.pop(), dice)
            if process.poll() is not None:
                if process.returncode == 0 or starts > rounds:
                    break
                starts += 1
                process = start(place, nodes)
        silent = longest_silence([record["units"] for record in place.records()[1:]], nodes)
        print(
            f"soak: {len(place.rounds())} lines of history, {struck} faults, {starts} starts; "
            f"at most {silent} rounds in a row without an answer of every node"
        )
        wrong = ended(place, process, rounds)
        if not wrong and silent > every:
            wrong = f"a node did not answer in {silent} rounds, of {every} between two faults"
        return report(lives, wrong)
    finally:
        clean(place)


def longest_silence(answers: list[int], nodes: int) -> int:
    """The most rounds in a row in which not every node answered."""
    longest = current = 0
    for answered in answers:
        current = 0 if answered == nodes else current + 1
        longest = max(longest, current)
    return longest


def ended(place: Place, process: subprocess.Popen[bytes], rounds: int) -> str:
    """What is wrong at the end; a run that was not done in time is named as such."""
    if process.poll() is None:
        return f"not done in time: {len(place.rounds())} of {rounds + 1} lines of history"
    return judge(place, process, rounds)


def look(place: Place, done: int, lives: dict[tuple[int, float], Life]) -> None:
    """Write down memory and descriptors of every process."""
    for process in living(place.mark):
        with contextlib.suppress(psutil.Error, OSError):
            key = (process.pid, process.create_time())
            life = lives.setdefault(key, Life(kind_of(process)))
            life.samples.append((done, process.memory_info().rss, process.num_fds()))


def report(lives: dict[tuple[int, float], Life], wrong: str) -> tuple[dict[str, int], list[str]]:
    """Print a table of all kinds; returns how many were judged, and what grows."""
    tried: dict[str, int] = {}
    failures = [tell(f"soak: {wrong}")] if wrong else []
    print("| process | seen | judged | most rounds | MB | most MB more | most descriptors more | |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in VICTIMS:
        own = [life for life in lives.values() if life.kind == kind]
        rises = [rise for life in own if (rise := life.rise()) is not None]
        tried[kind] = len(rises)
        if not rises:
            print(f"| {kind} | {len(own)} | 0 | | | | | too short |")
            continue
        spans, means, memory, descriptors = np.array(rises).T
        growing = [life for life in own if life.grows()]
        failures += [tell(f"{kind}: grows: {life.rise()}") for life in growing]
        print(
            f"| {kind} | {len(own)} | {len(rises)} | {spans.max():.0f} | {means.max() / 1e6:.0f} "
            f"| {memory.max() / 1e6:+.1f} | {descriptors.max():+.1f} "
            f"| {'growing' if growing else 'flat'} |"
        )
    return tried, failures
