"""Problem P1 of clusters, for the schemes that solve it."""

from __future__ import annotations

import numpy as np

from camu.allocation.bound import Bound, CorrectedBound, Theorem1
from camu.allocation.problem import Problem
from camu.planning.groups import Groups
from camu.planning.parameters import parameter_count
from camu.schemes.compute_rounds import ComputeRounds


def energy_budget(groups: Groups, max_extra_updates: int) -> float:
    """Joules of a round: as configured, or what `compute-rounds` spends with these clusters."""
    fixed = groups.world.config.allocation.energy_joules
    return ComputeRounds(max_extra_updates).plan_of(groups).round_joules if fixed is None else fixed


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
