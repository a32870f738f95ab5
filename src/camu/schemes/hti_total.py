"""A fixed total of local updates per round, dealt so that the round is short."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from camu.arrays import Float64, Int64
from camu.planning.groups import make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class HtiTotal(Scheme):
    """Devices share H updates per device in such a way that the last one finishes soonest."""

    local_updates: int = 2  # on average
    name: ClassVar[str] = "hti-total"
    family: ClassVar[str] = "local updates"
    citation: ClassVar[str] = (
        "after Pan et al., Time-sensitive federated learning with heterogeneous training "
        "intensity, IEEE TETCI 2024, without the reinforcement learning"
    )
    simplified: ClassVar[tuple[str, ...]] = (
        "the total is the same in every round; the original learns it",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "the split minimises the largest n_k a_k + b_k with n_k >= 1",
        "sending counts alone, without the queue of `tdma`",
    )

    def plan(self, world: World) -> Plan:
        """One device per unit."""
        groups = single_devices(world)
        total = self.local_updates * len(groups)
        updates = split_total(groups.step_seconds, groups.once.uplink_seconds, total)
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
