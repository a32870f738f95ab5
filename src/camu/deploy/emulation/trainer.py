"""A trainer whose updates cross emulated links: what arrives is what the server uses.

Devices compute for as long as the world says. Then members send to their leader, in turn, the
leader answers, and leaders send to the base station, in turn under TDMA. Each transfer is one of as
many bytes over TCP, at the rate that the world gives its link in that round.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from camu.deploy.emulation.network import Network
from camu.errors import CamuError
from camu.learning.engine import Engine
from camu.learning.job import Evaluation, Job, Trained
from camu.learning.weights import Weights
from camu.planning.prices import model_bits, unit_costs
from camu.planning.unit import Unit
from camu.world import World


@dataclass
class Transfers:
    """What one unit did in a round: as the world has it, and as it was measured."""

    round: int
    unit: int
    devices: int
    compute_seconds: float = 0.0
    measured_compute_seconds: float = 0.0
    gather_seconds: float = 0.0
    measured_gather_seconds: float = 0.0
    uplink_seconds: float = 0.0
    measured_uplink_seconds: float = 0.0
    payload_bytes: int = 0  # of gathers and uplink
    joules: float = 0.0  # by the model
    carried: bool = True  # whether the model itself was in the uplink
    whole: bool = True  # whether all arrived as it was sent


@dataclass
class EmulatedTrainer:
    """An engine, and links between its devices."""

    engine: Engine
    world: World
    network: Network
    base: int  # number of the base station's namespace
    slower: float  # than the world: by so much all seconds are longer
    in_turn: bool
    rows: list[Transfers] = field(default_factory=list)
    rounds: list[dict[str, float]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the engine's."""
        return getattr(self.engine, name)

    def evaluate(self, weights: Weights) -> Evaluation:
        """On the engine's test samples."""
        return self.engine.evaluate(weights)

    def iterate(
        self,
        start: Weights | Sequence[Weights],
        jobs: Iterable[Job],
        round_number: int,
        deliver: Callable[[int, Trained], Any],
    ) -> Iterator[Any]:
        """The outcome of each job, from what has arrived."""
        found = [
            one._replace(weights=one.weights.copied())
            for one in self.engine.iterate(start, list(jobs), round_number)
        ]
        units: Sequence[Unit] = deliver.units  # type: ignore[attr-defined]
        arrived = self._send(units, found, round_number)
        for number, (one, weights) in enumerate(zip(found, arrived, strict=True)):
            yield deliver(number, one._replace(weights=weights))

    def _send(self, units: Sequence[Unit], found: list[Trained], number: int) -> list[Weights]:
        """Carry out a round; the weights as the base station has them."""
        links, size = self.world.links, len(found[0].weights.parameters)
        costs = unit_costs(
            self.world,
            [unit.members for unit in units],
            [unit.leader for unit in units],
            [unit.power_watts for unit in units],
            [unit.payload_bits for unit in units],
            size,
            rules=[unit.rule for unit in units],
            uplink_gain=links.uplink_gain * links.rated_fading(number),
            round_=number,
            cpu_share=[unit.cpu_share for unit in units],
        )
        bits = model_bits(self.world, size)
        band, before = threading.Lock(), self.network.sent_bytes()
        tasks = [
            _Task(self, number, place, unit, costs, bits, one, band)
            for place, (unit, one) in enumerate(zip(units, found, strict=True))
        ]
        for task in tasks:
            task.prepare()
        began = time.monotonic()
        with ThreadPoolExecutor(len(tasks)) as pool:
            weights = list(pool.map(_Task.carry_out, tasks))
        wall = time.monotonic() - began
        sent = sum(self.network.sent_bytes()) - sum(before)
        self.rows += [task.row for task in tasks]
        payload = sum(task.row.payload_bytes for task in tasks)
        self.rounds.append({"wall_seconds": wall, "wire_bytes": sent, "payload_bytes": payload})
        return weights


