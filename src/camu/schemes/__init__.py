"""The schemes, one file each, reading like its paper; their contract and their registry."""

from camu.learning.job import LocalRule
from camu.planning.codecs import Quantised, Raw, Sparse
from camu.planning.groups import (
    Groups,
    assess,
    clusters,
    extra_updates,
    make_plan,
    single_devices,
)
from camu.planning.plan import Plan, Unit
from camu.schemes.adaptive_tau import AdaptiveTau
from camu.schemes.camu import Camu
from camu.schemes.clustered import Clustered
from camu.schemes.contract import Arrival, Pilot, Scheme, State, View, add_updates
from camu.schemes.dsc import Dsc
from camu.schemes.fedavg import FedAvg
from camu.schemes.hti import HeterogeneousIntensity
from camu.schemes.joint import CamuJoint
from camu.schemes.local_sgd import LocalSgd
from camu.schemes.nova import CamuNova
from camu.schemes.petrel import Petrel
from camu.schemes.registry import SCHEMES, describe, find_scheme, make_scheme
from camu.schemes.wasserstein import WassersteinWeights

__all__ = [
    "SCHEMES",
    "AdaptiveTau",
    "Arrival",
    "Camu",
    "CamuJoint",
    "CamuNova",
    "Clustered",
    "Dsc",
    "FedAvg",
    "Groups",
    "HeterogeneousIntensity",
    "LocalRule",
    "LocalSgd",
    "Petrel",
    "Pilot",
    "Plan",
    "Quantised",
    "Raw",
    "Scheme",
    "Sparse",
    "State",
    "Unit",
    "View",
    "WassersteinWeights",
    "add_updates",
    "assess",
    "clusters",
    "describe",
    "extra_updates",
    "find_scheme",
    "make_plan",
    "make_scheme",
    "single_devices",
]
