"""The authors' earlier scheme: unlike devices together, so that clusters look like everyone."""

from dataclasses import dataclass
from typing import Literal

from camu.errors import InputError
from camu.planning.contribution import aggregation_weights
from camu.planning.groups import clusters, make_plan, single_devices
from camu.schemes.contract import Plan, Scheme, Share, World


@dataclass(frozen=True)
class Dsc(Scheme):
    """Dual-segment clustering that groups devices with unlike labels; one update per round.

    `weights`: distance-based weights act "inside" clusters, where devices differ, and data size
    counts between them; or "between" clusters, with data size inside, as in `clustered`. The CAMU
    paper's wording suggests "inside".
    """

    weights: Literal["inside", "between"] = "inside"
    preference_quantile: Share = 0.25
    name = "dsc"
    family = "clusters"
    citation = (
        "Sun et al., Dual-segment clustering strategy for hierarchical federated learning, IEEE "
        "WCL 2025"
    )
    simplified = [
        "links are compared by clustering.communication, as for `clustered`, not as in the letter",
    ]
    choices = [
        "distance-based weights act inside clusters; of the letter (arXiv 2405.09276) only the "
        "abstract could be read, which names the two matrices and affinity propagation but no "
        "weights, so both readings exist (weights)",
        "the preference of the second segment is a low quantile; the median leaves a third of "
        "the clusters with one device",
    ]

    def __post_init__(self) -> None:
        """Refuse parameters that have no meaning."""
        if self.weights not in ("inside", "between"):
            raise InputError(f'dsc: weights = {self.weights!r} must be "inside" or "between"')
        if not 0 <= self.preference_quantile <= 1:
            raise InputError(
                f"dsc: preference_quantile = {self.preference_quantile} must be between 0 and 1"
            )

    def plan(self, world: World) -> Plan:
        unlike = world.config.clustering.model_copy(
            update={
                "data": "literal",
                "preference_quantile": self.preference_quantile,
            }
        )
        groups = clusters(world, unlike)
        if self.weights == "between":
            return make_plan(self, groups, groups.contribution_weights, multi_update=False)
        log_theta = single_devices(world).log_contribution
        inside = [aggregation_weights(log_theta[list(own)]).tolist() for own in groups.members]
        return make_plan(
            self, groups, groups.sample_weights, multi_update=False, member_weights=inside
        )
