"""Run what is missing of the published cells, in parts that can be stopped, and judge them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from camu.experiments.anchors import verdicts
from camu.experiments.anchors.cells import Anchor, Cell, Control, Run, names, read
from camu.experiments.anchors.page import page
from camu.experiments.anchors.values import Values, add, key_of, measure, read_values
from camu.experiments.anchors.verdicts import Judged
from camu.experiments.scheduler import PlannedRun, on_processes
from camu.experiments.statistics import estimate
from camu.files import write_json, write_text
from camu.simulation.directory import RunDirectory
from camu.simulation.manifest import Manifest
from camu.work import Progress, silent

CONTROL_SEEDS = 3


@dataclass(frozen=True)
class Task:
    """A run with one seed, up to one of its stages."""

    run: Run
    seed: int
    rounds: int

    @property
    def turn(self) -> int:
        """When it is its turn; the lower, the earlier."""
        return self.run.stages[self.rounds]


@dataclass(frozen=True)
class Result:
    """A cell with what was measured."""

    anchor: Anchor
    cell: Cell
    values: tuple[float | None, ...]  # of the seeds; of an order, the paired differences
    judged: Judged
    runs: tuple[Values, ...]  # of all seeds
    controls: tuple[tuple[Control, tuple[float, ...], tuple[float, ...]], ...]  # with, without


@dataclass
class Study:
    """Which sources, with how many seeds, kept where."""

    out: Path
    only: tuple[str, ...] = ()
    seeds: int | None = None
    progress: Progress = silent
    _manifests: dict[str, Manifest] = field(default_factory=dict)  # by run

    @property
    def anchors(self) -> list[Anchor]:
        """The sources in question."""
        return [read(name) for name in self.only or names()]

    def seeds_of(self, anchor: Anchor, run: Run) -> range:
        """The seeds that the cells and controls of a run ask for."""
        asked = [cell.seeds for cell in anchor.cells if run.name in cell.runs]
        asked += [CONTROL_SEEDS for one in anchor.controls if one.run == run.name]
        most = max(asked, default=0)
        return range(most if self.seeds is None else min(most, self.seeds))

    def tasks(self) -> list[Task]:
        """Everything to train, the earliest turn first, and all runs of a seed before the next."""
        found = [
            Task(run, seed, rounds)
            for anchor in self.anchors
            for run in anchor.runs.values()
            for seed in self.seeds_of(anchor, run)
            for rounds in sorted(run.stages)
        ]
        return sorted(found, key=lambda task: (task.turn, task.seed))

    def train(self) -> int:
        """Train what is missing; how many runs that were."""
        tasks = self.tasks()
        done = {task for task in tasks if self.values(task.run, task.seed).reached(task.rounds)}
        self.progress("runs", len(done), len(tasks))
        begun = len(done)
        for turn in sorted({task.turn for task in tasks}):
            todo = {self._planned(t): t for t in tasks if t.turn == turn and t not in done}
            with contextlib.closing(on_processes(list(todo))) as finished:
                for planned, history in finished:
                    task = todo[planned]
                    facts = planned.directory.read_summary(check=False)
                    add(self.out, task.run, task.seed, task.rounds, history, facts)
                    done.add(task)
                    self.progress("runs", len(done), len(tasks))
        return len(done) - begun

    def _planned(self, task: Task) -> PlannedRun:
        config = task.run.config(task.seed, task.rounds)
        if task.run.label not in self._manifests:  # it reads all data, which are those of any seed
            self._manifests[task.run.label] = Manifest.of(config)
        known = self._manifests[task.run.label]
        own = {"run.seed": task.seed, "run.rounds": task.rounds}
        manifest = replace(known, config={**known.config, **own})
        place = self.out / "runs" / f"{task.run.label}.seed{task.seed}-{key_of(task.run)}"
        return PlannedRun(config, manifest, RunDirectory(place))

    def values(self, run: Run, seed: int) -> Values:
        """What is known of a run."""
        return read_values(self.out, run, seed)

    def results(self) -> list[Result]:
        """All cells, judged."""
        return [self._result(anchor, cell) for anchor in self.anchors for cell in anchor.cells]

    def write(self) -> list[dict[str, Any]]:
        """Judge all cells; keep each as JSON, all of them as one array, and the page."""
        documents = [document(result) for result in self.results()]
        for own in documents:
            write_json(self.out / "cells" / f"{own['claim']}.json", own)
        write_json(self.out / "anchors.json", documents)
        write_text(self.out / "anchors.md", page(documents))
        return documents

    def _result(self, anchor: Anchor, cell: Cell) -> Result:
        seeds = range(cell.seeds if self.seeds is None else min(self.seeds, cell.seeds))
        runs = [[self.values(anchor.runs[name], seed) for seed in seeds] for name in cell.runs]
        rows = [
            row
            for row in zip(*runs, strict=True)
            if all(own.reached(cell.measure.round) for own in row)
        ]
        if cell.rule != "V4" and len(cell.runs) > 1:
            rows = _best_run(rows, cell)
        found = [[measure(own, cell.measure) for own in row] for row in rows]
        values = tuple(_value(cell, row) for row in found)
        controls = tuple(self._control(anchor, cell, one) for one in anchor.controls)
        return Result(
            anchor,
            cell,
            values,
            judge(cell, values),
            tuple(own for row in rows for own in row),
            tuple(one for one in controls if one is not None),
        )

    def _control(
        self, anchor: Anchor, cell: Cell, control: Control
    ) -> tuple[Control, tuple[float, ...], tuple[float, ...]] | None:
        """A control of this cell, with the values that it has and those without its change."""
        if control.cell != cell.name:
            return None
        last = min(cell.measure.round, anchor.runs[control.run].rounds)
        wanted = replace(cell.measure, round=last)
        both: list[tuple[float, ...]] = []
        for name in (control.run, cell.runs[0]):
            seeds = self.seeds_of(anchor, anchor.runs[name])
            own = (measure(self.values(anchor.runs[name], seed), wanted) for seed in seeds)
            both.append(tuple(value for value in own if value is not None))
        return (control, both[0], both[1]) if both[0] else None


def _best_run(rows: Sequence[tuple[Values, ...]], cell: Cell) -> list[tuple[Values, ...]]:
    """Of several runs, that with the best mean on the test data, as the authors chose theirs."""

    def mean(run: Sequence[Values]) -> float:
        found = [measure(own, cell.measure) for own in run]
        return sum(value for value in found if value is not None) / len(found)

    runs = list(zip(*rows, strict=True))
    return [(own,) for own in max(runs, key=mean)] if runs else []


def _value(cell: Cell, row: Sequence[float | None]) -> float | None:
    """What a seed says about a cell."""
    if cell.rule != "V4":
        return row[0]
    numbers = [value for value in row if value is not None]
    if len(numbers) < len(row):
        return None
    sign = 1 if cell.measure.higher else -1
    if cell.near is None:
        return sign * (numbers[0] - numbers[1])
    others = [sign * value for value in numbers[1:]]
    lag = max(others) - sign * numbers[0]
    return cell.near * (max(others) - min(others)) - lag


def judge(cell: Cell, values: Sequence[float | None]) -> Judged:
    """The verdict on a cell by its rule."""
    if len(values) < verdicts.FEWEST[cell.rule]:
        return Judged(verdicts.NOT_RUN)
    if cell.rule == "V5":
        assert cell.published is not None
        found = verdicts.to_target(values, cell.published)
    else:
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(values):
            return Judged(verdicts.UNDECIDED)
        found = _judge_numbers(cell, numbers)
    if cell.tag != "S" and found.verdict in (verdicts.REPRODUCED, verdicts.DIFFERS):
        return replace(found, verdict=verdicts.UNDECIDED)
    return found


def _judge_numbers(cell: Cell, values: Sequence[float]) -> Judged:
    if cell.rule == "V4":
        return verdicts.paired(values)
    assert cell.published is not None
    if cell.rule == "V1":
        assert cell.spread is not None
        return verdicts.welch(values, cell.published, cell.spread, cell.n or 3)
    return verdicts.predicted(values, cell.published, cell.rounding, cell.judged)


def document(result: Result) -> dict[str, Any]:
    """A cell as one JSON object, with every seed's value and the digest of its weights."""
    cell, judged, anchor = result.cell, result.judged, result.anchor
    numbers = [value for value in result.values if value is not None]
    own = estimate(numbers) if numbers else None
    first = anchor.runs[cell.runs[0]]
    last = str(cell.measure.round)
    return {
        "claim": cell.label,
        "anchor": anchor.name,
        "source": {**anchor.source, "tag": cell.tag},
        "setting": {
            "config": f"{anchor.name.lower()}.toml",
            "set": {key: value for key, value in first.settings.items() if key != "run.rounds"},
            "runs": list(cell.runs),
            "seeds": list(range(len(result.values))),
            "known_differences": list(anchor.differences),
        },
        "metric": cell.measure.text,
        "unit": "points" if cell.rule == "V4" and cell.measure.unit == "%" else cell.measure.unit,
        "direction": "higher" if cell.measure.higher else "lower",
        "published": {
            "mean": cell.published,
            "spread": cell.spread,
            "spread_is": None if cell.spread is None else "sd, assumed",
            "n": cell.n,
            "order": cell.claim or None,
        },
        "ours": {
            "mean": None if own is None else own.mean,
            "interval": _pair(judged.interval),
            "level": 0.95,
            "sd": None if own is None else own.sd,
            "n": len(numbers),
            "values": list(result.values),
        },
        "difference": {"mean": judged.difference, "interval": _pair(judged.difference_interval)},
        "rule": cell.rule,
        "margin": verdicts.MARGIN if cell.rule == "V1" else None,
        "verdict": judged.verdict,
        "reason": cell.reason if judged.verdict != verdicts.REPRODUCED else "",
        "controls": [
            {
                "changed": one.changed,
                "values": list(with_),
                "mean": sum(with_) / len(with_),
                "unchanged_mean": sum(without) / len(without) if without else None,
            }
            for one, with_, without in result.controls
        ],
        "camu": {
            "version": result.runs[0].version if result.runs else "",
            "kernel": result.runs[0].kernel if result.runs else "",
            "weights_sha256": [own.digests[last] for own in result.runs],
        },
        "seconds": sum(own.seconds[last] for own in result.runs) if result.runs else None,
    }


def _pair(interval: tuple[float, float] | None) -> list[float | None]:
    return [None, None] if interval is None else list(interval)
