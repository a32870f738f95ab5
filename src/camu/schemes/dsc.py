"""The authors' earlier scheme: unlike devices together, so that clusters look like everyone."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from camu.errors import InputError
from camu.planning.groups import aggregation_weights, clusters, make_plan, single_devices
from camu.planning.plan import Plan
from camu.schemes.contract import Scheme
from camu.world import World


@dataclass(frozen=True)
class Dsc(Scheme):
    """Dual-segment clustering that groups devices with unlike labels; one update per round.

    `weights`: distance-based weights act "inside" clusters, where devices differ, and data size
    counts between them; or "between" clusters, with data size inside, as in `clustered`. The CAMU
    paper's wording suggests "inside".
    """

    weights: Literal["inside", "between"] = "inside"
    preference_quantile: float = 0.25
    name: ClassVar[str] = "dsc"
    family: ClassVar[str] = "clusters"
    citation: ClassVar[str] = (
        "Sun et al., Dual-segment clustering strategy for hierarchical federated learning, IEEE "
        "WCL 2025"
    )
    simplified: ClassVar[tuple[str, ...]] = (
        "links are compared by clustering.communication, as for `clustered`, not as in the letter",
    )
    choices: ClassVar[tuple[str, ...]] = (
        "distance-based weights act inside clusters; the letter was not at hand, so both "
        "readings exist (weights)",
        "the preference of the second segment is a low quantile; the median leaves a third of "
        "the clusters with one device",
    )

    def __post_init__(self) -> None:
        """Refuse parameters that have no meaning."""
        if self.weights not in ("inside", "between"):
            raise InputError(f'dsc: weights = {self.weights!r} must be "inside" or "between"')
        if not 0 <= self.preference_quantile <= 1:
            raise InputError(
                f"dsc: preference_quantile = {self.preference_quantile} must be between 0 and 1"
            )

    def plan(self, world: World) -> Plan:
        """One cluster of unlike devices per unit."""
        unlike = world.config.clustering.model_copy(
            update={
                "data": "literal",
                "data_preference": "quantile",
                "data_preference_value": self.preference_quantile,
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
