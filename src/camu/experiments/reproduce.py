"""The study: choose the learning rate on Benchmark 1, run every cell, judge every claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from camu.config import Config
from camu.errors import InputError
from camu.experiments.catalogue import DATASETS, FULL, QUICK, Scale, cells_of, sweep_cells
from camu.experiments.execute import execute, result_directory, study_config
from camu.files import write_json

Told = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Study:
    """Which experiments, on which data sets, how large."""

    experiments: tuple[str, ...]
    datasets: tuple[str, ...]
    scale: Scale

    @classmethod
    def make(
        cls, experiments: tuple[str, ...], dataset: str | None, seeds: int | None, quick: bool
    ) -> Study:
        """From what the command line says."""
        if dataset is not None and dataset not in DATASETS:
            raise InputError(f"--dataset {dataset}: choose {' or '.join(DATASETS)}")
        scale = QUICK if quick else FULL
        scale = scale if seeds is None else replace(scale, seeds=seeds)
        return cls(experiments, DATASETS if dataset is None else (dataset,), scale)

    @property
    def trains(self) -> bool:
        """Whether any experiment needs training runs."""
        return any(name != "theory" for name in self.experiments)


def sweep_configs(study: Study, dataset: str) -> dict[float, list[Config]]:
    """Benchmark 1 at every candidate rate, on seeds that no comparison uses."""
    return {
        rate: [
            study_config(cell.changes(study.scale, rate, seed)) for seed in study.scale.sweep_seeds
        ]
        for rate, cell in sweep_cells(dataset).items()
    }


def choose_rates(
    study: Study, runs: Path, told: Told, engine: str, address: str | None
) -> tuple[dict[str, float], int]:
    """One learning rate per data set, from Benchmark 1 alone; the sweep is recorded."""
    sweeps = {dataset: sweep_configs(study, dataset) for dataset in study.datasets}
    everything = [c for sweep in sweeps.values() for own in sweep.values() for c in own]
    did = execute(everything, runs, lambda d, t: told("learning-rate sweep", d, t), engine, address)
    rates, record = {}, {}
    for dataset, sweep in sweeps.items():
        found = {
            rate: float(
                np.mean(
                    [result_directory(runs, c).read_summary()["final_accuracy"] for c in configs]
                )
            )
            for rate, configs in sweep.items()
        }
        rates[dataset] = max(found, key=lambda rate: found[rate])
        record[dataset] = {"chosen": rates[dataset], "accuracy": found}
    write_json(runs.parent / "sweep.json", record)
    return rates, did


def study_configs(study: Study, rates: dict[str, float]) -> dict[tuple[str, str, int], Config]:
    """Every run of the study by (data set, cell, seed)."""
    return {
        (dataset, cell.name, seed): study_config(cell.changes(study.scale, rates[dataset], seed))
        for dataset in study.datasets
        for experiment in study.experiments
        for cell in cells_of(experiment, dataset, study.scale)
        for seed in range(study.scale.seeds)
    }


def run_all_cells(
    study: Study, out: Path, told: Told, engine: str = "local", address: str | None = None
) -> tuple[dict[tuple[str, str, int], Any], dict[str, float], int]:
    """Train everything that is missing; returns the histories by (data set, cell, seed)."""
    runs = out / "runs"
    if not study.trains:
        return {}, {}, 0
    rates, swept = choose_rates(study, runs, told, engine, address)
    configs = study_configs(study, rates)
    did = execute(configs.values(), runs, lambda d, t: told("runs", d, t), engine, address)
    histories = {
        key: result_directory(runs, config).read_history() for key, config in configs.items()
    }
    return histories, rates, swept + did
