"""The experiments as data: which worlds, which schemes, which settings.

A cell is one configuration without its seed. All cells of one (data set, h) and seed share devices'
positions, data, initial weights, batches and fading, because those follow from the seed and from
keys that the cells do not change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from camu.schemes.registry import field_names

DATASETS = ("mnist", "fashion-mnist")
HETEROGENEITY = (6, 12, 18, 24, 30)
SWEEP_H = 18  # in the middle: there Benchmark 1 chooses the learning rate
# The printed thresholds belong to 60 000 samples on 30 devices; a smaller federation has smaller
# contributions, so they are scaled with the samples per device.
THRESHOLDS = (0.5e4, 1.0e4, 1.5e4)
PRINTED_SAMPLES_PER_DEVICE = 2000
LEARNING_RATES = (0.03, 0.1, 0.3, 1.0)
NOISY = "noisy channel"
LAST_EVALUATIONS = 5  # whose mean is compared
SERVER_AVERAGE = 0.8  # per round; the average is also compared


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


@dataclass(frozen=True)
class Variation:
    """What a cell changes besides its world and its scheme."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    rate: float = 1.0  # times the study's learning rate
    rounds: float = 1.0  # times the study's rounds


# Readings and settings on which a claim may depend, each changed alone. None of them was chosen by
# its effect on one scheme against another.
SENSITIVITY = {
    # A third of the rounds: an epoch is five steps.
    "local update is an epoch": Variation({"training.local_update": "epoch"}, rounds=1 / 3),
    "one label per device": Variation({"data.labels_per_device": 1}),
    "a third of the learning rate": Variation(rate=1 / 3),
    "w_min 0.1": Variation({"readings.w_min": 0.1}),
    "label distributions as data similarity": Variation({"clustering.data": "pmf"}),
    "printed data similarity": Variation({"clustering.data": "literal"}),
}
_ONE_LABEL = {"data.labels_per_device": 1}
_GROUP_NORM = {"training.normalisation": "group"}
_WIDE_CPUS = {"fleet.cpu_hz": (0.05e9, 2e9), "scheme.parameters.max_extra_updates": 20}
# Readings under which multi-round updates may do harm (U1) and the gate may prevent it (U3). One
# label per device at twice the rate is trained past the peak of batch norm.
HARM = {
    "group norm": Variation(_GROUP_NORM),
    "one label": Variation(_ONE_LABEL),
    "one label, twice the rate": Variation(_ONE_LABEL, rate=2),
    "one label, twice the rate, group norm": Variation(_ONE_LABEL | _GROUP_NORM, rate=2),
    "one label, twice the rate, wide CPUs": Variation(_ONE_LABEL | _WIDE_CPUS, rate=2),
    "one label, epochs": Variation(_ONE_LABEL | {"training.local_update": "epoch"}, rounds=1 / 3),
    "one label, twice the rounds": Variation(_ONE_LABEL, rounds=2),
}
RECALIBRATED = "one label, twice the rate"  # whose statistics are also computed again
# The paper's noise on updates: the claims about power (J1, J2) are about it.
_NOISE = {"radio.noise_dbm": -90.0, "radio.uplink": "hybrid"}
VARIATIONS = {NOISY: Variation(_NOISE), **SENSITIVITY, **HARM}


