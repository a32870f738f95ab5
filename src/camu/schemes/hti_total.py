"""A fixed total of local updates per round, dealt so that the round is short."""

import heapq
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64, Int64
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, Plan, Scheme, World


@dataclass(frozen=True)
class HtiTotal(Scheme):
    """Devices share H updates per device in such a way that the last one finishes soonest."""

    local_updates: Count = 2  # on average
    name = "hti-total"
    family = "local updates"
    citation = (
        "after Pan et al., Time-sensitive federated learning with heterogeneous training "
        "intensity, IEEE TETCI 2024, without the reinforcement learning"
    )
    simplified = ["the total is the same in every round; the original learns it"]
    choices = [
        "the split minimises the largest n_k a_k + b_k with n_k >= 1",
        "sending counts alone, without the queue of `tdma`",
    ]
    tunable = {"local_updates": (1, 20, "log")}

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        total = self.local_updates * len(groups)
        updates = split_total(groups.step_seconds, groups.costs_of_one_update.uplink_seconds, total)
        return make_plan(self, groups, groups.sample_weights, updates)


def split_total(per_update: Float64, fixed: Float64, total: int) -> Int64:
    """n_k >= 1 with this sum and the smallest max_k n_k per_update_k + fixed_k.

    The next update always goes to the unit that would finish it first.
    """
    counts = np.ones(len(per_update), dtype=np.int64)
    queue = [
        (2 * float(a) + float(b), k) for k, (a, b) in enumerate(zip(per_update, fixed, strict=True))
    ]
    heapq.heapify(queue)
    for _ in range(total - len(counts)):
        _, k = heapq.heappop(queue)
        counts[k] += 1
        finish = float(counts[k] + 1) * float(per_update[k]) + float(fixed[k])
        heapq.heappush(queue, (finish, k))
    return counts
