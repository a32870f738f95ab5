"""Adaptive batches: slow devices take smaller batches, so that all finish together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from camu.learning.job import LocalRule
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class AdaptiveBatch(Scheme):
    """Every device does H updates on as many samples as it has time for, at a rate to match."""

    local_updates: int = 2
    most: int = 32  # B_max
    least: int = 4  # B_min
    name: ClassVar[str] = "adaptive-batch"
    family: ClassVar[str] = "local updates"
    citation: ClassVar[str] = "Ma et al., Adaptive batch size for federated learning, IEEE TMC 2021"
    simplified: ClassVar[tuple[str, ...]] = (
        "batches are set once; the original adapts them by a convergence bound",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "the rate is in proportion to the batch; the original's scaling rule is not known",
        "weights by data size; sending counts alone, without the queue of `tdma`",
    )

    def plan(self, world: World) -> Plan:
        """H l_k B_k / f_k + t_k is the same for all devices, as far as whole samples allow."""
        groups, devices = single_devices(world), world.devices
        modelled = self.local_updates * devices.cycles_per_sample / devices.cpu_hz  # of one sample
        measured = devices.sample_seconds
        step = np.where(np.isnan(measured), modelled, self.local_updates * measured)
        air = groups.once.uplink_seconds
        limit = np.minimum(self.most, devices.samples)
        finish = float((step * limit + air).min())  # of the fastest device with its largest batch
        # The small number forgives rounding where the quotient is whole.
        fitting = np.floor((finish - air) / step + 1e-9)
        batch = np.minimum(np.maximum(fitting, max(2, min(self.least, self.most))), limit)
        rules = [
            # A batch of up to 1 would be a fraction of the data.
            LocalRule(batch=float(max(own, 1.5)), rate=float(own / batch.max()))
            for own in batch
        ]
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rules)
