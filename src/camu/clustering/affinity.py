"""Affinity propagation (Frey and Dueck 2007) on any similarity, for few devices and for many.

scikit-learn passes the messages. Up to a limit all devices take part; above it, affinity
propagation runs on representatives, each weighted by the devices it stands for, and every device
then joins the exemplar that it is most similar to.
"""

from __future__ import annotations

import logging
import warnings

import numpy as np
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning

from camu.clustering.similarity import Floats, Ints, Similarity
from camu.config import ClusteringConfig
from camu.seeding import derive

log = logging.getLogger(__name__)

REPRESENTATIVES = 1000
_BLOCK_ENTRIES = 4_000_000


def propagate(
    similarity: Similarity, devices: Ints, config: ClusteringConfig, two_level: bool
) -> Ints | None:
    """The exemplar of each of these devices, or None where the messages single out none."""
    if two_level and len(devices) > REPRESENTATIVES:
        return _propagate_representatives(similarity, devices, config)
    if len(devices) == 1:
        return devices
    matrix = similarity.block(devices, devices)
    preference = similarity.preference[devices]
    alike = _common_value(matrix)
    if alike is not None and preference.min() == preference.max():
        # No pair stands out, so messages have nothing to say: one cluster if joining is worth
        # at least as much as leading, otherwise everyone alone.
        return np.full_like(devices, devices[0]) if alike >= preference[0] else devices
    exemplars = _run(matrix, preference, config)
    return None if exemplars is None else devices[exemplars]


def _propagate_representatives(
    similarity: Similarity, devices: Ints, config: ClusteringConfig
) -> Ints | None:
    """Two levels: devices stand behind sampled representatives, and those are clustered.

    A representative of m devices counts m times in the net similarity that affinity propagation
    maximises, and one that leads also gathers the devices behind it. Shifting all similarities and
    preferences alike changes nothing, so they are made at most 0 before they are scaled.
    """
    generator = derive(0, "representatives", len(devices)).numpy()
    chosen = np.sort(generator.choice(devices, REPRESENTATIVES, replace=False))
    nearest, value = _most_similar(similarity, devices, chosen)
    weights = np.bincount(nearest, minlength=len(chosen)).astype(float)
    matrix = similarity.block(chosen, chosen)
    preference = similarity.preference[chosen]
    shift = max(float(matrix.max()), float(preference.max()), float(value.max()))
    behind = ~np.isin(devices, chosen)
    own = np.bincount(nearest[behind], value[behind] - shift, minlength=len(chosen))
    exemplars = _run((matrix - shift) * weights[:, None], preference - shift + own, config)
    if exemplars is None:
        return None
    leaders = chosen[np.unique(exemplars)]
    return leaders[_most_similar(similarity, devices, leaders)[0]]


def _most_similar(similarity: Similarity, devices: Ints, candidates: Ints) -> tuple[Ints, Floats]:
    """For each device the position of its most similar candidate, and how similar that is.

    A candidate stands for itself: its similarity to itself is a preference, not comparable.
    """
    nearest = np.empty(len(devices), np.int64)
    value = np.empty(len(devices))
    step = max(1, _BLOCK_ENTRIES // len(candidates))
    for start in range(0, len(devices), step):
        part = slice(start, start + step)
        block = similarity.block(devices[part], candidates)
        nearest[part] = block.argmax(axis=1)
        value[part] = block.max(axis=1)
    order = np.argsort(candidates)
    place = order[np.searchsorted(candidates, devices, sorter=order).clip(max=len(order) - 1)]
    itself = candidates[place] == devices
    nearest[itself] = place[itself]
    return nearest, value


def _common_value(matrix: Floats) -> float | None:
    """The one value of all off-diagonal entries, or None when they differ."""
    first = float(matrix[0, 1])
    same = matrix == first
    np.fill_diagonal(same, True)
    return first if same.all() else None


def _run(matrix: Floats, preference: Floats, config: ClusteringConfig) -> Ints | None:
    """Pass messages; where they do not settle, raise the damping and try again."""
    exemplars: Ints | None = None
    for damping in (config.damping, *(d for d in (0.85, 0.95) if d > config.damping)):
        model = AffinityPropagation(
            affinity="precomputed",
            preference=preference,
            damping=damping,
            max_iter=config.max_iter,
            convergence_iter=config.convergence_iter,
            random_state=0,  # only breaks exact ties, the same way every time
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # told by n_iter_ below
            model.fit(matrix)
        centers = np.asarray(model.cluster_centers_indices_, dtype=np.int64)
        if len(centers):
            exemplars = np.asarray(centers[model.labels_], dtype=np.int64)
            if model.n_iter_ < config.max_iter:
                return exemplars
        log.info("affinity propagation did not settle at damping %g", damping)
    log.warning(
        "affinity propagation of %d devices did not settle in %d iterations; %s",
        len(matrix),
        config.max_iter,
        "its last state is used" if exemplars is not None else "no exemplar was found",
    )
    return exemplars
