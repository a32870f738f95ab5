"""One training of a page, in a process of its own: `python -m camu.live.train PARENT CONFIG DIR`.

SIGINT ends it after the round with a checkpoint; started again, it goes on from there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from camu.config import load_config
from camu.errors import CamuError
from camu.files import write_json
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.faults import Faults
from camu.simulation.history import History, Record
from camu.simulation.run import Callback, Run
from camu.work import end_with_parent

LEDGER = "devices.json"
_EVERY_SECONDS = 0.25


class Ledger(Callback):
    """Writes what each device has spent, and who is absent, a few times per second."""

    def __init__(self, path: Path) -> None:
        self.path, self.written = path, 0.0
        self.faults: Faults | None = None

    def on_round(self, run: Run, record: Record) -> None:
        if time.monotonic() - self.written >= _EVERY_SECONDS:
            self._write(run)

    def on_end(self, run: Run, history: History) -> None:
        if run.records:
            self._write(run)

    def _write(self, run: Run) -> None:
        self.written = time.monotonic()
        write_json(self.path, self._document(run))

    def _document(self, run: Run) -> dict[str, Any]:
        self.faults = self.faults or Faults.of(run.world)
        began = run.records[-2].virtual_seconds if len(run.records) > 1 else 0.0
        everyone = list(range(len(run.plan.units)))
        units = self.faults.attend(run.plan, everyone, run.round - 1, began).units
        there = {device for unit in units.values() for device in unit.members}
        planned = {device for unit in run.plan.units for device in unit.members}
        return {
            "round": run.round,
            "joules": [float(f"{joules:.6g}") for joules in run.device_joules],
            "absent": sorted(planned - there),
            "empty": [k for k, empty in enumerate(run.batteries.empty.tolist()) if empty],
        }


def main() -> int:
    """Train, and say in one sentence on stderr why not."""
    parent, config, folder = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    end_with_parent(parent)
    try:
        ledger = Ledger(folder / LEDGER)
        run_in_directory(load_config(config), RunDirectory(folder), resume=True, callbacks=[ledger])
    except CamuError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
