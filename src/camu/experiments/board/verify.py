"""A row of the board is verified: one of its runs again, to the same bits."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camu.errors import InputError
from camu.experiments.board.figures import figures
from camu.experiments.board.part import Part
from camu.experiments.tuning.ranges import Budget
from camu.simulation.directory import RunDirectory, run_in_directory


@dataclass(frozen=True)
class Verified:
    """A run of a part with what came out now."""

    entry: Mapping[str, Any]
    seed: int
    before: Mapping[str, Any]
    now: Mapping[str, Any]

    @property
    def same(self) -> bool:
        """Whether weights and figures have the same bits."""
        return dict(self.before) == dict(self.now)

    @property
    def differs(self) -> list[str]:
        """The figures that differ."""
        keys = [*self.before, *(key for key in self.now if key not in self.before)]
        return [key for key in keys if self.before.get(key) != self.now.get(key)]


def verify(part: Part, result: Mapping[str, Any], table: str, seed: int) -> list[Verified]:
    """Run a part's settings of a table again with one seed, at each budget."""
    entries = [entry for entry in result["entries"] if entry["table"] == table]
    seeds = [run["seed"] for run in entries[0]["runs"]] if entries else []
    if seed not in seeds:
        raise InputError(
            f"--seed {seed}: it was reported on {', '.join(map(str, seeds)) or 'no seed'}"
        )
    found, known = [], dict[str, Any]()
    for entry in entries:
        key = repr((entry["settings"], entry["until"]))
        if key not in known:
            config = part.reported(entry["settings"], entry["until"], seed)
            with tempfile.TemporaryDirectory(prefix="camu-board-") as name:
                known[key] = run_in_directory(config, RunDirectory(Path(name) / "run"))
        history = known[key]
        read = figures(history, Budget(entry["axis"], entry["amount"]), part.world.target)
        now = {"seed": seed, **read, "weights_sha256": history.weights_sha256}
        before = next(run for run in entry["runs"] if run["seed"] == seed)
        found.append(Verified(entry, seed, before, now))
    return found
