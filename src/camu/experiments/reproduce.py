"""The study: choose the learning rate on Benchmark 1, run every cell, judge every claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from camu.arrays import Float64
from camu.errors import InputError
from camu.experiments import claims
from camu.experiments.design import (
    DATASETS,
    FULL,
    LAST_EVALUATIONS,
    LEARNING_RATES,
    QUICK,
    SWEEP_H,
    Cell,
    Scale,
    cells_of,
    noisy_cell,
)
from camu.experiments.scheduler import Executor, FinishedRun, study_config
from camu.experiments.statistics import Verdict, corrected, with_averages
from camu.experiments.tables import runs_csv, verdicts_page
from camu.experiments.theory import margins
from camu.files import write_json, write_text

THEORY_SEEDS = 20
Runs = Mapping[tuple[Cell, int], FinishedRun]


@dataclass(frozen=True)
class Study:
    """Which experiments, on which data sets, how large."""

    experiments: tuple[str, ...]
    datasets: tuple[str, ...]
    scale: Scale
    theory_seeds: int = THEORY_SEEDS

    @classmethod
    def make(
        cls, experiments: tuple[str, ...], dataset: str | None, seeds: int | None, quick: bool
    ) -> Study:
        """The study that the command line asks for."""
        if dataset is not None and dataset not in DATASETS:
            raise InputError(f"--dataset {dataset}: choose {' or '.join(DATASETS)}")
        scale = QUICK if quick else FULL
        scale = scale if seeds is None else replace(scale, seeds=seeds)
        datasets = DATASETS if dataset is None else (dataset,)
        return cls(experiments, datasets, scale, seeds or THEORY_SEEDS)

    def cells(self, dataset: str) -> list[Cell]:
        """The cells of all experiments on a data set, each once."""
        return list(dict.fromkeys(c for name in self.experiments for c in cells_of(name, dataset)))

    @property
    def federations(self) -> int:
        """How many convex federations are computed for theory; they are not kept."""
        return len(self.datasets) * self.theory_seeds * ("theory" in self.experiments)


def run_study(study: Study, executor: Executor) -> list[Verdict]:
    """Run what is missing, judge every claim, and write verdicts.json and verdicts.md."""
    rates: dict[str, float] = {}
    runs: Runs = {}
    if any(study.cells(dataset) for dataset in study.datasets):
        rates = choose_rates(study.datasets, study.scale, executor)
        runs = executor.run(
            {
                (cell, seed): study_config(cell.changes(study.scale, rates[dataset], seed))
                for dataset in study.datasets
                for cell in study.cells(dataset)
                for seed in range(study.scale.seeds)
            },
            lambda key: f"{key[0].name}-seed{key[1]}",
        )
    verdicts = corrected(
        [
            verdict
            for dataset in study.datasets
            for verdict in _verdicts(study, dataset, runs, rates.get(dataset, 0.0), executor)
        ]
    )
    out = executor.out
    write_json(out / "verdicts.json", [asdict(verdict) for verdict in verdicts])
    write_text(out / "verdicts.md", verdicts_page(verdicts))
    if runs:
        histories = ((cell.name, seed, run.history) for (cell, seed), run in runs.items())
        write_text(out / "runs.csv", runs_csv(histories))
    return verdicts


def choose_rates(datasets: tuple[str, ...], scale: Scale, executor: Executor) -> dict[str, float]:
    """One learning rate per data set, from Benchmark 1 alone; the sweep is recorded.

    It is the next one below the best: at the best rate training is at the edge of stability, and
    the last bits of a sum decide about points of accuracy. The runs of the sweep are kept apart
    from those that are compared, because their seeds are used for nothing else.
    """
    seeds, cells = scale.sweep_seeds, [Cell(dataset, SWEEP_H, "fedavg") for dataset in datasets]
    found = executor.run(
        {
            (cell, rate, seed): study_config(cell.changes(scale, rate, seed))
            for cell, rate, seed in product(cells, LEARNING_RATES, seeds)
        },
        lambda key: f"{key[0].name}-rate{key[1]:g}-seed{key[2]}",
        folder="sweep",
        what="learning-rate sweep",
    )
    rates, record = {}, {}
    for cell, dataset in zip(cells, datasets, strict=True):
        final = [
            [found[cell, rate, seed].history.final_score for seed in seeds]
            for rate in LEARNING_RATES
        ]
        means = np.mean(final, axis=1).tolist()
        accuracy = dict(zip(LEARNING_RATES, means, strict=True))
        best = max(accuracy, key=lambda rate: accuracy[rate])
        rates[dataset] = max((r for r in LEARNING_RATES if r < best), default=best)
        record[dataset] = {"best": best, "chosen": rates[dataset], "accuracy": accuracy}
    write_json(executor.out / "sweep.json", record)
    return rates


def _verdicts(
    study: Study, dataset: str, runs: Runs, rate: float, executor: Executor
) -> Iterator[Verdict]:
    """The verdicts of all experiments on a data set."""
    seeds, asked = range(study.scale.seeds), study.experiments
    histories = {key: run.history for key, run in runs.items()}
    yield from _by_accuracy(study, dataset, histories)
    if "resources" in asked:
        yield from claims.budgets(dataset, seeds, histories)
        joint = {name: noisy_cell(dataset, "camu-joint", name) for name in ("exact", "ppo")}
        allocations = {
            (solver, seed): _plan(runs, cell, seed)["allocation"]
            for solver, cell in joint.items()
            for seed in seeds
        }
        yield claims.exact_against_ppo(dataset, allocations, seeds)
    if "harm" in asked:
        # The local updates per round of Benchmark 2, in the mean with the weights of the units.
        units = {seed: _plan(runs, Cell(dataset, 30, "petrel"), seed)["units"] for seed in seeds}
        updates = {
            seed: float(sum(unit["weight"] * unit["local_updates"] for unit in own))
            for seed, own in units.items()
        }
        yield claims.equal_work(dataset, seeds, histories, updates)
        yield from _recalibrated(dataset, runs, seeds, executor)
        yield from claims.gate(dataset, study.scale, rate)
    if "theory" in asked:
        rows = []
        for seed in range(study.theory_seeds):
            rows.append(margins(dataset, seed))
            executor.progress(f"theory on {dataset}", seed + 1, study.theory_seeds)
        yield from claims.theory(dataset, rows)


def _by_accuracy(study: Study, dataset: str, histories: claims.Histories) -> Iterator[Verdict]:
    """Claims about accuracy: by the last evaluations, with what the servers' averages say."""
    seeds = range(study.scale.seeds)

    def tail(cell: Cell, seed: int) -> float:
        return histories[cell, seed].tail_score(LAST_EVALUATIONS)

    def average(cell: Cell, seed: int) -> float:
        found = histories[cell, seed].average_score
        assert found is not None  # every cell asks for it
        return found

    def labels(cell: Cell, seed: int) -> Float64:
        return histories[cell, seed].tail_label_accuracy(LAST_EVALUATIONS)

    for name, judged in claims.BY_ACCURACY.items():
        if name in study.experiments:
            both = (judged(claims.Accuracies(dataset, of, seeds)) for of in (tail, average))
            yield from with_averages(*map(list, both))
    if "harm" in study.experiments:
        yield from claims.labels(dataset, labels, seeds)


def _plan(runs: Runs, cell: Cell, seed: int) -> dict[str, Any]:
    """The plan of a run, as plain data."""
    return runs[cell, seed].planned.directory.read_plan_document()


def _recalibrated(dataset: str, runs: Runs, seeds: range, executor: Executor) -> Iterator[Verdict]:
    from camu.experiments.recalibrate import recalibrated_accuracy  # torch takes long to load

    def accuracy(cell: Cell, seed: int) -> float:
        executor.progress(f"{cell.scheme} recalibrated on {dataset}", seed + 1, len(seeds))
        return recalibrated_accuracy(runs[cell, seed].planned.directory)

    yield from claims.recalibrated(claims.Accuracies(dataset, accuracy, seeds))
