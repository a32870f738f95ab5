"""What sending all data to a server once costs, in place of learning on the devices.

Every device sends its samples itself, over its own link, as bits that arrive without error, on the
channels and with the access of a round in which all devices send. It draws idle power until its
last sample has arrived; where rounds have an interval, what resting takes is not counted. Data that
devices collect later have to be sent later, which is not counted either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from camu.arrays import Float64
from camu.data import dataset_spec
from camu.errors import InputError
from camu.learning.flops import training_flops
from camu.planning.codecs import parameter_count
from camu.planning.plan import Plan
from camu.planning.prices import unit_costs
from camu.planning.queues import arrivals
from camu.world import World
from camu.world.boards import Board
from camu.world.devices import update_samples

_MOST_BYTES = 1e9  # of a sample
_LEAST_BYTES = 1e-6


class Bill(NamedTuple):
    """What something costs the whole fleet."""

    seconds: float
    joules: float  # of the devices
    megabytes: float  # all that is sent


@dataclass(frozen=True, eq=False)
class Sending:
    """Every device sends its samples once, one array entry each."""

    sample_bytes: float
    bits: Float64
    arrival_seconds: Float64  # when its last sample has arrived
    transmit_joules: Float64
    idle_joules: Float64

    @property
    def bill(self) -> Bill:
        """What it costs the fleet."""
        joules = float(self.transmit_joules.sum() + self.idle_joules.sum())
        return Bill(float(self.arrival_seconds.max()), joules, float(self.bits.sum()) / 8e6)


def sample_bytes(world: World) -> float:
    """The size of a sample with its target: `data.sample_bytes`, or as the data set stores it.

    A number of an image is a byte, other numbers are four; tokens and classes are whole bytes.
    """
    data = world.config.data
    if data.sample_bytes is not None:
        return data.sample_bytes
    spec = dataset_spec(data.model_copy(update={"standardise": False}))
    each = {"images": 1, "numbers": 4, "tokens": _whole_bytes(spec.vocabulary)}[spec.inputs]
    # The last token of a text is a target only.
    targets = {"classes": _whole_bytes(spec.classes), "numbers": 4 * spec.width, "next-token": each}
    return float(math.prod(spec.shape) * each + targets[spec.target])


def _whole_bytes(values: int) -> int:
    """The bytes of a whole number below this one."""
    return max(1, math.ceil(math.log2(max(values, 2)) / 8))


def send_data(world: World, bytes_: float | None = None) -> Sending:
    """What it costs that every device sends all its samples to the base station once.

    Parameters:
        world: the fleet.
        bytes_: the size of a sample; by default `sample_bytes` of this world.

    Returns:
        Bits, times and energies of every device, at its own power and over its own link type, with
        the contention and the duty cycle of a round in which all devices send.
    """
    size = sample_bytes(world) if bytes_ is None else bytes_
    radio = world.config.radio
    if radio.uplink in ("analog", "packet"):  # data are bits, and all of them are needed
        config = world.config.replace({"radio.uplink": "digital", "radio.packet_tries": 1})
        world = replace(world, config=config)
    count = world.devices.count
    bits = np.ceil(8 * size * world.devices.samples)
    costs = unit_costs(
        world,
        [(device,) for device in range(count)],
        range(count),
        world.devices.power_watts,
        bits.astype(np.int64),
        parameter_count(world),
    )
    arrived = arrivals(np.zeros(count), costs.uplink_seconds, radio.access, costs.queues)
    watts = world.devices.idle_watts
    if world.config.run.every_seconds is not None:  # devices rest where they do nothing
        watts = np.maximum(watts - world.devices.resting_watts, 0.0)
    idle = watts * arrived
    return Sending(size, bits, arrived, costs.uplink_joules, idle)


@dataclass(frozen=True)
class ServerTraining:
    """Training at the server on as many samples as the devices would take together."""

    board: str
    samples: float  # passes of a sample forward and backward
    seconds: float
    joules: float | None  # None: the board's watts are not known


def samples_of_round(plan: Plan, world: World) -> float:
    """Passes of a sample, forward and backward, that the units of a plan make in a round."""
    training, total = world.config.training, 0.0
    for unit in plan.units:
        own = update_samples(world.devices, training, unit.rule.batch)[list(unit.members)]
        total += unit.local_updates * unit.rule.steps * unit.rule.work * float(own.sum())
    return total


def train_at_server(world: World, name: str, board: Board, samples: float) -> ServerTraining | None:
    """How long this board takes for so many samples; None where the model cannot be counted."""
    try:
        flops = training_flops(world.config)
    except InputError:
        return None
    seconds = samples * flops / board.flops_per_second
    joules = None if board.busy_watts is None else seconds * board.busy_watts
    return ServerTraining(name, samples, seconds, joules)


def break_even_bytes(world: World, learning: Bill) -> Bill:
    """The sizes of a sample at which sending the data costs as much as learning, one per cost.

    Below this size sending is cheaper. It is 0 where even empty samples cost more, and infinite
    where no size does.
    """
    known: dict[float, Bill] = {}

    def bill(size: float) -> Bill:
        if size not in known:
            known[size] = send_data(world, size).bill
        return known[size]

    def solve(cost: Callable[[Bill], float]) -> float:
        most = cost(learning)
        if cost(bill(_LEAST_BYTES)) >= most:
            return 0.0
        if cost(bill(_MOST_BYTES)) < most:
            return math.inf
        return _root(lambda size: cost(bill(size)) - most)

    samples = float(world.devices.samples.sum())
    return Bill(
        solve(lambda one: one.seconds),
        solve(lambda one: one.joules),
        1e6 * learning.megabytes / samples,
    )


def _root(excess: Callable[[float], float]) -> float:
    """The size of a sample at which the excess is 0, on a logarithmic scale."""
    from scipy import optimize  # it takes long to load, and plans need no root

    low, high = math.log(_LEAST_BYTES), math.log(_MOST_BYTES)
    found = optimize.brentq(lambda log: excess(math.exp(log)), low, high, rtol=1e-9, xtol=1e-9)
    return math.exp(float(found))
