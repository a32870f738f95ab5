"""The experiments as data: which worlds, which schemes, which settings.

A cell is one configuration without its seed. All cells of one (data set, h) and seed share devices'
positions, data, initial weights, batches and fading, because those follow from the seed and from
keys that the cells do not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

DATASETS = ("mnist", "fashion-mnist")
HETEROGENEITY = (6, 12, 18, 24, 30)
# The printed thresholds belong to 60 000 samples on 30 devices; a smaller federation has smaller
# contributions, so they are scaled with the samples per device.
THRESHOLDS = (0.5e4, 1.0e4, 1.5e4)
PRINTED_SAMPLES_PER_DEVICE = 2000
LEARNING_RATES = (0.03, 0.1, 0.3, 1.0)
NOISY = "noisy channel"
NOISY_AIDED = "noisy channel, server momentum, slow-down"  # all that `camu-balanced` has
MOMENTUM = 0.7  # that of `camu-balanced`
LAST_EVALUATIONS = 5  # whose mean is compared
SERVER_AVERAGE = 0.8  # per round; it is compared beside


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


QUICK = Scale("quick", 200, 60, 5, 8, (1000,))
FULL = Scale("full", 1500, 150, 5, 10, (1000, 1001, 1002))

# Keys that a variation sets, at this scale and with this learning rate.
Variation = Callable[[Scale, float], dict[str, Any]]


def _always(key: str, value: Any) -> Variation:
    return lambda scale, rate: {key: value}


# Readings and settings on which a claim may depend, each changed alone. None of them was chosen by
# its effect on one scheme against another.
SENSITIVITY: dict[str, Variation] = {
    # A third of the rounds: an epoch is five steps.
    "local update is an epoch": lambda scale, rate: {
        "training.local_update": "epoch",
        "run.rounds": max(1, scale.rounds // 3),
    },
    "one label per device": _always("data.labels_per_device", 1),
    "a third of the learning rate": lambda scale, rate: {
        "training.learning_rate": float(f"{rate / 3:.3g}")
    },
    "w_min 0.1": _always("contribution.w_min", 0.1),
    "label distributions as data similarity": _always("clustering.data", "pmf"),
    "printed data similarity": _always("clustering.data", "literal"),
}


def _one_label(**more: Any) -> Variation:
    """One label per device at twice the rate: trained past the peak of batch norm."""
    keys = {key.replace("__", "."): value for key, value in more.items()}
    return lambda scale, rate: {
        "data.labels_per_device": 1,
        "training.learning_rate": float(f"{2 * rate:.3g}"),
        **keys,
    }


# Readings under which multi-round updates may do harm (U1) and the gate may prevent it (U3).
HARM: dict[str, Variation] = {
    "group norm": _always("training.normalisation", "group"),
    "one label": _always("data.labels_per_device", 1),
    "one label, twice the rate": _one_label(),
    "one label, twice the rate, group norm": _one_label(training__normalisation="group"),
    "one label, twice the rate, wide CPUs": _one_label(
        fleet__cpu_hz=(0.05e9, 2e9), scheme__max_extra_updates=20
    ),
    "one label, epochs": lambda scale, rate: {
        "data.labels_per_device": 1,
        "training.local_update": "epoch",
        "run.rounds": max(1, scale.rounds // 3),
    },
    "one label, twice the rounds": lambda scale, rate: {
        "data.labels_per_device": 1,
        "run.rounds": 2 * scale.rounds,
    },
}
# `camu-balanced` with one rule switched off; it has its own momentum and slow-down.
ABLATIONS: dict[str, dict[str, bool | float]] = {
    "without near-IID clusters": {"near_iid": False},
    "without weights by samples": {"sample_weights": False},
    "without equal updates": {"equal_updates": False},
    "without momentum": {"momentum": 0.0},
    "without slow-down": {"slow_down": False},
}


def _switched_off(parameters: dict[str, bool | float]) -> Variation:
    return lambda scale, rate: {"radio.noise": "matters", "scheme.parameters": parameters}


RECALIBRATED = "one label, twice the rate"  # whose statistics are also computed again
VARIATIONS: dict[str, Variation] = {
    NOISY: _always("radio.noise", "matters"),
    NOISY_AIDED: lambda scale, rate: {
        "radio.noise": "matters",
        "fleet.dvfs": True,
        "training.server_momentum": MOMENTUM,
    },
    **SENSITIVITY,
    **HARM,
    **{name: _switched_off(parameters) for name, parameters in ABLATIONS.items()},
}

UNSEEN = "dirichlet"
# Other divisions of the data, over the noisy channel or not.
DIVISIONS: dict[str, dict[str, Any]] = {
    UNSEEN: {"data.partition": "dirichlet", "data.alpha": 0.3, "data.noniid_devices": None},
}


@dataclass(frozen=True)
class Cell:
    """One configuration of a study, without its seed."""

    dataset: str
    h: int  # Non-IID devices
    scheme: str
    threshold: float | None = None  # as printed; None: the median contribution
    solver: str | None = None
    variation: str | None = None  # one of VARIATIONS; None: the study's settings
    division: str | None = None  # one of DIVISIONS, instead of h

    @property
    def name(self) -> str:
        """A short name, fit for a file: mnist-h30-camu-threshold10000."""
        parts = [
            self.dataset,
            self.division or f"h{self.h}",
            self.scheme,
            None if self.threshold is None else f"threshold{self.threshold:g}",
            self.solver,
            self.variation,
        ]
        return re.sub(r"[^\w.-]+", "-", "-".join(part for part in parts if part))

    def changes(self, scale: Scale, rate: float, seed: int) -> dict[str, Any]:
        """All keys that this cell sets over the preset `study`."""
        keys: dict[str, Any] = {
            "data.dataset": self.dataset,
            "data.noniid_devices": self.h,
            "data.samples_per_device": scale.samples_per_device,
            "scheme.name": self.scheme,
            "training.learning_rate": rate,
            "run.rounds": scale.rounds,
            "run.eval_every": scale.eval_every,
            "run.eval_last": LAST_EVALUATIONS,
            "run.server_average": SERVER_AVERAGE,
            "run.checkpoint_every": 10,
            "run.workers": 1,
            "run.seed": seed,
        }
        if self.threshold is not None:
            keys["scheme.threshold"] = scale.threshold(self.threshold)
        if self.solver is not None:
            keys["allocation.solver"] = self.solver
        if self.variation is not None:
            keys |= VARIATIONS[self.variation](scale, rate)
        if self.division is not None:
            keys |= DIVISIONS[self.division]
        return keys


def sweep_cell(dataset: str) -> Cell:
    """Benchmark 1 in the middle of the heterogeneity range; it chooses the learning rate."""
    return Cell(dataset, 18, "fedavg")


def aggregation_cells(dataset: str) -> list[Cell]:
    """Benchmark 1, Configurations 2 and 1, from nearly IID to wholly Non-IID."""
    schemes = ("fedavg", "wasserstein", "clustered")
    return [Cell(dataset, h, name) for h in HETEROGENEITY for name in schemes]


def updates_cells(dataset: str) -> list[Cell]:
    """Configurations 3 (three thresholds) and 4, Benchmark 2, and normalised CAMU."""
    cells = []
    for h in (30, 12):
        cells += [Cell(dataset, h, name) for name in ("clustered", "petrel")]
        for printed in THRESHOLDS if h == 30 else (THRESHOLDS[1],):
            cells.append(Cell(dataset, h, "camu", printed))
    return [*cells, Cell(dataset, 30, "camu-nova", THRESHOLDS[1])]


def noisy_cell(dataset: str, scheme: str, solver: str | None = None) -> Cell:
    """A scheme over the noisy channel, all devices Non-IID."""
    gated = scheme in ("camu", "camu-joint", "camu-nova")
    threshold = THRESHOLDS[1] if gated else None
    return Cell(dataset, 30, scheme, threshold, solver, NOISY)


def resources_cells(dataset: str) -> list[Cell]:
    """The paper's schemes and benchmarks over the noisy channel, Configuration 5 twice."""
    names = ("fedavg", "wasserstein", "clustered", "petrel", "camu", "dsc", "local-sgd", "hti")
    plain = [noisy_cell(dataset, name) for name in (*names, "adaptive-tau", "camu-nova")]
    return plain + [noisy_cell(dataset, "camu-joint", solver) for solver in ("exact", "ppo")]


