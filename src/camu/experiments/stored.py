"""Finished runs of a directory, read back for programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.planning.plan import Plan
from camu.simulation.directory import RunDirectory
from camu.simulation.history import History, data_frame


@dataclass(frozen=True)
class StoredRun:
    """A finished run as its directory holds it."""

    path: Path
    config: Config
    plan: Plan
    history: History

    def __repr__(self) -> str:
        return f"StoredRun({str(self.path)!r}, {self.plan.scheme}, {self.history!r})"


class StoredRuns(tuple[StoredRun, ...]):
    """Finished runs in the order of their paths."""

    __slots__ = ()

    def to_frame(self) -> Any:
        """A row per round of every run, with its path, scheme, data set and seed first."""
        return data_frame(
            [
                {
                    "run": str(run.path),
                    "scheme": run.plan.scheme,
                    "dataset": run.config.data.dataset,
                    "seed": run.config.run.seed,
                    **row,
                }
                for run in self
                for row in run.history.rows()
            ]
        )


def read_runs(directory: str | Path) -> StoredRuns:
    """The finished runs in a directory and below it, each with configuration, plan and history.

    Parameters:
        directory: what `camu run`, `camu compare --out` or `camu reproduce` wrote, or a directory
            of such directories.

    Returns:
        A tuple of runs; its `to_frame()` is a table of all rounds. Runs that have not ended are
        left out.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise InputError(f"read_runs: {folder}: there is no such directory; give one with runs")
    places = [RunDirectory(file.parent) for file in sorted(folder.rglob("config.toml"))]
    finished = [run for run in places if run.summary.exists()]
    if not finished:
        raise InputError(f"read_runs: {folder}: no finished run is in it; give one of `camu run`")
    return StoredRuns(
        StoredRun(run.path, run.read_config(), run.read_plan(), run.read_history())
        for run in finished
    )
