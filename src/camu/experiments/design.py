"""The experiments as data: which worlds, which schemes, which settings.

A cell is one configuration without its seed. All cells of one (data set, h) and seed share devices'
positions, data, initial weights, batches and fading, because those follow from the seed and from
keys that the cells do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from camu.schemes import SCHEMES

DATASETS = ("mnist", "fashion-mnist")
EXPERIMENTS = ("aggregation", "updates", "resources", "theory", "sensitivity")
HETEROGENEITY = (6, 12, 18, 24, 30)
# The printed thresholds belong to 60 000 samples on 30 devices; a smaller federation has smaller
# contributions, so they are scaled with the samples per device.
THRESHOLDS = (0.5e4, 1.0e4, 1.5e4)
PRINTED_SAMPLES_PER_DEVICE = 2000
LEARNING_RATES = (0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Scale:
    """How large a study is."""

    name: str
    samples_per_device: int
    rounds: int
    eval_every: int
    seeds: int
    sweep_seeds: tuple[int, ...]  # never used for a comparison

    def threshold(self, printed: float) -> float:
        """A printed threshold at this size of data."""
        return printed * self.samples_per_device / PRINTED_SAMPLES_PER_DEVICE


QUICK = Scale("quick", 600, 30, 5, 3, (1000,))
FULL = Scale("full", 1500, 150, 5, 10, (1000, 1001, 1002))


@dataclass(frozen=True)
class Cell:
    """One configuration of a study, without its seed."""

    name: str  # how claims refer to it, for example "h30/camu@10000"
    dataset: str
    settings: tuple[tuple[str, Any], ...]

    def changes(self, scale: Scale, rate: float, seed: int) -> dict[str, Any]:
        """All keys that this cell sets over the preset `study`."""
        return {
            "data.dataset": self.dataset,
            "data.samples_per_device": scale.samples_per_device,
            "training.learning_rate": rate,
            "run.rounds": scale.rounds,
            "run.eval_every": scale.eval_every,
            "run.checkpoint_every": 10,
            "run.workers": 1,
            "run.seed": seed,
            **dict(self.settings),
        }


def _cell(dataset: str, name: str, h: int, scheme: str, **settings: Any) -> Cell:
    keys: dict[str, Any] = {"data.noniid_devices": h, "scheme.name": scheme}
    keys |= {key.replace("__", "."): value for key, value in settings.items()}
    return Cell(name, dataset, tuple(sorted(keys.items())))


def sweep_cells(dataset: str) -> dict[float, Cell]:
    """Benchmark 1 in the middle of the heterogeneity range, at every candidate rate."""
    return {
        rate: _cell(dataset, f"sweep@{rate:g}", 18, "fedavg", training__learning_rate=rate)
        for rate in LEARNING_RATES
    }


def aggregation_cells(dataset: str, scale: Scale) -> list[Cell]:
    """Benchmark 1, Configurations 2 and 1, from nearly IID to wholly Non-IID."""
    schemes = ("fedavg", "wasserstein", "clustered")
    return [_cell(dataset, f"h{h}/{name}", h, name) for h in HETEROGENEITY for name in schemes]


def updates_cells(dataset: str, scale: Scale) -> list[Cell]:
    """Configurations 3 (three thresholds) and 4, Benchmark 2, and normalised CAMU."""
    cells = []
    for h in (30, 12):
        cells += [_cell(dataset, f"h{h}/{name}", h, name) for name in ("clustered", "petrel")]
        for printed in THRESHOLDS if h == 30 else (THRESHOLDS[1],):
            cut = scale.threshold(printed)
            name = f"h{h}/camu@{printed:g}"
            cells.append(_cell(dataset, name, h, "camu", scheme__threshold=cut))
    middle = scale.threshold(THRESHOLDS[1])
    cells.append(_cell(dataset, "h30/camu-nova", 30, "camu-nova", scheme__threshold=middle))
    return cells


def resources_cells(dataset: str, scale: Scale) -> list[Cell]:
    """Every scheme over the noisy channel, Configuration 5 with both solvers."""
    noisy: Mapping[str, Any] = {
        "radio__noise": "matters",
        "scheme__threshold": scale.threshold(THRESHOLDS[1]),
    }
    cells = [
        _cell(dataset, f"noisy/{name}", 30, name, **noisy)
        for name in SCHEMES
        if name != "camu-joint"
    ]
    for solver in ("exact", "ppo"):
        name = f"noisy/camu-joint-{solver}"
        cells.append(_cell(dataset, name, 30, "camu-joint", allocation__solver=solver, **noisy))
    return cells


# Readings and settings on which a claim may hang, each changed alone. None of them was chosen by
# looking at what it does to one scheme against another.
VARIATIONS: dict[str, dict[str, Any]] = {
    "as is": {},
    # A third of the rounds: an epoch is five steps.
    "local update is an epoch": {"training__local_update": "epoch", "run__rounds": 10},
    "one label per device": {"data__labels_per_device": 1},
    "a third of the learning rate": {"training__learning_rate": 0.1},
    "w_min 0.1": {"scheme__w_min": 0.1},
    "label distributions as data similarity": {"clustering__data": "pmf"},
    "printed data similarity": {"clustering__data": "literal"},
}


def sensitivity_cells(dataset: str, scale: Scale) -> list[Cell]:
    """The schemes behind A1, A2 and U1 to U3 at h = 30, under every variation.

    CAMU's threshold is the median contribution here: the printed numbers mean something else once
    sizes, distances or clusters change.
    """
    schemes = ("fedavg", "wasserstein", "clustered", "petrel", "camu")
    return [
        _cell(dataset, f"{variation}/{name}", 30, name, **changes)
        for variation, changes in VARIATIONS.items()
        for name in schemes
    ]


def cells_of(experiment: str, dataset: str, scale: Scale) -> list[Cell]:
    """The cells of an experiment; `theory` has none, it trains nothing."""
    makers = {
        "aggregation": aggregation_cells,
        "updates": updates_cells,
        "resources": resources_cells,
        "sensitivity": sensitivity_cells,
    }
    return makers[experiment](dataset, scale) if experiment in makers else []
