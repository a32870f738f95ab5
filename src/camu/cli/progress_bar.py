"""Progress on stderr, of a run or of many: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from camu.cli.console import LINE_SECONDS, plain_console
from camu.simulation.history import History, Record
from camu.simulation.run import Callback, Run


class ProgressBar(Callback):
    """Round, accuracy, joules and virtual seconds.

    On a terminal it is a bar with the time left. Elsewhere (a file, a pipe, a journal) it is a line
    every `LINE_SECONDS`.
    """

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.title, self.clock = title, clock
        self.console = plain_console(stderr=True)
        self.said_seconds = clock()
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def on_start(self, run: Run) -> None:
        """Show the bar."""
        self.task = self.bar.add_task(
            self.title, total=run.world.config.run.rounds, completed=run.round, state=""
        )
        self._show(run)
        self.bar.start()

    def on_round(self, run: Run, record: Record) -> None:
        """Advance."""
        self._show(run)
        if not self.console.is_terminal and self.clock() - self.said_seconds >= LINE_SECONDS:
            self.said_seconds = self.clock()
            text = f"{self.title}: round {run.round} of {run.world.config.run.rounds}, "
            self.console.print(text + _state(run), soft_wrap=True, highlight=False, markup=False)

    def on_end(self, run: Run, history: History) -> None:
        """Stop the bar and leave its last state visible."""
        self.bar.stop()

    def _show(self, run: Run) -> None:
        self.bar.update(self.task, completed=run.round, state=_state(run))


def _state(run: Run) -> str:
    last = next((r.accuracy for r in reversed(run.records) if r.accuracy is not None), 0.0)
    joules = run.ledger.joules
    return f"accuracy {last:.2%}  {joules:.3g} J  {run.clock.now_seconds:.3g} s"


class WorkBar:
    """The progress of long work in steps, as `camu.work.Progress` reports it; a context manager."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.said_seconds = clock, clock()
        self.console = plain_console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
        )
        self.bar = Progress(
            *columns,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("runs", total=None)

    def __enter__(self) -> WorkBar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far the work is."""
        self.bar.update(self.task, description=what, completed=done, total=total)
        if not self.console.is_terminal and self.clock() - self.said_seconds >= LINE_SECONDS:
            self.said_seconds = self.clock()
            self.console.print(f"{what}: {done} of {total}", highlight=False, markup=False)


class Notes(Callback):
    """Prints what a user should know of the fleet, each sentence once for all runs."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def on_start(self, run: Run) -> None:
        """Say what was not said before."""
        stderr = plain_console(stderr=True)
        for note in run.world.notes:
            if note not in self.said:
                stderr.print(f"warning: {note}", style="yellow", soft_wrap=True, highlight=False)
        self.said.update(run.world.notes)
