"""Groups whose labels look like everyone's, and a bandit that finds the fastest group."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.arrays import Int64
from camu.clustering.near_iid import grown_groups
from camu.schemes.contract import Count, NonNegative, Plan, State, View, World
from camu.schemes.local_sgd import LocalSgd
from camu.seeding import derive


@dataclass(frozen=True)
class NearIidBandit(LocalSgd):
    """One group of devices trains in a round; the lower bound on a group's time decides which."""

    size: Count = 5  # most devices in a group
    closeness: NonNegative = 0.2  # sum_l |p_g(l) - p(l)| at which a group is closed
    optimism: NonNegative = 1.0  # in units of the range of the groups' mean times
    name = "near-iid-bandit"
    tunable = {"size": (2, 10)}
    family = "selection"
    citation = "Lee et al., Data distribution-aware online client selection, IEEE TVT 2022"
    simplified = []
    choices = [
        "groups grow from a random device by the one that brings them closest to everyone",
        "the bandit is UCB1 on the seconds of a round; the paper's reward is not known",
    ]

    def select(self, view: View, state: State) -> Iterable[int]:
        """The group with the smallest index; each group once first."""
        if "group" not in state:
            state["group"] = near_iid_groups(view.world, self.size, self.closeness)
        group = state["group"]
        arms = int(group.max()) + 1
        played = state.setdefault("played", np.zeros(arms))
        mean = state.setdefault("mean", np.zeros(arms))
        able = np.unique(group[list(view.powered)])  # the groups that can still train
        if (played[able] == 0).any():
            state["arm"] = int(able[np.argmin(played[able])])
        else:
            reach = self.optimism * float(np.ptp(mean))
            index = mean[able] - reach * np.sqrt(2 * np.log(view.round + 1) / played[able])
            state["arm"] = int(able[np.argmin(index)])
        state["began"] = view.seconds
        return [unit for unit in view.idle if group[unit] == state["arm"]]

    def revise(self, view: View, state: State) -> Plan | None:
        """Note the seconds of the round."""
        arm = state["arm"]
        state["played"][arm] += 1
        seconds = view.seconds - state["began"]
        state["mean"][arm] += (seconds - state["mean"][arm]) / state["played"][arm]
        return None


def near_iid_groups(world: World, size: int, closeness: float) -> Int64:
    """The group of each device."""
    order = derive(world.seed, "near-iid-groups").numpy().permutation(world.devices.count).tolist()
    return grown_groups(world.devices.label_counts, order, size, closeness)
