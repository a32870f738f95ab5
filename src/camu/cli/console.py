"""The consoles of all commands: words of the user are printed as they are, and no number is cut."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

LINE_SECONDS = 10.0  # between lines of progress where there is no terminal
_LEAST_CHARACTERS = 8


def plain_console(stderr: bool = False) -> Console:
    """Where a command prints for people.

    Square brackets in names are text, not markup. Only a terminal breaks sentences into lines; a
    file or a pipe gets them whole.
    """
    stream = sys.stderr if stderr else sys.stdout
    whole = stream is None or not stream.isatty()
    return Console(stderr=stderr, emoji=False, markup=False, highlight=False, soft_wrap=whole)


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Work of unknown length: a turning sign on a terminal, elsewhere a line now and then."""
    console = plain_console(stderr=True)
    if console.is_terminal:
        with console.status(Text(what)):
            yield
        return
    over, begin = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(LINE_SECONDS):
            seconds = time.monotonic() - begin
            console.print(f"{what}: {seconds:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


class WorkBar:
    """The progress of work in steps, on stderr; a context manager and a `camu.work.Progress`.

    On a terminal it is a bar with the time left, which appears with the first step. Elsewhere (a
    file, a pipe, a journal) it is a line every `LINE_SECONDS`. `step` is the word for a step.
    """

    def __init__(self, step: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.step, self.clock, self.said_seconds = step, clock, clock()
        self.console = plain_console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("", total=None, state="", visible=False)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, what: str, done: int, total: int, state: str = "") -> None:
        """Show how far the work is; `state` is more about the last step."""
        self._show(what, done, total, state)
        if self.clock() - self.said_seconds >= LINE_SECONDS:
            place = " ".join(filter(None, (self.step, f"{done} of {total}")))
            self._line(f"{what}: {', '.join(filter(None, (place, state)))}")

    def begin(self, what: str, total: int, state: str) -> None:
        """Show what is done before the first step; each is a line where there is no terminal."""
        self._show(what, 0, total, state)
        self._line(f"{what}: {state}")

    def _show(self, what: str, done: int, total: int, state: str) -> None:
        self.bar.update(
            self.task, description=what, completed=done, total=total, state=state, visible=True
        )

    def _line(self, text: str) -> None:
        self.said_seconds = self.clock()
        if not self.console.is_terminal:
            self.console.print(text)


def warn(text: str, level: str = "warning") -> None:
    """Print a warning on stderr, as one line where there is no terminal."""
    plain_console(stderr=True).print(f"{level}: {text}", style="yellow", soft_wrap=True)


class Warnings(logging.Handler):
    """Prints each record as one sentence on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, as commands print their own warnings."""
        warn(self.format(record), record.levelname.lower())


def counted(number: int, name: str) -> str:
    """A number of things in words: 1 unit, 2 units."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def number_table(
    names: Sequence[str],
    rows: Iterable[Sequence[str | Text]] = (),
    title: str | None = None,
    text: Collection[str] = (),
) -> Table:
    """A table of numbers, aligned to the right and never cut; columns of `text` may fold."""
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for name in names:
        if name in text:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def print_table(table: Table, to: Console) -> None:
    """Print a table; one that is wider than the terminal reaches over its edge.

    Columns with `no_wrap` are never cut, and the others keep their `min_width`, or
    `_LEAST_CHARACTERS`.
    """
    for column in table.columns:
        longest = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
        least = column.min_width or _LEAST_CHARACTERS
        column.min_width = longest if column.no_wrap else min(longest, least)
    least = _measure(table, to).minimum
    if least > to.width:
        table.width = least
    to.print(table, crop=False)


def fits(table: Table, to: Console) -> bool:
    """Whether there is room for a table with none of its columns narrowed."""
    return _measure(table, to).maximum <= to.width


def _measure(table: Table, to: Console) -> Measurement:
    return to.measure(table, options=to.options.update(max_width=10_000))
