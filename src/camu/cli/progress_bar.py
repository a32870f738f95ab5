"""The progress bar of a run."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from camu.simulation.history import History, Record
from camu.simulation.run import Callback, Run


class ProgressBar(Callback):
    """A bar on stderr with round, accuracy, joules and the time left."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, emoji=False),
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

    def on_end(self, run: Run, history: History) -> None:
        """Stop the bar and leave its last state visible."""
        self.bar.stop()

    def _show(self, run: Run) -> None:
        last = next((r.accuracy for r in reversed(run.records) if r.accuracy is not None), 0.0)
        joules = run.ledger.joules
        state = f"accuracy {last:.2%}  {joules:.3g} J  {run.clock.now_seconds:.3g} s"
        self.bar.update(self.task, completed=run.round, state=state)


class Notes(Callback):
    """Prints what a user should know of the fleet, each sentence once for all runs."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def on_start(self, run: Run) -> None:
        """Say what was not said before."""
        stderr = Console(stderr=True, emoji=False)
        for note in run.world.notes:
            if note not in self.said:
                stderr.print(f"warning: {note}", style="yellow", soft_wrap=True, highlight=False)
        self.said.update(run.world.notes)
