"""Finds run directories and reads them, tolerant of runs that are still going on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from camu.config import Config, keys_that_decide
from camu.errors import InputError
from camu.files import read_json
from camu.simulation.directory import RunDirectory
from camu.simulation.history import Record
from camu.simulation.ledger import DeviceEnergy

_EXPECTED = (
    "give a run directory (config.toml, plan.json, rounds.jsonl, summary.json), as `camu run` "
    "writes it, or a directory of such directories"
)
_VERDICTS = "verdicts.json"
_VERDICT_KEYS = ("claim", "dataset", "mean", "low", "high", "n", "verdict", "paper")


@dataclass(frozen=True)
class SavedRun:
    """One run as far as it got."""

    path: Path
    config: Config
    records: tuple[Record, ...]  # those with an accuracy, at least one
    last: Record
    finished: bool

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.config.run.seed

    @cached_property
    def keys(self) -> dict[str, Any]:
        """The keys of the configuration that decide the run's result, with their values."""
        decide = keys_that_decide("bits", "end")
        found = {key: value for key, value in self.config.flat().items() if key in decide}
        own = found.pop("scheme.parameters")
        return found | {f"scheme.parameters.{name}": value for name, value in own.items()}

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The plan that was run."""
        return RunDirectory(self.path).read_plan_document()

    @cached_property
    def devices(self) -> DeviceEnergy | None:
        """The joules of every device; None before the end of the run."""
        return RunDirectory(self.path).read_devices()

    @property
    def ppo(self) -> dict[str, Any] | None:
        """How PPO learned: learning_curve and lower_bound, where the plan was found by it."""
        allocation = self.plan.get("allocation")
        return allocation if allocation and "learning_curve" in allocation else None


@dataclass(frozen=True)
class Findings:
    """Everything a page shows: runs, verdicts, and the runs that are left out."""

    runs: tuple[SavedRun, ...]
    verdicts: tuple[dict[str, Any], ...]
    skipped: tuple[Path, ...]  # begun, but without a round so far


def read_runs(paths: Sequence[Path]) -> Findings:
    """The runs and verdicts in these directories, at any depth, each run once."""
    runs: dict[Path, SavedRun] = {}
    skipped: dict[Path, None] = {}
    verdicts: list[dict[str, Any]] = []
    for path in dict.fromkeys(paths):
        found = list(_run_directories(path))
        own = _read_verdicts(path / _VERDICTS)
        verdicts += own
        for folder in found:
            run = _read_run(folder, must_have_begun=folder == path)
            if run is None:
                skipped[folder] = None
            else:
                runs[folder.resolve()] = run
        if not found and not own:
            raise InputError(f"{path}: no run is here; {_EXPECTED}")
    if not runs and not verdicts:
        first = next(iter(skipped))
        raise InputError(f"{first}: the run has not finished a round yet; {_EXPECTED}")
    return Findings(tuple(_one_per_seed(runs.values())), tuple(verdicts), tuple(skipped))


def _run_directories(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise InputError(f"{path}: {what}; {_EXPECTED}")
    if RunDirectory(path).exists():
        yield path
        return
    # A study also keeps the runs of its learning-rate sweep, which no verdict uses.
    study = (path / _VERDICTS).exists() and (path / "runs").is_dir()
    below = path / "runs" if study else path
    yield from sorted(file.parent for file in below.rglob("config.toml"))


def _read_run(path: Path, must_have_begun: bool) -> SavedRun | None:
    """The run; None during planning, which is an error if the user named the directory."""
    directory = RunDirectory(path)
    for file in (directory.plan, directory.rounds):
        if not file.exists():
            if must_have_begun:
                raise InputError(f"{path}: there is no {file.name}; {_EXPECTED}")
            return None
    config = directory.read_config()
    finished = directory.finished()
    records = directory.read_records()
    evaluated = tuple(record for record in records if record.accuracy is not None)
    if not evaluated:
        if directory.rounds.stat().st_size and must_have_begun:
            raise InputError(
                f"{directory.rounds}: expected a line of JSON per round, as `camu run` writes it"
            )
        return None
    return SavedRun(path, config, evaluated, records[-1], finished)


def _one_per_seed(runs: Any) -> list[SavedRun]:
    """Of runs with the same configuration and seed the longest, of equal ones the latest.

    Copies are not counted twice, and a run that was repeated replaces the earlier one.
    """
    longest: dict[str, SavedRun] = {}
    for run in runs:
        key = repr(run.keys)
        if key not in longest or _age(run) > _age(longest[key]):
            longest[key] = run
    return list(longest.values())


def _age(run: SavedRun) -> tuple[int, float]:
    return run.last.round, RunDirectory(run.path).rounds.stat().st_mtime


def _read_verdicts(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows = read_json(path, "the verdicts of `camu reproduce`")
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and {"claim", "verdict"} <= row.keys() for row in rows
    ):
        raise InputError(f"{path}: expected a list of objects with {', '.join(_VERDICT_KEYS)}")
    return rows
