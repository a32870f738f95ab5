"""What the commands of camu deploy share: their options, and a progress bar with the last round."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from camu.cli.console import LINE_SECONDS, plain_console

if TYPE_CHECKING:
    from camu.config import Config
    from camu.simulation.history import Record

Granularity = Annotated[
    Literal["leader", "device"],
    typer.Option(
        "--granularity",
        help="leader: a node is a cluster's gateway and holds its members' data. device: a node is "
        "one device, or several; the server averages a cluster's members after every update.",
    ),
]
Deadline = Annotated[
    float,
    typer.Option("--deadline", metavar="SECONDS", help="How long to wait for a reply."),
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for nodes to connect.")
]
Quorum = Annotated[
    str,
    typer.Option(
        "--quorum",
        metavar="SHARE%|N",
        help="Devices that are enough to start when --wait is over; the others can join later.",
    ),
]
AlarmCommand = Annotated[
    str | None,
    typer.Option(
        "--alarm",
        metavar="COMMAND",
        help="Run without a shell at every event (node lost, node back, run failed, ...); "
        "CAMU_EVENT, CAMU_TEXT, CAMU_RUN and CAMU_NODE say what happened.",
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain text, and no keys. Only for trials.")
]
Authority = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Certificate of the authority.")
]
Superlink = Annotated[
    str, typer.Option("--superlink", metavar="HOST:PORT", help="Address of the SuperLink.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Run directory [default: below runs/]."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue from the checkpoint in the run directory.")
]


class ProgressDisplay:
    """Shows a run; a context manager.

    On a terminal it is a bar, which appears with the first step. Elsewhere (a file, a pipe, a
    journal) it is a line for each step before the first round, and then one every `LINE_SECONDS`.
    """

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        console = plain_console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task(config.scheme.name, total=config.run.rounds, state="starting")
        self.title, self.rounds = config.scheme.name, config.run.rounds
        self.clock, self.said_seconds = clock, clock()
        self.started = False
        self.accuracy = 0.0

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        if self.started:
            self.bar.stop()

    def say(self, state: str) -> None:
        """Show a step before the first round."""
        if not self.started:
            self.bar.start()
            self.started = True
        self.bar.update(self.task, state=state)
        self._line(state)

    def warn(self, text: str) -> None:
        """Print a line above the bar."""
        self.bar.console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def show(self, record: Record) -> None:
        """Advance the bar to a round that has ended."""
        if record.accuracy is not None:
            self.accuracy = record.accuracy
        state = (
            f"accuracy {self.accuracy:.2%}  {record.total_joules:.3g} J  "
            f"{record.virtual_seconds:.3g} s"
        )
        self.bar.update(self.task, completed=record.round, state=state)
        if self.clock() - self.said_seconds >= LINE_SECONDS:
            self._line(f"round {record.round} of {self.rounds}, {state}")

    def _line(self, text: str) -> None:
        """Print how far the run is, where there is no terminal."""
        self.said_seconds = self.clock()
        if not self.bar.console.is_terminal:
            line = f"{self.title}: {text}"
            self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