def sensitivity_cells(dataset: str) -> list[Cell]:
    """The schemes behind A1, A2 and U1 to U3 at h = 30, as is and under every variation.

    CAMU's threshold is the median contribution here: the printed numbers mean something else once
    sizes, distances or clusters change.
    """
    schemes = ("fedavg", "wasserstein", "clustered", "petrel", "camu")
    return [
        Cell(dataset, 30, name, variation=variation)
        for variation in (None, *SENSITIVITY)
        for name in schemes
    ]


def harm_cells(dataset: str) -> list[Cell]:
    """The schemes behind U1 and U3 at h = 30, as is and under each reading; median threshold.

    And those behind J1, with the printed threshold, of which one also over the clean channel.
    """
    schemes = ("clustered", "petrel", "camu")
    readings = [
        Cell(dataset, 30, name, variation=variation)
        for variation in (None, *HARM)
        for name in schemes
    ]
    joint = [noisy_cell(dataset, name) for name in ("petrel", "camu")]
    joint.append(noisy_cell(dataset, "camu-joint", "exact"))
    return [*readings, *joint, Cell(dataset, 30, "camu", THRESHOLDS[1])]


CONTESTANTS = (
    *("fedavg", "wasserstein", "clustered", "petrel", "camu", "hti", "camu-joint"),
    *("local-sgd", "dsc", "camu-nova", "hierfavg"),
)
CHAMPION = "camu-balanced"


