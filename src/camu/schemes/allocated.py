"""Schemes that train with a problem per device's answer: bandwidth, power and frequency of each."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from camu.allocation.device_answer import BlockAnswer, DeviceAnswer
from camu.allocation.fedl import FedlProblem, solve_fedl
from camu.allocation.ofdma import OfdmaEnergy, OfdmaTime
from camu.allocation.ofdma_exact import solve_ofdma_energy, solve_ofdma_time
from camu.allocation.resource_blocks import BlocksProblem, solve_blocks
from camu.errors import CamuError, InputError
from camu.schemes.contract import (
    NonNegative,
    Plan,
    Positive,
    PositiveShare,
    State,
    View,
    World,
)
from camu.schemes.device_problems import device_problem, equal_shares
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class LeastEnergyOfdma(LocalSgd):
    """Local SGD with the least energy that equal shares of the band need for as long a round."""

    name = "ofdma-energy"
    family = "resources"
    citation = (
        "Yang, Chen, Saad, Hong, Shikh-Bahaei, Energy efficient federated learning over wireless "
        "communication networks, IEEE TWC 2021"
    )
    simplified = ["the number of local updates is given; the original also chooses the accuracy"]
    choices = [
        "the deadline is a round of equal shares at full speed; fading and faults may exceed it",
        "idle power is a constant until the deadline; that a round may end before is not counted",
        "all send at the same time, whatever radio.access is",
    ]

    def plan(self, world: World) -> Plan:
        equal = equal_shares(super().plan(world), world)
        problem = device_problem(self.name, equal, world)
        assert isinstance(problem, OfdmaEnergy)
        deadline = max(problem.deadline_seconds, problem.shortest_deadline)
        answer = solve_ofdma_energy(replace(problem, deadline_seconds=deadline))
        return _allocated(equal, world, answer)


@dataclass(frozen=True)
class ShortestOfdma(LocalSgd):
    """Local SGD with the shortest round that costs what equal shares of the band cost."""

    name = "ofdma-time"
    family = "resources"
    citation = LeastEnergyOfdma.citation
    simplified = LeastEnergyOfdma.simplified
    choices = [
        "the budget is what computing at full speed and sending cost with equal shares",
        "idle power is not part of the budget: a shorter round costs less of it",
        "all send at the same time, whatever radio.access is",
    ]

    def plan(self, world: World) -> Plan:
        equal = equal_shares(super().plan(world), world)
        problem = device_problem(self.name, equal, world)
        assert isinstance(problem, OfdmaTime)
        return _allocated(equal, world, solve_ofdma_time(problem))


@dataclass(frozen=True)
class Fedl(LocalSgd):
    """Local SGD with the frequencies and powers that minimise joules plus the price of seconds."""

    joules_per_second: Positive = 1.0  # kappa of the paper
    name = "fedl"
    family = "resources"
    citation = (
        "Dinh et al., Federated learning over wireless networks: convergence analysis and resource "
        "allocation, IEEE/ACM ToN 2021"
    )
    simplified = ["plain local SGD; the original's local problem and its accuracy are not here"]
    choices = [
        "all send in turn, whatever radio.access is",
        "the idle power of all devices is part of the price of seconds",
        "the least frequency is 0.1 of the largest, the least power 0.001",
    ]

    def plan(self, world: World) -> Plan:
        equal = super().plan(world)
        whole = [world.links.radio.bandwidth_hz] * len(equal.units)
        turns = replace(equal.with_columns(bandwidth_hz=whole), access="tdma").repriced(world)
        problem = device_problem(self.name, turns, world)
        assert isinstance(problem, FedlProblem)
        second = self.joules_per_second + turns.idle_watts
        return _allocated(turns, world, solve_fedl(replace(problem, joules_per_second=second)))


@dataclass(frozen=True)
class ResourceBlocks(LocalSgd):
    """Devices get one of few blocks each, so that most samples arrive within the limits."""

    block_share: PositiveShare = 0.5  # blocks per device
    interference_watts: NonNegative = 0.0  # in the last of J blocks; in block j it is j/J of it
    name = "resource-blocks"
    family = "resources"
    citation = (
        "Chen et al., A joint learning and communications framework for federated learning over "
        "wireless networks, IEEE TWC 2021"
    )
    simplified = ['packets are lost with radio.uplink = "packet" only']
    choices = [
        "the interference of the blocks rises evenly; `camu allocate` takes any",
        "the limits are the seconds and joules of a round with equal shares for all, idle power "
        "apart",
    ]

    def plan(self, world: World) -> Plan:
        equal = equal_shares(super().plan(world), world)
        problem = device_problem(self.name, equal, world)
        assert isinstance(problem, BlocksProblem)
        blocks = max(1, round(self.block_share * problem.size))
        wider = problem.size / blocks
        heard = self.interference_watts * np.arange(1, blocks + 1) / blocks
        problem = replace(
            problem,
            interference_watts=heard.tolist(),
            bandwidth_hz=wider * problem.bandwidth_hz,
            noise_watts=wider * problem.noise_watts,
        )
        answer = self._solved(problem)
        own = np.where(answer.block >= 0, heard[answer.block], 0.0)
        given = equal.with_columns(interference_watts=own.tolist())
        return _allocated(given, world, answer)

    def _solved(self, problem: BlocksProblem) -> BlockAnswer:
        try:
            return solve_blocks(problem)
        except CamuError as error:
            if not self.interference_watts:
                raise
            raise InputError(
                f"scheme.parameters.interference_watts = {self.interference_watts:.6g} "
                f"({self.name}): nobody keeps the limits on any block ({error}); give less"
            ) from None

    def select(self, view: View, state: State) -> Iterable[int]:
        """Those with a block; if their batteries are empty for good, nobody takes their place."""
        return [unit for unit in view.idle if view.plan.units[unit].bandwidth_hz is not None]


def _allocated(plan: Plan, world: World, answer: DeviceAnswer) -> Plan:
    """The plan with the bandwidths, powers and frequencies of an answer; others keep theirs."""
    sends = answer.bandwidth_hz > 0.0
    share = answer.cpu_hz / world.devices.cpu_hz[plan.column("leader")]
    power = np.where(sends, answer.power_watts, plan.column("power_watts"))
    return plan.with_columns(
        bandwidth_hz=[hertz if hertz > 0.0 else None for hertz in answer.bandwidth_hz.tolist()],
        power_watts=power.tolist(),
        cpu_share=np.where(sends, np.minimum(share, 1.0), 1.0).tolist(),
    ).repriced(world)
