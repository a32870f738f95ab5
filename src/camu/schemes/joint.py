"""Configuration 5: powers and update counts optimised together under an energy budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from camu.allocation.bound import Bound, CorrectedBound, Theorem1
from camu.allocation.problem import Problem
from camu.allocation.solve import solve
from camu.planning.groups import Groups, clusters, extra_updates, gate, make_plan
from camu.planning.parameters import parameter_count
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.schemes.petrel import Petrel
from camu.world import World


@dataclass(frozen=True)
class CamuJoint(Scheme):
    """Configuration 5: CAMU with powers and updates that minimise the bound within a budget.

    The budget is what Benchmark 2 (`petrel`) spends in a round, unless allocation.energy_joules
    says otherwise. allocation.solver chooses the exact solver, the paper's PPO, or your own.
    """

    threshold: float | None = None
    threshold_quantile: float = 0.5
    max_extra_updates: int = 4
    name: ClassVar[str] = "camu-joint"
    citation: ClassVar[str] = "Sun et al., CAMU, section IV"

    def plan(self, world: World) -> Plan:
        """Solve P1 for the clusters that may update repeatedly; the plan keeps the answer."""
        groups = clusters(world)
        problem = self.problem(groups)
        allocation = world.config.allocation
        answer = solve(
            problem,
            allocation.solver,
            seed=world.seed,
            steps=allocation.ppo_steps,
            reward=allocation.ppo_reward,
        )
        plan = make_plan(
            self,
            groups,
            groups.contribution_weights,
            1 + answer.extra_updates,
            answer.power_watts,
            problem.multi_update,
        )
        return replace(plan, allocation=answer)

    def problem(self, groups: Groups) -> Problem:
        """P1 of clusters that are formed already; only those that pass the gate may update more."""
        multi = gate(groups.log_contribution, self.threshold, self.threshold_quantile)
        extra = extra_updates(groups.step_seconds, self.max_extra_updates)
        return problem_of(groups, multi, extra, energy_budget(groups, self.max_extra_updates))


def energy_budget(groups: Groups, max_extra_updates: int) -> float:
    """Joules of a round: as configured, or what `petrel` spends with these clusters."""
    fixed = groups.world.config.allocation.energy_joules
    return Petrel(max_extra_updates).plan_of(groups).round_joules if fixed is None else fixed


def problem_of(
    groups: Groups,
    multi_update: np.typing.NDArray[np.bool_],
    max_extra_updates: np.typing.NDArray[np.int64],
    energy_joules: float,
) -> Problem:
    """P1 of these clusters.

    An update of a cluster costs what its members compute with and what they send to their leader
    with, so that the budget covers the whole round. Receiving the model is paid from it first.
    """
    world, config = groups.world, groups.world.config
    count, leaders = len(groups.members), np.array(groups.leaders)
    parameters = parameter_count(world)
    bound = bound_of(groups, parameters)
    descent, penalty = bound.p1_coefficients()
    share = world.links.share(count)
    once = groups.once
    broadcast = once.receive_watts * once.downlink_seconds * sum(map(len, groups.members))
    return Problem(
        weight=groups.contribution_weights,
        gain=world.links.uplink_gain[leaders],
        descent=descent,
        penalty=penalty,
        compute_joules=once.compute_joules
        + once.gather_joules
        + once.receive_watts * once.gather_seconds,
        bandwidth_hz=np.full(count, share.bandwidth_hz),
        multi_update=multi_update,
        max_extra_updates=max_extra_updates,
        noise_watts=share.noise_watts,
        payload_bits=config.radio.bits_per_parameter * parameters,
        energy_joules=energy_joules - broadcast,
        max_power_watts=world.devices.max_power_watts[leaders],
        max_total_power_watts=config.allocation.max_total_power_watts,
        power_law=config.allocation.power_law,
        first_update_free=config.allocation.updates_charged == "literal",
        compute_seconds=groups.step_seconds,
        source="the plan's problem P1",
    )


def bound_of(groups: Groups, parameters: int) -> Bound:
    """The configured bound with the configured constants; all clusters are taken as alike."""
    allocation, training = groups.world.config.allocation, groups.world.config.training
    weight = groups.contribution_weights
    alike = np.full(len(weight), allocation.dissimilarity)
    if allocation.bound == "theorem1":
        samples = groups.world.devices.samples
        members = [samples[list(own)] / samples[list(own)].sum() for own in groups.members]
        return Theorem1(
            weight=weight,
            member_weight=members,
            delta=allocation.dissimilarity,
            delta_c=alike,
            strong_convexity=allocation.convexity,
            smoothness=allocation.smoothness,
            learning_rate=training.learning_rate,
        )
    return CorrectedBound(
        weight=weight,
        divergence=np.sqrt(np.maximum(alike**2 - 1, 0)),
        dissimilarity=alike,
        offset=np.zeros(len(weight)),
        strong_convexity=allocation.convexity,
        smoothness=allocation.smoothness,
        learning_rate=training.learning_rate,
        parameters=parameters,
    )
