"""Schemes as the code behind published tables has them, where it differs from the papers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from camu.arrays import AnyArray, Float32
from camu.schemes import LocalSgd
from camu.schemes.contract import Plan, State, View, World
from camu.schemes.fednova import normalised
from camu.schemes.scaffold import Scaffold


@dataclass(frozen=True)
class BenchNova(LocalSgd):
    """FedNova with momentum: local epochs, each update divided by what its steps move in all."""

    name = "bench-nova"

    def plan(self, world: World) -> Plan:
        return normalised(super().plan(world), world)


@dataclass(frozen=True)
class BenchScaffold(Scaffold):
    """SCAFFOLD whose control variates ignore momentum, as the benchmark's code has it.

    Theirs are (x - y_i) / (steps rate), which under momentum rho is 1 / (1 - rho) gradients long,
    and c - c_i is added beside the velocity. Here the correction passes through the velocity, so it
    is (1 - rho) of theirs: after some dozen steps a step moves as much as theirs.
    """

    name = "bench-scaffold"

    def correction(self, view: View, state: State, unit: int) -> Float32 | None:
        found = super().correction(view, state, unit)
        momentum = view.world.config.training.momentum
        return None if found is None else np.float32(1 - momentum) * found

    def keep(
        self, view: View, state: State, unit: int, change: Float32, kept: AnyArray | None
    ) -> Float32:
        own, training = view.plan.units[unit], view.world.config.training
        (device,) = own.members
        samples = int(view.world.devices.samples[device])
        assert training.batch_samples is not None
        steps = own.local_updates * -(-samples // training.batch_samples)
        before = 0 if kept is None else kept
        mean = state.get("mean", np.float32(0))
        after: Float32 = before - mean - change / np.float32(steps * training.learning_rate)
        return after
