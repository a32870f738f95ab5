"""Following a run from outside: its rounds as they are written, and what the server says."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from camu.simulation.history import Record


class Tail:
    """The lines that are added to a file, whole ones only; a file written anew starts over."""

    def __init__(self, path: Path, skip_present: bool = False) -> None:
        self.path, self.place = path, 0
        if skip_present and path.exists():
            self.place = path.stat().st_size

    def lines(self) -> list[str]:
        """What has come since the last time."""
        try:
            if self.path.stat().st_size < self.place:
                self.place = 0
            with self.path.open("rb") as stream:
                stream.seek(self.place)
                content = stream.read()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self.place += len(whole)
        return whole.decode("utf-8", errors="replace").splitlines()


class Display:
    """A progress bar on stderr with the last round, and warnings of the server above it."""

    def __init__(self, title: str, rounds: int, out: Path) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self.task = self.bar.add_task(title, total=rounds, state="starting")
        self.rounds = Tail(out / "rounds.jsonl")
        self.server = Tail(out / "server.log", skip_present=True)
        self.accuracy = 0.0
        self.error = ""  # the last thing that the server could not do

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.update()
        self.bar.stop()

    def say(self, state: str) -> None:
        """What is being done before the first round."""
        self.bar.update(self.task, state=state)

    def warn(self, text: str) -> None:
        """A line above the bar."""
        self.bar.console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def update(self) -> None:
        """Show what is new."""
        for line in self.server.lines():
            words = line.split(" ", 3)  # date, time, level, text
            if len(words) == 4 and words[2] in ("WARNING", "ERROR"):
                self.warn(words[3])
                self.error = words[3] if words[2] == "ERROR" else self.error
        for line in self.rounds.lines():
            try:
                record = Record.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            self._show(record)

    def _show(self, record: Record) -> None:
        if record.accuracy is not None:
            self.accuracy = record.accuracy
        state = (
            f"accuracy {self.accuracy:.2%}  {record.total_joules:.3g} J  "
            f"{record.virtual_seconds:.3g} s"
        )
        self.bar.update(self.task, completed=record.round, state=state)