@dataclass
class _Task:
    """One unit in one round."""

    trainer: EmulatedTrainer
    number: int
    place: int
    unit: Unit
    costs: Any
    bits: int
    trained: Trained
    band: threading.Lock

    def prepare(self) -> None:
        """Make connections and rates before the clock runs."""
        unit, costs, slower = self.unit, self.costs, self.trainer.slower
        network, world = self.trainer.network, self.trainer.world
        self.row = Transfers(self.number + 1, self.place, len(unit.members))
        self.others = [member for member in unit.members if member != unit.leader]
        self.row.compute_seconds = unit.local_updates * float(costs.compute_seconds[self.place])
        self.row.gather_seconds = unit.local_updates * float(costs.gather_seconds[self.place])
        self.row.uplink_seconds = float(costs.uplink_seconds[self.place])
        self.row.joules = float(
            costs.round_joules(np.full(len(costs.sizes), float(unit.local_updates)))[self.place]
        )
        leaders = np.full(len(self.others), unit.leader)
        if self.others:
            mine = np.array(self.others)
            gain = world.links.pair_gain(mine, leaders, self.number)
            air = world.links.transmit_seconds(self.bits, world.devices.power_watts[mine], gain)
            for member, seconds in zip(self.others, np.broadcast_to(air, len(mine)), strict=True):
                network.shape(member, self.bits / float(seconds) / slower)
                network.line(member, unit.leader)
            network.line(unit.leader, self.others[0])
        self.uplink_rate = unit.payload_bits / self.row.uplink_seconds / slower
        network.line(unit.leader, self.trainer.base)
        network.shape(unit.leader, self.uplink_rate)

    def carry_out(self) -> Weights:
        """Compute, gather and send; the weights that arrived."""
        unit, row, trainer = self.unit, self.row, self.trainer
        state = self.trained.weights
        model = np.concatenate((state.parameters, state.buffers)).tobytes()
        answer = float(self.costs.answer_seconds[self.place])
        piece = self.bits // 8
        for _ in range(unit.local_updates):
            began = time.monotonic()
            time.sleep(trainer.slower * row.compute_seconds / unit.local_updates)
            row.measured_compute_seconds += time.monotonic() - began
            for member in self.others:
                row.measured_gather_seconds += self._pass(member, unit.leader, model, piece)[0]
            if self.others:
                trainer.network.shape(unit.leader, self.bits / answer / trainer.slower)
                back = unit.leader, self.others[0]
                row.measured_gather_seconds += self._pass(*back, model, piece)[0]
        trainer.network.shape(unit.leader, self.uplink_rate)
        size = -(-unit.payload_bits // 8)
        with self.band if trainer.in_turn else threading.Lock():
            seconds, content = self._pass(unit.leader, trainer.base, model, int(size))
        row.measured_uplink_seconds = seconds
        row.carried = len(content) >= len(model)
        if not row.carried:  # a compressed update is shorter than the model
            return state
        numbers = np.frombuffer(content[: len(model)], np.float32)
        split = len(state.parameters)
        return Weights(numbers[:split], numbers[split:], state.layout)

    def _pass(self, sender: int, receiver: int, model: bytes, size: int) -> tuple[float, bytes]:
        """Send as many bytes; the seconds until all have arrived, and what has arrived."""
        content = (model + bytes(max(0, size - len(model))))[:size]
        self.row.payload_bytes += size
        out, into = self.trainer.network.line(sender, receiver)
        began = time.monotonic()
        writer = threading.Thread(target=out.sendall, args=(content,), daemon=True)
        writer.start()
        parts, left = [], size
        while left:
            part = into.recv(min(left, 1 << 16))
            if not part:
                raise CamuError("an emulated link was cut")
            parts.append(part)
            left -= len(part)
        seconds = time.monotonic() - began
        writer.join()
        found = b"".join(parts)
        self.row.whole &= hashlib.sha256(found).digest() == hashlib.sha256(content).digest()
        return seconds, found
