"""FedNova: updates divided by their steps, so that fast devices do not pull the optimum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from camu.data.batches import batch_samples
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.schemes.pr_sgd import ParallelRestartedSgd
from camu.world import World


@dataclass(frozen=True)
class FedNova(ParallelRestartedSgd):
    """Devices update as often as time allows, and each update is divided by its number of steps."""

    name: ClassVar[str] = "fednova"
    family: ClassVar[str] = "drift"
    citation: ClassVar[str] = "Wang et al., FedNova, NeurIPS 2020"
    simplified: ClassVar[tuple[str, ...]] = ("plain local SGD; no local momentum",)
    choices: ClassVar[tuple[str, ...]] = (
        "fast devices fill the time of the slowest one's update, as in `pr-sgd`",
        "tau_eff is the mean number of steps, weighted by data size",
    )

    def plan(self, world: World) -> Plan:
        """The plan of `pr-sgd` with scaled updates."""
        return normalised(super().plan(world), world)


def normalised(plan: Plan, world: World) -> Plan:
    """The plan with each update divided by its steps and multiplied by the mean of all."""
    steps = [gradient_steps(world, unit) for unit in plan.units]
    mean = sum(unit.weight * own for unit, own in zip(plan.units, steps, strict=True))
    units = [replace(u, update_scale=mean / own) for u, own in zip(plan.units, steps, strict=True)]
    return replace(plan, units=tuple(units))


def gradient_steps(world: World, unit: Unit) -> float:
    """Steps of a unit in a round, times its factor on the learning rate.

    Where a local update is an epoch, it is the members' mean number of batches.
    """
    training, steps = world.config.training, unit.local_updates * unit.rule.steps * unit.rule.rate
    if training.local_update == "step":
        return steps
    samples = world.devices.samples[list(unit.members)]
    batches = np.ceil(samples / batch_samples(unit.rule.batch or training.batch, samples))
    return float(steps * (batches @ np.array(unit.member_weights)))
