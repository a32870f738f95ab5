"""FEDL's allocation: energy plus a price of seconds, computing together and sending in turn.

Dinh, Tran, Nguyen, Hong, Bao, Zomaya, Gramoli, Federated learning over wireless networks, IEEE/ACM
ToN 29(1), 2021: its first two sub-problems, which have closed forms.

    minimise   sum_k kappa_k C_k f_k^2 + static_k C_k / f_k + k T_cmp
               with  C_k / f_k <= T_cmp,  f_k within limits
    and        sum_k n_k / eta B tau_k (e^(s ln 2 / (B tau_k)) - 1) + (circuit + k) tau_k
               with  p_k within limits

The paper knows no static, circuit and eta; with them the forms are as closed as without.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from camu.allocation.device_answer import DeviceAnswer
from camu.allocation.device_problem import DevicePositive, DeviceProblem
from camu.allocation.document import DEVICES, Positive
from camu.allocation.shannon import priced_nats
from camu.arrays import Float64
from camu.errors import InputError


@dataclass(frozen=True, eq=False, kw_only=True)
class FedlProblem(DeviceProblem):
    """One round of FEDL; its third sub-problem, which sets the local accuracy, is not here.

    Attributes:
        min_hz: the smallest frequency of each device.
        min_power_watts: the smallest power of each device.
        joules_per_second: k, how many joules a second of the round is worth.
    """

    kind: ClassVar = "fedl"
    min_hz: DevicePositive
    min_power_watts: DevicePositive
    joules_per_second: Positive

    def _check(self) -> None:
        """Refuse limits in the wrong order."""
        for low, high in (("min_hz", "max_hz"), ("min_power_watts", "max_power_watts")):
            wrong = np.flatnonzero(getattr(self, low) > getattr(self, high))
            if wrong.size:
                place = f"{self.source}: {DEVICES}[{wrong[0]}].{low}"
                raise InputError(f"{place} is above {high}; give a smaller one")

    @cached_property
    def air_limits(self) -> tuple[Float64, Float64]:
        """The shortest and the longest time of sending: at the largest and the smallest power."""

        def seconds(power: Float64) -> Float64:
            x = np.log1p(power / (self.noise * self.bandwidth_hz))
            return self.nats / (self.bandwidth_hz * np.minimum(x, self.most_nats))

        return seconds(self.max_power_watts), seconds(self.min_power_watts)

    @cached_property
    def slowest_hz(self) -> Float64:
        """The frequency of each device that has time: slower is not allowed, or costs more."""
        return np.maximum(self.min_hz, self.cheapest_hz)


def solve_fedl(problem: FedlProblem) -> DeviceAnswer:
    """Frequencies and powers in closed form, with the dual value as a certificate."""
    began = time.perf_counter()
    together = compute_seconds(problem)
    cpu = np.clip(problem.cycles / (together or 1.0), problem.slowest_hz, problem.max_hz)
    air = send_seconds(problem)
    band = np.full(problem.size, problem.bandwidth_hz)
    sending = problem.transmit_joules(air, band)
    joules = problem.compute_joules(cpu) + sending
    price = problem.joules_per_second
    total = float(joules.sum()) + price * (together + float(air.sum()))
    power = problem.transmit_watts(air, band)
    used = {
        "max_hz": cpu / problem.max_hz,
        "min_hz": problem.min_hz / cpu,
        "max_power_watts": power / problem.max_power_watts,
        "min_power_watts": problem.min_power_watts / power,
    }
    return DeviceAnswer(
        kind=problem.kind,
        solver="exact",
        objective=total,
        lower_bound=min(total, _compute_bound(problem, cpu) + _send_bound(problem, air)),
        energy_joules=float(joules.sum()),
        round_seconds=together + float(air.sum()),
        bandwidth_hz=band,
        power_watts=power,
        cpu_hz=cpu,
        device_seconds=problem.cycles / cpu + air,
        device_joules=joules,
        binding=tuple(name for name, share in used.items() if share.max() >= 1 - 1e-9),
        seconds=time.perf_counter() - began,
        details={"compute_seconds": together, "send_seconds": float(air.sum())},
    )


def compute_seconds(problem: FedlProblem) -> float:
    """T_cmp: where the joules that a second less costs are worth k, or the fastest possible.

    Devices j that still run above their slowest frequency at T want
    T^3 = sum_j 2 kappa_j C_j^3 / (k + sum_j static_j). They leave both sums one by one as T passes
    their longest times.
    """
    longest = problem.cycles / problem.slowest_hz
    order = np.argsort(-longest, kind="stable")
    worth = 2.0 * (problem.capacitance * problem.cycles**3)[order].cumsum()
    static = np.broadcast_to(problem.static_watts, longest.shape)[order].cumsum()
    wanted = np.minimum(np.cbrt(worth / (problem.joules_per_second + static)), longest[order])
    return max(float(wanted.max()), float((problem.cycles / problem.max_hz).max()))


def send_seconds(problem: FedlProblem) -> Float64:
    """tau_k = (s ln 2 / B) / (1 + W((eta (k + circuit) g / sigma^2 - 1) / e)), within limits."""
    second = problem.joules_per_second + problem.circuit_watts
    price = second / (problem.drawn_noise * problem.bandwidth_hz)
    best = problem.nats / (problem.bandwidth_hz * priced_nats(price))
    return np.clip(best, *problem.air_limits)


def _compute_bound(problem: FedlProblem, cpu_hz: Float64) -> float:
    """Lower bound on computing: prices of each device's time that add up to k.

    Of those who set T_cmp, the ones at a limit of their frequency take the rest of k. Each device
    then minimises kappa C f^2 + (static + price) C / f alone.
    """
    seconds = problem.cycles / cpu_hz
    tight = seconds >= seconds.max() * (1.0 - 1e-9)
    between = (cpu_hz > problem.min_hz * (1 + 1e-9)) & (cpu_hz < problem.max_hz * (1 - 1e-9))
    worth = np.maximum(2.0 * problem.capacitance * cpu_hz**3 - problem.static_watts, 0.0)
    price = np.where(tight & between, worth, 0.0)
    ends = tight & ~between
    if ends.any():
        price[ends] = max(problem.joules_per_second - float(price.sum()), 0.0) / ends.sum()
    price *= problem.joules_per_second / price.sum() if price.sum() > 0 else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.cbrt((problem.static_watts + price) / (2.0 * problem.capacitance))
    best = np.clip(np.nan_to_num(root, posinf=np.inf), problem.min_hz, problem.max_hz)
    return float((problem.compute_joules(best) + price * problem.cycles / best).sum())


def _send_bound(problem: FedlProblem, air: Float64) -> float:
    """Lower bound on sending: the tangent of each convex cost, at the better end of its range."""
    band = np.full(problem.size, problem.bandwidth_hz)
    x = problem.nats / (problem.bandwidth_hz * air)
    slope = problem.drawn_noise * problem.bandwidth_hz * (np.expm1(x) - x * np.exp(x))
    slope = slope + problem.joules_per_second + problem.circuit_watts
    cost = problem.transmit_joules(air, band) + problem.joules_per_second * air
    low, high = problem.air_limits
    return float((cost + np.minimum(slope * (low - air), slope * (high - air))).sum())
