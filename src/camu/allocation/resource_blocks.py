"""Resource blocks with interference and packet errors: who sends on which block, at what power.

Chen, Yang, Saad, Yin, Poor, Cui, A joint learning and communications framework for federated
learning over wireless networks, IEEE TWC 20(1), 2021. A device has at most one block and a block at
most one device. On block j with interference I_j the packet of device i is lost with probability

    q_ij = 1 - exp(-m (I_j + N) / (p_i g_i)),

and the assignment minimises the expected samples that do not arrive, under limits on the time and
the energy of every device. It is a linear assignment problem, solved exactly (Hungarian method).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from camu.allocation.device_answer import BlockAnswer
from camu.allocation.device_problem import DevicePositive, DeviceProblem
from camu.allocation.document import FROM_ZERO, Positive, Rule
from camu.allocation.shannon import limited_nats
from camu.arrays import Float64, Int64
from camu.errors import CamuError

_BLOCKS = Rule(
    "a list with at least one number that is not negative",
    (list,),
    lambda value: len(value) > 0 and all(FROM_ZERO.accepts(own) for own in value),
)
_MOST_PASSES = 1000
_MOST_STEPS = 60


@dataclass(frozen=True, eq=False, kw_only=True)
class BlocksProblem(DeviceProblem):
    """One round on resource blocks, of devices that compute at their largest frequency.

    Attributes:
        samples: K_i, how much the update of a device counts.
        interference_watts: I_j, one number per block.
        deadline_seconds: the limit on a device's computing and sending.
        device_energy_joules: the limit on what a round costs a device.
        waterfall: m, the threshold of the packet error rate as a ratio of powers.
    """

    kind: ClassVar = "resource-blocks"
    samples: DevicePositive
    interference_watts: Annotated[list[float], _BLOCKS]
    deadline_seconds: Positive
    device_energy_joules: Positive
    waterfall: Positive = 1.08


class Edges(NamedTuple):
    """What every device could do on every block (K, J)."""

    power_watts: Float64
    packet_error: Float64  # q_ij
    seconds: Float64
    joules: Float64
    feasible: Any  # whether both limits are kept


def edges(problem: BlocksProblem) -> Edges:
    """Each device on each block, at the largest power that its energy limit allows.

    More power means fewer lost packets and less time, so no smaller one is better.
    """
    noise = problem.snr_gap * (np.array(problem.interference_watts) + problem.noise_watts)
    base = noise / problem.gain[:, None]  # the power for a signal as strong as the noise
    computing = problem.compute_joules(problem.max_hz)[:, None]
    left = problem.device_energy_joules - computing
    power = np.minimum(_largest_watts(problem, base, left), problem.max_power_watts[:, None])
    nats = np.minimum(np.log1p(power / base), problem.most_nats)
    with np.errstate(divide="ignore"):
        air = np.where(power > 0.0, problem.nats / (problem.bandwidth_hz * nats), np.inf)
        error = -np.expm1(-problem.waterfall * base / problem.snr_gap / power)
    seconds = (problem.cycles / problem.max_hz)[:, None] + air
    drawn = power / problem.amplifier_efficiency + problem.circuit_watts
    joules = computing + np.where(power > 0.0, drawn * np.where(power > 0.0, air, 0.0), np.inf)
    kept = (seconds <= problem.deadline_seconds) & (joules <= left + computing + 1e-9 * abs(left))
    return Edges(power, error, seconds, joules, kept & (power > 0.0))


def _largest_watts(problem: BlocksProblem, base: Float64, left: Float64) -> Float64:
    """The largest power at which sending costs no more than what is left; 0: there is none.

    (p / eta + circuit) s / (b log2(1 + p / base)) = left: with x = ln(1 + p / base) it is
    e^x - 1 + q = r x. Newton's steps fall to the larger root of this convex function, from that
    without circuits.
    """
    least = base * problem.nats / problem.bandwidth_hz / problem.amplifier_efficiency
    with np.errstate(divide="ignore"):
        x = limited_nats(np.where(left > 0.0, least / left, np.inf))
    if problem.circuit_watts > 0.0:
        r = np.where(x > 0.0, left / least, 2.0)
        q = problem.circuit_watts * problem.amplifier_efficiency / base
        x = np.where(q <= 1.0 - r + r * np.log(r), x, 0.0)  # even the cheapest power costs more
        for _ in range(_MOST_STEPS):
            rise = np.exp(x) - r
            step = (np.expm1(x) + q - r * x) / np.where(rise > 0.0, rise, np.inf)
            x = np.where(step > 0.0, np.maximum(x - step, np.log(r)), x) * (x > 0.0)
    # Above the most that the code can carry the time stays, and the power may be what is left.
    seconds = problem.nats / (problem.bandwidth_hz * problem.most_nats)
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = problem.amplifier_efficiency * (left / np.float64(seconds) - problem.circuit_watts)
    return np.where(x > problem.most_nats, np.maximum(beyond, 0.0), base * np.expm1(x))


def solve_blocks(problem: BlocksProblem) -> BlockAnswer:
    """The best assignment; its lower bound is the value of prices of the blocks."""
    began = time.perf_counter()
    found = edges(problem)
    _check_limits(problem, found)
    worth = np.where(found.feasible, problem.samples[:, None] * (found.packet_error - 1.0), 0.0)
    from scipy.optimize import linear_sum_assignment  # loading it takes long

    rows, columns = linear_sum_assignment(worth)
    taken = worth[rows, columns] < 0.0
    rows, columns = rows[taken], columns[taken]
    block = np.full(problem.size, -1)
    block[rows] = columns
    total = float(problem.samples.sum())
    objective = total + float(worth[rows, columns].sum())

    def own(values: Float64, empty: float) -> Float64:
        column = np.full(problem.size, empty)
        column[rows] = values[rows, columns]
        return column

    joules, seconds = own(found.joules, 0.0), own(found.seconds, 0.0)
    return BlockAnswer(
        kind=problem.kind,
        solver="exact",
        objective=objective,
        lower_bound=min(objective, total + _dual(worth, block)),
        energy_joules=float(joules.sum()),
        round_seconds=float(seconds.max()),
        bandwidth_hz=np.where(block >= 0, problem.bandwidth_hz, 0.0),
        power_watts=own(found.power_watts, 0.0),
        cpu_hz=np.where(block >= 0, problem.max_hz, 0.0),
        device_seconds=seconds,
        device_joules=joules,
        block=block,
        packet_error=own(found.packet_error, 1.0),
        seconds=time.perf_counter() - began,
        details={"participants": len(rows)},
    )


def _check_limits(problem: BlocksProblem, found: Edges) -> None:
    """Refuse limits that no device keeps on any block."""
    if found.feasible.any():
        return
    affordable = found.power_watts > 0.0
    if affordable.any():
        raise CamuError(
            f"{problem.source}: deadline_seconds = {problem.deadline_seconds:.6g} is too short: no "
            "device can compute and send within it and device_energy_joules; give at least "
            f"{found.seconds[affordable].min():.6g} s"
        )
    least = float(problem.compute_joules(problem.max_hz).min())
    raise CamuError(
        f"{problem.source}: device_energy_joules = {problem.device_energy_joules:.6g} is too "
        f"small: no device can compute, which costs {least:.6g} J or more, and send; give more"
    )


def _dual(worth: Float64, block: Int64) -> float:
    """A lower bound on the assignment: prices of the blocks, none above 0.

    Any prices give one: each device takes the best block less its price, or none. Those of
    shortest paths between the assigned blocks give the assignment itself.
    """
    price = np.zeros(worth.shape[1])
    rows = np.flatnonzero(block >= 0)
    for _ in range(_MOST_PASSES):
        best = np.zeros(len(worth))  # devices without a block want none
        best[rows] = worth[rows, block[rows]] - price[block[rows]]
        # A block may cost so little that its device and all others keep what they have.
        lower = np.minimum(price, (worth - best[:, None]).min(axis=0))
        lower[block[rows]] = np.maximum(lower[block[rows]], worth[rows, block[rows]])
        if np.array_equal(lower, price):
            break
        price = lower
    best = np.minimum((worth - price).min(axis=1), 0.0)
    return float(best.sum() + price.sum())
