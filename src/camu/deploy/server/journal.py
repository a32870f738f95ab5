"""What the owner of a run sees while it goes on: status.json, and a line of events.jsonl each."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from camu.deploy.events import EVENTS, STATUS, Event
from camu.errors import CamuError
from camu.files import write_json
from camu.simulation.history import History, Record
from camu.simulation.run import Callback, Run

log = logging.getLogger(__name__)


class Journal:
    """Writes the status and the events of a run; a full disk is logged and does not end the run."""

    def __init__(self, folder: Path, run: int = 0, clock: Callable[[], float] = time.time) -> None:
        self.folder, self.clock = folder, clock
        # A run's number has 64 bits, more than JSON's numbers hold for everybody.
        self.status: dict[str, Any] = {"state": "starting", "run": str(run), "pid": os.getpid()}
        self.status["started"] = clock()

    def event(self, name: Event, text: str, **facts: Any) -> None:
        """Note that something has happened; `text` says it in a sentence."""
        line = {"time": self.clock(), "event": name, "text": text, **facts}
        try:
            with (self.folder / EVENTS).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        except OSError as error:
            log.warning("%s: cannot be written (%s)", self.folder / EVENTS, error.strerror)

    def update(self, **facts: Any) -> None:
        """Change some facts of the status."""
        self.status |= {**facts, "updated": self.clock()}
        try:
            write_json(self.folder / STATUS, self.status)
        except CamuError as error:
            log.warning("%s", error)


class RoundStatus(Callback):
    """Brings the status up to date after every round."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def on_start(self, run: Run) -> None:
        """Say that rounds begin."""
        last = run.records[-1]
        self.journal.event("run-started", f"the run goes on from round {last.round}")
        self._show(run, last)

    def on_round(self, run: Run, record: Record) -> None:
        """Show a round that has ended."""
        self._show(run, record)

    def on_end(self, run: Run, history: History) -> None:
        """Say how the run ended; a failure is reported by whoever catches it."""
        if history.stopped != "failed":
            text = f"the run has ended after round {history.final.round}: {history.stopped}"
            self.journal.event("run-finished", text, stopped=history.stopped)
            self.journal.update(state="finished", stopped=history.stopped, waiting_for=[])

    def _show(self, run: Run, record: Record) -> None:
        faults = {
            kind: sum(each.faults.get(kind, 0) for each in run.records) for kind in record.faults
        }
        accuracy = [each.accuracy for each in run.records if each.accuracy is not None]
        self.journal.update(
            state="running",
            round=record.round,
            rounds=run.world.config.run.rounds,
            accuracy=accuracy[-1] if accuracy else None,
            virtual_seconds=record.virtual_seconds,
            wall_seconds=record.wall_seconds,
            joules=record.total_joules,
            units=record.units,
            faults=faults,
            last_round=record.nodes,
            waiting_for=[],
        )
