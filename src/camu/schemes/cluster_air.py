"""Clusters whose members transmit to their leader at once; leaders send bits."""

from dataclasses import dataclass, replace

from camu.schemes.clustered import Clustered
from camu.schemes.contract import Plan, World


@dataclass(frozen=True)
class ClusterAir(Clustered):
    """The clusters of `clustered`; gathers are over the air, uplinks are digital.

    A gather takes the time of one update, however many members a cluster has, their reports and
    the leader's answer; noise is on what the leader receives, after every update.
    """

    name = "cluster-air"
    family = "over the air"
    citation = "after Aygun, Kazemi, Gunduz and Duman, hierarchical over-the-air learning, 2022"
    simplified = ["leaders send bits to the base station; in the original they too are superposed"]
    choices = [
        "members are aligned with weights by data size; the leader's own part has no noise",
        "leaders out of range disturb a gather as if all of them gathered at the same time",
        "channels between devices are known; errors of phase and time are drawn for every gather",
    ]

    def plan(self, world: World) -> Plan:
        return replace(super().plan(world), gathers_together=True)