@dataclass(frozen=True)
class Cell:
    """One configuration of a study, without its seed."""

    dataset: str
    h: int  # Non-IID devices
    scheme: str
    threshold: float | None = None  # as printed; None: the median contribution
    solver: str | None = None
    variation: str | None = None  # one of VARIATIONS; None: the study's settings

    @property
    def name(self) -> str:
        """A short name, fit for a file: mnist-h30-camu-threshold10000."""
        parts = [
            self.dataset,
            f"h{self.h}",
            self.scheme,
            None if self.threshold is None else f"threshold{self.threshold:g}",
            self.solver,
            self.variation,
        ]
        return file_name("-".join(part for part in parts if part))

    def changes(self, scale: Scale, rate: float, seed: int) -> dict[str, Any]:
        """All keys that this cell sets over the preset `study`."""
        varied = VARIATIONS[self.variation] if self.variation else Variation()
        keys: dict[str, Any] = {
            "data.dataset": self.dataset,
            "data.noniid_devices": self.h,
            "data.samples_per_device": scale.samples_per_device,
            "scheme.name": self.scheme,
            "training.learning_rate": float(f"{varied.rate * rate:.3g}"),
            "run.rounds": max(1, round(varied.rounds * scale.rounds)),
            "run.eval_every": scale.eval_every,
            "run.eval_last": LAST_EVALUATIONS,
            "run.server_average": SERVER_AVERAGE,
            "machine.checkpoint_every": 10,
            "machine.workers": 1,
            "run.seed": seed,
        }
        if self.threshold is not None:
            keys["scheme.parameters.threshold"] = scale.threshold(self.threshold)
        if self.solver is not None:
            keys["allocation.solver"] = self.solver
        keys |= varied.keys
        own = {f"scheme.parameters.{name}" for name in field_names(self.scheme)}
        return {k: v for k, v in keys.items() if not k.startswith("scheme.parameters.") or k in own}


def file_name(text: str) -> str:
    """Text with everything replaced that is not fit for the name of a file."""
    return re.sub(r"[^\w.-]+", "-", text)


def noisy_cell(dataset: str, scheme: str, solver: str | None = None) -> Cell:
    """A scheme over the noisy channel, all devices Non-IID."""
    gated = scheme in ("camu", "camu-joint", "camu-nova")
    threshold = THRESHOLDS[1] if gated else None
    return Cell(dataset, 30, scheme, threshold, solver, NOISY)


def cells_of(experiment: str, dataset: str) -> list[Cell]:
    """The cells of one experiment on a data set; `theory` has none, because it trains nothing."""

    def varied(variations: Mapping[str, Variation], *schemes: str) -> list[Cell]:
        # As is and under every variation. CAMU's threshold is the median contribution: the printed
        # numbers mean something else once sizes, distances or clusters change.
        return [
            Cell(dataset, 30, name, variation=variation)
            for variation in (None, *variations)
            for name in schemes
        ]

    def noisy(*schemes: str, solvers: tuple[str, ...]) -> list[Cell]:
        joint = [noisy_cell(dataset, "camu-joint", solver) for solver in solvers]
        return [*(noisy_cell(dataset, name) for name in schemes), *joint]

    paper = ("fedavg", "wasserstein", "clustered", "petrel", "camu")
    at_printed = Cell(dataset, 30, "camu", THRESHOLDS[1])
    match experiment:
        case "aggregation":  # from nearly IID to wholly Non-IID
            return [Cell(dataset, h, name) for h in HETEROGENEITY for name in paper[:3]]
        case "updates":  # Configurations 3 and 4, Benchmark 2, and normalised CAMU
            plain = [Cell(dataset, h, name) for h in (30, 12) for name in ("clustered", "petrel")]
            gated = [Cell(dataset, 30, "camu", printed) for printed in THRESHOLDS]
            few = replace(at_printed, h=12)
            return [*plain, *gated, few, Cell(dataset, 30, "camu-nova", THRESHOLDS[1])]
        case "resources":  # over the noisy channel, Configuration 5 twice
            others = ("dsc", "local-sgd", "hti", "adaptive-tau", "camu-nova")
            return noisy(*paper, *others, solvers=("exact", "ppo"))
        case "sensitivity":  # the schemes behind A1, A2 and U1 to U3
            return varied(SENSITIVITY, *paper)
        case "harm":  # those behind U1 and U3, and behind J1, of which one over a clean channel
            joint = noisy("petrel", "camu", solvers=("exact",))
            return [*varied(HARM, "clustered", "petrel", "camu"), *joint, at_printed]
    return []
