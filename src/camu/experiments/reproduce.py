"""The study: choose the learning rate on Benchmark 1, run every cell, judge every claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from camu.arrays import Float64
from camu.config import Config
from camu.errors import InputError
from camu.experiments import claims, harm
from camu.experiments.contest_table import contest_tables
from camu.experiments.design import (
    DATASETS,
    EXPERIMENTS,
    FULL,
    LAST_EVALUATIONS,
    LEARNING_RATES,
    MATCHES,
    QUICK,
    Cell,
    Match,
    Scale,
    noisy_cell,
    sweep_cell,
)
from camu.experiments.execute import execute, result_directory, study_config
from camu.experiments.tables import as_markdown, runs_table
from camu.experiments.theory import margins
from camu.experiments.verdicts import Verdict, beside, corrected
from camu.files import write_json, write_text
from camu.simulation.directory import RunDirectory
from camu.work import Progress

THEORY_SEEDS = 20


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
        return list(
            dict.fromkeys(c for name in self.experiments for c in EXPERIMENTS[name](dataset))
        )

    def matches(self, dataset: str, only: str | None = None) -> list[Match]:
        """Whom `camu-balanced` meets in the experiments that compare it, or in one of them."""
        return [
            match
            for name, matches in MATCHES.items()
            if name in self.experiments and only in (None, name)
            for match in matches(dataset)
        ]


@dataclass(frozen=True)
class Results:
    """All finished runs of a study."""

    directories: Mapping[tuple[Cell, int], RunDirectory] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)  # by data set
    trained: int = 0  # runs of this call; the others were finished before
    reused: int = 0

    def histories(self) -> claims.Histories:
        """The histories by cell and seed."""
        return {key: directory.read_history() for key, directory in self.directories.items()}

    def allocation(self, cell: Cell, seed: int) -> dict[str, Any]:
        """The allocation in the plan of a run, with its objective and its certified gap."""
        plan = self.directories[cell, seed].read_plan_document()
        allocation: dict[str, Any] = plan["allocation"]
        return allocation

    def weighted_updates(self, cell: Cell, seed: int) -> float:
        """The local updates per round of a run, in the mean with the weights of the units."""
        units = self.directories[cell, seed].read_plan_document()["units"]
        return float(sum(unit["weight"] * unit["local_updates"] for unit in units))


@dataclass(frozen=True)
class Outcome:
    """The verdicts of a study, where they are, and the work it took."""

    verdicts: tuple[Verdict, ...]
    verdicts_path: Path
    trained: int  # runs of this call
    reused: int  # runs that were finished before
    federations: int  # convex federations computed for theory; they are not kept


def run_study(
    study: Study,
    out: Path,
    progress: Progress,
    engine: str = "local",
    address: str | None = None,
) -> Outcome:
    """Run what is missing, judge every claim, and write verdicts.json and verdicts.md."""
    results = run_cells(study, out, progress, engine, address)
    histories = results.histories()
    verdicts = corrected(list(_verdicts(study, results, histories, progress)))
    path = out / "verdicts.json"
    write_json(path, [verdict.to_dict() for verdict in verdicts])
    write_text(out / "verdicts.md", as_markdown(verdicts))
    for name in MATCHES:
        if found := [match for dataset in study.datasets for match in study.matches(dataset, name)]:
            write_text(out / f"{name}.md", contest_tables(found, verdicts))
    if histories:
        write_text(out / "runs.csv", runs_table(histories))
    federations = len(study.datasets) * study.theory_seeds * ("theory" in study.experiments)
    return Outcome(tuple(verdicts), path, results.trained, results.reused, federations)


def run_cells(
    study: Study, out: Path, progress: Progress, engine: str = "local", address: str | None = None
) -> Results:
    """Train everything that is missing."""
    if not any(study.cells(dataset) for dataset in study.datasets):
        return Results()
    sweep = choose_rates(study, out, progress, engine, address)
    runs = out / "runs"
    configs: dict[tuple[Cell, int], Config] = {
        (cell, seed): study_config(cell.changes(study.scale, sweep.rates[dataset], seed))
        for dataset in study.datasets
        for cell in study.cells(dataset)
        for seed in range(study.scale.seeds)
    }
    named = {_run_name(*key): config for key, config in configs.items()}
    trained = execute(named, runs, progress, "runs", engine, address)
    directories = {
        key: result_directory(runs, _run_name(*key), config) for key, config in configs.items()
    }
    reused = len(configs) - trained + sweep.reused
    return Results(directories, sweep.rates, trained + sweep.trained, reused)


@dataclass(frozen=True)
class Sweep:
    """The learning rate of each data set, and how many runs it took to choose it."""

    rates: Mapping[str, float]
    trained: int
    reused: int


def choose_rates(
    study: Study, out: Path, progress: Progress, engine: str = "local", address: str | None = None
) -> Sweep:
    """One learning rate per data set, from Benchmark 1 alone; the sweep is recorded.

    It is the next one below the best: at the best rate training is at the edge of stability, and
    the last bits of a sum decide about points of accuracy. The runs of the sweep are kept apart
    from those that are compared, because their seeds are used for nothing else.
    """
    runs = out / "sweep"
    configs: dict[tuple[str, float, str], Config] = {}
    for dataset in study.datasets:
        cell = sweep_cell(dataset)
        for rate in LEARNING_RATES:
            for seed in study.scale.sweep_seeds:
                name = f"{cell.name}-rate{rate:g}-seed{seed}"
                config = study_config(cell.changes(study.scale, rate, seed))
                configs[dataset, rate, name] = config
    named = {name: config for (_, _, name), config in configs.items()}
    trained = execute(named, runs, progress, "learning-rate sweep", engine, address)
    rates, record = {}, {}
    for dataset in study.datasets:
        accuracy = {
            rate: float(
                np.mean(
                    [
                        result_directory(runs, name, c).read_summary()["final_accuracy"]
                        for (where, at, name), c in configs.items()
                        if (where, at) == (dataset, rate)
                    ]
                )
            )
            for rate in LEARNING_RATES
        }
        best = max(accuracy, key=lambda rate: accuracy[rate])
        rates[dataset] = max((r for r in LEARNING_RATES if r < best), default=best)
        record[dataset] = {"best": best, "chosen": rates[dataset], "accuracy": accuracy}
    write_json(out / "sweep.json", record)
    return Sweep(rates, trained, len(configs) - trained)


def _run_name(cell: Cell, seed: int) -> str:
    return f"{cell.name}-seed{seed}"


def _verdicts(
    study: Study, results: Results, histories: claims.Histories, progress: Progress
) -> Iterator[Verdict]:
    seeds = range(study.scale.seeds)
    for dataset in study.datasets:
        yield from _by_accuracy(study, dataset, histories)
        if "resources" in study.experiments:
            yield from claims.budgets(dataset, seeds, histories)
            allocations = {
                (solver, seed): results.allocation(noisy_cell(dataset, "camu-joint", solver), seed)
                for solver in ("exact", "ppo")
                for seed in seeds
            }
            yield claims.exact_against_ppo(dataset, allocations, seeds)
        if "harm" in study.experiments:
            yield from _harm(study, dataset, results, histories, progress)
        for match in study.matches(dataset):
            yield from claims.contest(match, seeds, histories)
        if "theory" in study.experiments:
            rows = []
            for seed in range(study.theory_seeds):
                rows.append(margins(dataset, seed))
                progress(f"theory on {dataset}", seed + 1, study.theory_seeds)
            yield from claims.theory(dataset, rows)


def _by_accuracy(study: Study, dataset: str, histories: claims.Histories) -> Iterator[Verdict]:
    """Claims about accuracy: by the last evaluations, with the servers' averages beside."""
    seeds = range(study.scale.seeds)

    def tail(cell: Cell, seed: int) -> float:
        return histories[cell, seed].tail_accuracy(LAST_EVALUATIONS)

    def average(cell: Cell, seed: int) -> float:
        found = histories[cell, seed].average_accuracy
        assert found is not None  # every cell asks for it
        return found

    def labels(cell: Cell, seed: int) -> Float64:
        return histories[cell, seed].tail_label_accuracy(LAST_EVALUATIONS)

    judged: dict[str, Callable[[claims.Accuracy], Iterator[Verdict]]] = {
        "aggregation": lambda accuracy: claims.aggregation(dataset, accuracy, seeds),
        "updates": lambda accuracy: claims.updates(dataset, accuracy, seeds),
        "resources": lambda accuracy: claims.resources(dataset, accuracy, seeds),
        "sensitivity": lambda accuracy: claims.sensitivity(dataset, accuracy, seeds),
        "harm": lambda accuracy: chain(
            harm.harm(dataset, accuracy, seeds), harm.joint(dataset, accuracy, seeds)
        ),
    }
    for name, judge in judged.items():
        if name in study.experiments:
            yield from beside(list(judge(tail)), list(judge(average)))
    if "harm" in study.experiments:
        yield from harm.labels(dataset, labels, seeds)


def _harm(
    study: Study,
    dataset: str,
    results: Results,
    histories: claims.Histories,
    progress: Progress,
) -> Iterator[Verdict]:
    """What needs more than accuracies: equal work, statistics computed again, and the gate."""
    from camu.experiments.recalibrate import recalibrated_accuracy  # torch takes long to load

    def accuracy(cell: Cell, seed: int) -> float:
        progress(f"{cell.scheme} recalibrated on {dataset}", seed + 1, study.scale.seeds)
        return recalibrated_accuracy(results.directories[cell, seed])

    seeds = range(study.scale.seeds)
    petrel = Cell(dataset, 30, "petrel")
    updates = {seed: results.weighted_updates(petrel, seed) for seed in seeds}
    yield harm.equal_work(dataset, seeds, histories, updates)
    yield from harm.recalibrated(dataset, accuracy, seeds)
    yield from harm.gate(dataset, study.scale, results.rates[dataset])
