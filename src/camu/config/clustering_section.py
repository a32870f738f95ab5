"""The section on clustering; each field has a sentence, a unit and limits."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from camu.config.fields import MOST, Section, broken, field


class ClusteringConfig(Section):
    """Dual-segment affinity propagation."""

    communication: Literal["snr-db", "uplink", "literal"] = field(
        "snr-db",
        "Similarity of links: `snr-db` device-to-device SNR in dB; `uplink` minus the squared "
        "difference of base-station SNR in dB; `literal` -gamma^2 as printed.",
    )
    data: Literal["xi", "pmf", "literal"] = field(
        "xi",
        "Similarity of data: `xi` minus the squared distance of information rows; `pmf` the same "
        "on label distributions; `literal` the printed positive fourth power: unlike together.",
    )
    preference: Literal["uplink", "quantile", "value"] = field(
        "uplink",
        "Preference of the first segment: `uplink` around the median similarity, higher the better "
        "a device's link to the base station; `quantile` or `value` use preference_value.",
    )
    preference_value: float = field(
        0.5,
        "Quantile of the similarities in [0, 1], or the preference itself.",
        "1 or dB",
        ge=-1e12,
        le=1e12,
    )
    data_preference: Literal["quantile", "value"] = field(
        "quantile", "Preference of the second segment, from data_preference_value."
    )
    data_preference_value: float = field(
        0.5,
        "Quantile of the similarities in [0, 1], or the preference itself.",
        "1",
        ge=-1e12,
        le=1e12,
    )
    damping: float = field(0.7, "Damping of the messages.", "1", ge=0.5, lt=1)
    convergence_iter: int = field(
        15,
        "Iterations without change that count as converged (T_cl).",
        "iterations",
        ge=1,
        le=100_000,
    )
    max_iter: int = field(400, "Most iterations of one attempt.", "iterations", ge=1, le=MOST)
    leader: Literal["exemplar", "best-uplink", "rotating"] = field(
        "exemplar",
        "Who leads a cluster: its exemplar, the member with the best uplink, or in turn the member "
        "with the most energy left.",
    )
    rotate_every: int = field(
        10, "Rounds between two choices of leaders under `rotating`.", "rounds", ge=1, le=MOST
    )
    min_link_snr_db: float = field(
        -10.0,
        "Weakest link between a member and its leader; devices without such a link are apart.",
        "dB",
        ge=-300,
        le=300,
    )
    count: int | None = field(
        None,
        "Wished number of clusters; unset: as many as the preferences give.",
        "clusters",
        ge=1,
        le=MOST,
    )
    two_level_above: int = field(
        3000,
        "Above this many devices, clusters are formed in tiles and then merged.",
        "devices",
        ge=2,
        le=MOST,
    )

    @model_validator(mode="after")
    def _quantiles(self) -> ClusteringConfig:
        for kind, value, key in (
            (self.preference, self.preference_value, "clustering.preference"),
            (self.data_preference, self.data_preference_value, "clustering.data_preference"),
        ):
            if kind == "quantile" and not 0 <= value <= 1:
                raise broken(
                    f"{key}_value = {value}: a quantile lies between 0 and 1", key, f"{key}_value"
                )
        return self