def rivals(dataset: str, h: int) -> list[Cell]:
    """What `camu-balanced` meets: others, plain and aided as it is, and itself without a rule."""
    others = [
        Cell(dataset, h, name, variation=variation)
        for name in CONTESTANTS
        for variation in (NOISY, NOISY_AIDED)
    ]
    return others + [Cell(dataset, h, CHAMPION, variation=name) for name in ABLATIONS]


@dataclass(frozen=True)
class Match:
    """`camu-balanced` and what it is compared with in one kind of world."""

    title: str
    mine: Cell
    rivals: list[Cell]


def contest_matches(dataset: str) -> list[Match]:
    """All devices Non-IID, and 12 of 30, over the noisy channel."""
    return [
        Match(f"{dataset}, h = {h}", Cell(dataset, h, CHAMPION, variation=NOISY), found)
        for h in (30, 12)
        for found in [rivals(dataset, h)]
    ]


def unseen_matches(dataset: str) -> list[Match]:
    """A setting that no choice was made on: Dirichlet 0.3 on Fashion-MNIST."""
    if dataset != "fashion-mnist":
        return []
    (first, *_) = contest_matches(dataset)
    cells = [replace(cell, division=UNSEEN) for cell in (first.mine, *first.rivals)]
    return [Match(f"{dataset}, Dirichlet 0.3", cells[0], cells[1:])]


def _cells(matches: list[Match]) -> list[Cell]:
    return [cell for match in matches for cell in (match.mine, *match.rivals)]


MATCHES: dict[str, Callable[[str], list[Match]]] = {
    "contest": contest_matches,
    "unseen": unseen_matches,
}


# `theory` has no cells: it trains nothing.
EXPERIMENTS: dict[str, Callable[[str], list[Cell]]] = {
    "aggregation": aggregation_cells,
    "updates": updates_cells,
    "resources": resources_cells,
    "theory": lambda dataset: [],
    "sensitivity": sensitivity_cells,
    "harm": harm_cells,
    "contest": lambda dataset: _cells(contest_matches(dataset)),
    "unseen": lambda dataset: _cells(unseen_matches(dataset)),
}
