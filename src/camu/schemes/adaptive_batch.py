"""Adaptive batches: slow devices take smaller batches, so that all finish together."""

from dataclasses import dataclass

import numpy as np

from camu.errors import InputError
from camu.learning.job import LocalRule
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, CountFromTwo, Plan, Scheme, World
from camu.world.devices import update_seconds


@dataclass(frozen=True)
class AdaptiveBatch(Scheme):
    """Every device does H updates on as many samples as it has time for, at a rate to match."""

    local_updates: Count = 2
    most: CountFromTwo = 32  # B_max
    least: Count = 4  # B_min
    name = "adaptive-batch"
    family = "local updates"
    citation = "Ma et al., Adaptive batch size for federated learning, IEEE TMC 2021"
    simplified = ["batches are set once; the original adapts them by a convergence bound"]
    choices = [
        "the rate is in proportion to the batch; the original's scaling rule is not known",
        "weights by data size; sending counts alone, without the queue of `tdma`",
    ]
    tunable = {"local_updates": (1, 20, "log")}

    def plan(self, world: World) -> Plan:
        """H l_k B_k / f_k + t_k is the same for all devices, as far as whole samples allow."""
        if world.config.training.local_update == "epoch":
            raise InputError(
                "scheme adaptive-batch: training.local_update = epoch: a pass over all data takes "
                "the same time with any batch; set training.local_update = step"
            )
        groups, devices = single_devices(world), world.devices
        step = self.local_updates * update_seconds(devices, world.config.training, batch=1)
        air = groups.costs_of_one_update.uplink_seconds
        limit = np.minimum(self.most, devices.samples)
        finish = float((step * limit + air).min())  # of the fastest device with its largest batch
        # The small number forgives rounding where the quotient is whole.
        fitting = np.floor((finish - air) / step + 1e-9)
        batch = np.minimum(np.maximum(fitting, max(2, min(self.least, self.most))), limit)
        rules = [LocalRule(batch=int(own), rate=float(own / batch.max())) for own in batch]
        return make_plan(self, groups, groups.sample_weights, self.local_updates, rule=rules)
