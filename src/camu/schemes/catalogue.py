"""The classes of all schemes, by name, and their families."""

# What is imported here is what users import from camu.schemes, and what files of schemes need.
# mypy: implicit-reexport

from camu.schemes.a_dsgd import ADsgd
from camu.schemes.adaptive_batch import AdaptiveBatch
from camu.schemes.adaptive_tau import AdaptiveTau
from camu.schemes.age_scheduling import AgeScheduling
from camu.schemes.allocated import Fedl, LeastEnergyOfdma, ResourceBlocks, ShortestOfdma
from camu.schemes.beamforming_air import BeamformingAir
from camu.schemes.broadband_analog import BroadbandAnalog
from camu.schemes.camu import Camu
from camu.schemes.camu_air import CamuAir
from camu.schemes.camu_auto import CamuAuto
from camu.schemes.camu_balanced import CamuBalanced
from camu.schemes.camu_joint import CamuJoint
from camu.schemes.camu_p2 import CamuP2
from camu.schemes.cluster_air import ClusterAir
from camu.schemes.clustered import Clustered
from camu.schemes.compute_rounds import ComputeRounds
from camu.schemes.contract import Scheme
from camu.schemes.controls import LabelKMeans, RandomClusters
from camu.schemes.cost_effective import CostEffective
from camu.schemes.cotaf import Cotaf
from camu.schemes.ditto import Ditto
from camu.schemes.dsc import Dsc
from camu.schemes.ef21 import Ef21
from camu.schemes.fastest import Fastest
from camu.schemes.fedasync import FedAsync
from camu.schemes.fedavg_epochs import FedAvgEpochs
from camu.schemes.fedbuff import FedBuff
from camu.schemes.fedcs import FedCs
from camu.schemes.feddyn import FedDyn
from camu.schemes.fedexp import FedExp
from camu.schemes.fedlamp import FedLamp
from camu.schemes.fednova import CamuNova, ClusterNova, FedNova
from camu.schemes.fedpaq import FedPaq
from camu.schemes.fedper import FedPer
from camu.schemes.fedprox import FedProx
from camu.schemes.fedrep import FedRep
from camu.schemes.fedsa import FedSa
from camu.schemes.fedsgd import FedSgd
from camu.schemes.hier_local_qsgd import HierLocalQsgd
from camu.schemes.hierfavg import HierFavg
from camu.schemes.hti import HeterogeneousIntensity, HtiDynamic
from camu.schemes.hti_total import HtiTotal
from camu.schemes.least_error_air import LeastErrorAir
from camu.schemes.local_sgd import LocalSgd, LocalSgdDecay
from camu.schemes.near_iid_bandit import NearIidBandit
from camu.schemes.one_bit_air import OneBitAir
from camu.schemes.oort import Oort
from camu.schemes.pr_sgd import ParallelRestartedSgd
from camu.schemes.scaffold import ClusterScaffold, Scaffold
from camu.schemes.scheduling import BestChannel, ProportionalFair, RoundRobin
from camu.schemes.semi_async_clusters import SemiAsyncClusters
from camu.schemes.server_steps import FedAdam, FedAvgM, TwoSided
from camu.schemes.talk_or_work import TalkOrWork
from camu.schemes.tiers import FedAt, StragglerTiers
from camu.schemes.wasserstein import WassersteinWeights
from camu.schemes.width_scaled import WidthScaled

KINDS: tuple[type[Scheme], ...] = (
    FedSgd,
    FedAvgEpochs,
    WassersteinWeights,
    Clustered,
    ComputeRounds,
    Camu,
    Dsc,
    LocalSgd,
    CamuJoint,
    HeterogeneousIntensity,
    AdaptiveTau,
    CamuNova,
    FedProx,
    Scaffold,
    ClusterScaffold,
    FedNova,
    ClusterNova,
    FedDyn,
    FedAvgM,
    FedAdam,
    FedExp,
    Oort,
    ParallelRestartedSgd,
    FedBuff,
    FedAsync,
    HierFavg,
    RandomClusters,
    LabelKMeans,
    FedPaq,
    FedLamp,
    Ef21,
    HierLocalQsgd,
    CostEffective,
    TwoSided,
    LocalSgdDecay,
    FedSa,
    FedAt,
    StragglerTiers,
    NearIidBandit,
    AdaptiveBatch,
    HtiTotal,
    HtiDynamic,
    TalkOrWork,
    SemiAsyncClusters,
    AgeScheduling,
    WidthScaled,
    CamuBalanced,
    FedCs,
    Fastest,
    RoundRobin,
    BestChannel,
    ProportionalFair,
    LeastEnergyOfdma,
    ShortestOfdma,
    Fedl,
    ResourceBlocks,
    ADsgd,
    BeamformingAir,
    Cotaf,
    LeastErrorAir,
    BroadbandAnalog,
    OneBitAir,
    CamuAir,
    ClusterAir,
    FedPer,
    FedRep,
    Ditto,
    CamuP2,
    CamuAuto,
)
SCHEMES = {kind.name: kind for kind in KINDS}

FedAvg = FedSgd  # as the CAMU paper calls it

# Earlier names that still work.
ALIASES = {"petrel": "compute-rounds", "fedavg": "fedsgd"}

# The families of schemes, in the order in which they are shown.
FAMILIES = {
    "reference": "The plainest baselines.",
    "paper": "The configurations of the CAMU paper.",
    "clusters": "Other schemes with clusters as units.",
    "local updates": "How often, at what rate and on how much data devices update.",
    "drift": "Corrections for devices with unlike data or unlike numbers of updates.",
    "server": "Other steps of the server.",
    "selection": "Who takes part in a round.",
    "resources": "Bandwidth, power and frequency of every device.",
    "over the air": "Devices that transmit at once, so that the channel adds their updates up.",
    "compression": "Smaller updates.",
    "personal": "Models, or parts of models, that stay at the devices.",
    "asynchronous": "Servers that do not wait for everyone.",
    "controls": "Controls that take one idea away.",
}
