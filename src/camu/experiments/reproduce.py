"""The study: choose the learning rate on Benchmark 1, run every cell, judge every claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.table import Table

from camu.config import Config
from camu.errors import InputError
from camu.experiments import claims
from camu.experiments.design import DATASETS, FULL, QUICK, Scale, cells_of, sweep_cells
from camu.experiments.claims import Verdict
from camu.experiments.execute import execute, result_directory, study_config
from camu.experiments.statistics import Estimate
from camu.experiments.theory import margins
from camu.files import write_json, write_text
from camu.schemes import make_scheme
from camu.world import build_world

THEORY_SEEDS = 20

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
    study: Study, out: Path, told: Told, engine: str, address: str | None
) -> tuple[dict[str, float], int]:
    """One learning rate per data set, from Benchmark 1 alone; the sweep is recorded.

    Its runs lie apart from those that are compared, because their seeds are used for nothing else.
    """
    runs = out / "sweep"
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
    write_json(out / "sweep.json", record)
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
) -> tuple[claims.Histories, dict[str, float], int]:
    """Train everything that is missing; returns the histories by (data set, cell, seed)."""
    runs = out / "runs"
    if not study.trains:
        return {}, {}, 0
    rates, swept = choose_rates(study, out, told, engine, address)
    configs = study_configs(study, rates)
    did = execute(configs.values(), runs, lambda d, t: told("runs", d, t), engine, address)
    histories = {
        key: result_directory(runs, config).read_history() for key, config in configs.items()
    }
    return histories, rates, swept + did


@dataclass(frozen=True)
class Outcome:
    """What a study came to."""

    verdicts: tuple[Verdict, ...]
    runs_done: int
    verdicts_path: Path

    def table(self) -> Table:
        """The verdicts for the terminal."""
        table = Table(box=None, header_style="bold")
        for name in ("claim", "data set", "verdict", "measured", "n", "paper", "statement"):
            table.add_column(name, overflow="fold")
        for row in self.verdicts:
            measured = Estimate(row.mean, row.low, row.high, row.n).show()
            paper = "" if row.paper is None else str(row.paper)
            table.add_row(
                row.claim, row.dataset, row.verdict, measured, str(row.n), paper, row.statement
            )
        return table


def run_study(
    study: Study, out: Path, told: Told, engine: str = "local", address: str | None = None
) -> Outcome:
    """Run what is missing, judge every claim, and write verdicts.json and verdicts.md."""
    histories, rates, did = run_all_cells(study, out, told, engine, address)
    verdicts = list(_verdicts(study, histories, rates, told))
    path = out / "verdicts.json"
    write_json(path, [verdict.to_dict() for verdict in verdicts])
    write_text(out / "verdicts.md", as_markdown(verdicts))
    if histories:
        write_text(out / "runs.csv", _runs_table(histories))
    return Outcome(tuple(verdicts), did, path)


def _verdicts(
    study: Study, histories: claims.Histories, rates: dict[str, float], told: Told
) -> Iterator[Verdict]:
    seeds = range(study.scale.seeds)
    for dataset in study.datasets:

        def accuracy(cell: str, seed: int, dataset: str = dataset) -> float:
            return histories[dataset, cell, seed].final_accuracy

        if "aggregation" in study.experiments:
            yield from claims.aggregation(dataset, accuracy, seeds)
        if "updates" in study.experiments:
            yield from claims.updates(dataset, accuracy, seeds)
        if "resources" in study.experiments:
            yield from claims.resources(dataset, accuracy, seeds, histories)
            yield _exact_against_ppo(study, dataset, rates[dataset])
        if "sensitivity" in study.experiments:
            yield from claims.sensitivity(dataset, accuracy, seeds)
        if "theory" in study.experiments:
            yield from _theory(dataset, told)


def _theory(dataset: str, told: Told) -> Iterator[Verdict]:
    """T1 for the printed and the corrected bound."""
    rows: list[dict[str, float]] = []
    for seed in range(THEORY_SEEDS):
        rows.append(margins(dataset, seed))
        told(f"theory on {dataset}", seed + 1, THEORY_SEEDS)
    for claim, bound, printed in (("T1", "theorem1", "holds"), ("T1-corrected", "corrected", None)):
        values = [row[bound] for row in rows]
        held = sum(value >= 0 for value in values)
        text = f"the {bound} bound stays above the measured gap (held in {held} of {len(values)})"
        yield claims.judge(claim, dataset, text, values, 1, printed, "log10(bound / gap)")


def _exact_against_ppo(study: Study, dataset: str, rate: float) -> Verdict:
    """B1: how much worse PPO's objective is than the exact one's, both certified."""
    worse, gaps = [], []
    cells = {cell.name: cell for cell in cells_of("resources", dataset, study.scale)}
    for seed in range(study.scale.seeds):
        answers = {}
        for solver in ("exact", "ppo"):
            cell = cells[f"noisy/camu-joint-{solver}"]
            config = study_config(cell.changes(study.scale, rate, seed))
            answer = make_scheme(config).plan(build_world(config)).allocation
            assert answer is not None
            answers[solver] = answer
        worse.append(100 * (answers["ppo"].objective / answers["exact"].objective - 1))
        gaps.append(answers["exact"].gap)
    text = (
        "the exact allocation is never worse than PPO's (excess of PPO's objective in %); "
        f"largest certified gap of the exact one {max(gaps):.1e}"
    )
    return claims.judge("B1", dataset, text, worse, 1, None, "% of the objective")


def _runs_table(histories: claims.Histories) -> str:
    """Every run in a line, so that anyone can do other statistics."""
    lines = ["dataset,cell,seed,final_accuracy,joules,virtual_seconds,weights_sha256"]
    for (dataset, cell, seed), history in histories.items():
        final = history.final
        lines.append(
            f"{dataset},{cell},{seed},{history.final_accuracy:.4f},{final.total_joules:.6g},"
            f"{final.virtual_seconds:.6g},{history.weights_sha256}"
        )
    return "\n".join(lines) + "\n"


def as_markdown(verdicts: list[Verdict]) -> str:
    """The verdicts as a Markdown table."""
    lines = ["| claim | data set | verdict | measured | n | paper | statement |", "|" + "---|" * 7]
    for row in verdicts:
        measured = Estimate(row.mean, row.low, row.high, row.n).show()
        unit = "" if row.unit == "points" else f" {row.unit}"
        paper = "" if row.paper is None else str(row.paper)
        lines.append(
            f"| {row.claim} | {row.dataset} | **{row.verdict}** | {measured}{unit} | {row.n} "
            f"| {paper} | {row.statement} |"
        )
    return "\n".join(lines) + "\n"
