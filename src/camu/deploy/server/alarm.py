"""Stops a run whose model is being destroyed, with an alarm and the best model that it had.

Once a model has been pushed far off, the updates of honest devices are as large as those of
attackers and are refused as well. More rounds then help nobody.
"""

from __future__ import annotations

import logging

from camu.deploy.status import Journal
from camu.learning.weights import Weights
from camu.simulation.history import Record
from camu.simulation.run import Callback, Run

log = logging.getLogger(__name__)

ROUNDS = 3  # in a row, in which more is refused than used
EVALUATIONS = 2  # in a row, with less than half of what was reached
REACHED = 0.5  # a share, from which on a model has something to lose
HARMED = "harmed"  # why the run ended


class Alarm(Callback):
    """Watches refusals and the score; it knows the best model since the start of the server."""

    def __init__(self, journal: Journal, by_device: bool = False) -> None:
        self.journal, self.by_device = journal, by_device
        self.best: tuple[float, int, Weights] | None = None  # its score, round and model
        self.refusing = 0  # rounds in a row
        self.falling = 0  # evaluations in a row

    def on_start(self, run: Run) -> None:
        """Begin with the model that is there."""
        self._judge(run, run.records[-1])

    def on_round(self, run: Run, record: Record) -> None:
        """Stop the run where it is clear that it is being destroyed."""
        self.refusing = self.refusing + 1 if self._refuses_most(run, record) else 0
        self._judge(run, record)
        if run.stopped is not None:
            return
        if self.refusing >= ROUNDS:
            self._stop(run, f"more updates are refused than used in {ROUNDS} rounds in a row")
        elif self.falling >= EVALUATIONS:
            self._stop(run, f"{record.judged.title} has fallen to less than half of its best")

    def _refuses_most(self, run: Run, record: Record) -> bool:
        """Whether more is refused than used: of units, in granularity `device` of devices."""
        refused = record.faults.get("refused", 0)
        if not self.by_device:
            return refused > record.units
        return 2 * refused > sum(len(unit.members) for unit in run.plan.units)

    def _judge(self, run: Run, record: Record) -> None:
        if record.score is None:
            return
        judged, score = record.judged, record.score
        if self.best is None or judged.best([score, self.best[0]]) != self.best[0]:
            self.best = score, record.round, run.weights
        known = judged.share and judged.higher_is_better and self.best[0] >= REACHED
        self.falling = self.falling + 1 if known and score < self.best[0] / 2 else 0

    def _stop(self, run: Run, why: str) -> None:
        text = f"after round {run.round} the run is stopped: {why}"
        if self.best is not None:
            score, number, weights = self.best
            title = run.records[-1].judged.title
            text += f"; its model is that of round {number} again ({title} {score:.4g})"
            run.weights = weights
        text += "; see in events.jsonl and server.log whose updates were clipped or refused"
        run.notes.append(text)
        log.error("%s", text)
        self.journal.event("run-harmed", text)
        run.stop(HARMED)
