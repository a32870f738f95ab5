"""Benchmark 1: every device for itself, one step each, weighted by its data."""

from dataclasses import dataclass

from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Plan, Scheme, World


@dataclass(frozen=True)
class FedSgd(Scheme):
    """Benchmark 1: everyone makes one update and sends it straight to the base station.

    The CAMU paper calls this FedAvg, and so does its name `fedavg`, which still works. FedAvg
    itself, with several epochs and a share of the devices, is `fedavg-epochs`.
    """

    name = "fedsgd"
    family = "reference"
    tunable = {}  # the learning rate alone
    citation = "McMahan et al., AISTATS 2017, where it is the case of one step and all devices"
    simplified = []
    choices = ["a mini-batch in place of all data of a device, as the CAMU paper compares it"]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights)
