"""The progress of a run, and what a user should know of its fleet, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable

from camu.cli.console import WorkBar, warn
from camu.planning.air_words import unused_errors
from camu.planning.secure_words import not_hidden
from camu.schemes.registry import earlier_name
from camu.simulation.history import History, Record
from camu.simulation.run import Callback, Run


class ProgressBar(Callback):
    """Round, score, joules and virtual seconds of a run, as a `WorkBar`."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.title, self.work = title, WorkBar("round", clock)

    def on_start(self, run: Run) -> None:
        """Show the bar."""
        self.work.__enter__()
        self._show(run)

    def on_round(self, run: Run, record: Record) -> None:
        """Advance."""
        self._show(run)

    def on_end(self, run: Run, history: History) -> None:
        """Stop the bar and leave its last state visible."""
        self.work.__exit__()

    def _show(self, run: Run) -> None:
        last = next((one for one in reversed(run.records) if one.score is not None), None)
        score = "" if last is None else f"{last.judged.title} {last.judged.show(last.score)}  "
        costs = f"{run.ledger.joules:.3g} J  {run.clock.now_seconds:.3g} s"
        self.work(self.title, run.round, run.expected_rounds, f"{score}{costs}")


class Notes(Callback):
    """Prints what a user should know of fleet, cycles and plan, each sentence once for all."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def on_start(self, run: Run) -> None:
        """Say what was not said before."""
        world = run.world
        about = [*earlier_name(world.config.scheme.name), *unused_errors(run.plan, world)]
        about += not_hidden(run.plan, world)
        for note in (*world.notes, *world.cycles_warnings(), *about):
            if note not in self.said:
                self.said.add(note)
                warn(note)
