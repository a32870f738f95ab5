"""The schemes, one file each, reading like its paper; their contract and their registry.

A scheme is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from camu.learning.job import LocalRule
from camu.planning.codecs import Part, Quantised, Raw, Sparse
from camu.planning.groups import (
    Groups,
    assess,
    clusters,
    extra_updates,
    make_plan,
    single_devices,
)
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.schemes.contract import Arrival, Pilot, Scheme, State, View, add_updates, mix_models
from camu.schemes.registry import (
    ALIASES,
    CLASSES,
    FAMILIES,
    SCHEMES,
    describe,
    find_scheme,
    make_scheme,
)

__all__ = [
    "ALIASES",
    "FAMILIES",
    "SCHEMES",
    "AdaptiveBatch",
    "AdaptiveTau",
    "AgeScheduling",
    "Arrival",
    "Camu",
    "CamuBalanced",
    "CamuJoint",
    "CamuNova",
    "ClusterNova",
    "ClusterScaffold",
    "Clustered",
    "ComputeRounds",
    "CostEffective",
    "Dsc",
    "FedAdam",
    "FedAsync",
    "FedAt",
    "FedAvg",
    "FedAvgM",
    "FedBuff",
    "FedDyn",
    "FedLamp",
    "FedNova",
    "FedPaq",
    "FedProx",
    "FedSa",
    "Groups",
    "HeterogeneousIntensity",
    "HierFavg",
    "HtiDynamic",
    "HtiTotal",
    "LabelKMeans",
    "LocalRule",
    "LocalSgd",
    "LocalSgdDecay",
    "NearIidBandit",
    "Oort",
    "ParallelRestartedSgd",
    "Part",
    "Pilot",
    "Plan",
    "Quantised",
    "RandomClusters",
    "Raw",
    "Scaffold",
    "Scheme",
    "SemiAsyncClusters",
    "Sparse",
    "State",
    "StragglerTiers",
    "TalkOrWork",
    "TwoSided",
    "Unit",
    "View",
    "WassersteinWeights",
    "WidthScaled",
    "add_updates",
    "assess",
    "clusters",
    "describe",
    "extra_updates",
    "find_scheme",
    "make_plan",
    "make_scheme",
    "mix_models",
    "single_devices",
]

if TYPE_CHECKING:
    from camu.schemes.adaptive_batch import AdaptiveBatch
    from camu.schemes.adaptive_tau import AdaptiveTau
    from camu.schemes.age_scheduling import AgeScheduling
    from camu.schemes.camu import Camu
    from camu.schemes.camu_balanced import CamuBalanced
    from camu.schemes.camu_nova import CamuNova
    from camu.schemes.cluster_nova import ClusterNova
    from camu.schemes.cluster_scaffold import ClusterScaffold
    from camu.schemes.clustered import Clustered
    from camu.schemes.compute_rounds import ComputeRounds
    from camu.schemes.cost_effective import CostEffective
    from camu.schemes.dsc import Dsc
    from camu.schemes.fedadam import FedAdam
    from camu.schemes.fedasync import FedAsync
    from camu.schemes.fedat import FedAt
    from camu.schemes.fedavg import FedAvg
    from camu.schemes.fedavgm import FedAvgM
    from camu.schemes.fedbuff import FedBuff
    from camu.schemes.feddyn import FedDyn
    from camu.schemes.fedlamp import FedLamp
    from camu.schemes.fedpaq import FedPaq
    from camu.schemes.fedprox import FedProx
    from camu.schemes.fedsa import FedSa
    from camu.schemes.hierfavg import HierFavg
    from camu.schemes.hti import HeterogeneousIntensity
    from camu.schemes.hti_dynamic import HtiDynamic
    from camu.schemes.hti_total import HtiTotal
    from camu.schemes.joint import CamuJoint
    from camu.schemes.label_kmeans import LabelKMeans
    from camu.schemes.local_sgd import LocalSgd
    from camu.schemes.local_sgd_decay import LocalSgdDecay
    from camu.schemes.near_iid import NearIidBandit
    from camu.schemes.nova import FedNova
    from camu.schemes.oort import Oort
    from camu.schemes.pr_sgd import ParallelRestartedSgd
    from camu.schemes.random_clusters import RandomClusters
    from camu.schemes.scaffold import Scaffold
    from camu.schemes.semi_async_clusters import SemiAsyncClusters
    from camu.schemes.straggler_tiers import StragglerTiers
    from camu.schemes.talk_or_work import TalkOrWork
    from camu.schemes.two_sided import TwoSided
    from camu.schemes.wasserstein import WassersteinWeights
    from camu.schemes.width_scaled import WidthScaled
else:
    _MODULE_OF = {kind: module for module, kind in CLASSES.values()}

    def __getattr__(name):
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'camu.schemes' has no attribute {name!r}")
        return getattr(import_module(f"camu.schemes.{_MODULE_OF[name]}"), name)
