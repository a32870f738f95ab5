"""What watches every run: history file, checkpoints, early stop and Ctrl-C."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any

from camu.errors import CamuError
from camu.files import write_text
from camu.simulation.checkpoint import save_checkpoint
from camu.simulation.history import History, Record
from camu.simulation.run import Callback, Run


class HistoryFile(Callback):
    """Writes a line of JSON per round, flushed, so that nothing is lost on a crash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stream: IO[str] | None = None
        self.digest = hashlib.sha256()  # of all lines

    def on_start(self, run: Run) -> None:
        # Written whole or not at all: a kill at this moment leaves the file of the last run.
        text = "".join(_line(record) for record in run.records)
        self.digest = hashlib.sha256(text.encode())
        write_text(self.path, text)
        self.stream = self.path.open("a", encoding="utf-8")

    def on_round(self, run: Run, record: Record) -> None:
        assert self.stream is not None
        line = _line(record)
        try:
            self.stream.write(line)
            self.stream.flush()
        except OSError as error:
            raise CamuError(f"{self.path}: cannot be written ({error.strerror})") from None
        self.digest.update(line.encode())

    def on_end(self, run: Run, history: History) -> None:
        if self.stream is not None:
            # What a full disk did not take is still in the buffer; on_round has reported it.
            with contextlib.suppress(OSError):
                self.stream.close()


def _line(record: Record) -> str:
    return json.dumps(record.to_dict(), allow_nan=False) + "\n"


class Checkpoint(Callback):
    """Saves the run every few rounds and at its end."""

    def __init__(self, path: Path, every: int, history: HistoryFile, wall_before: float) -> None:
        self.path, self.every, self.history = path, every, history
        self.began = time.monotonic() - wall_before

    @property
    def wall_seconds(self) -> float:
        """Time that the run has taken, resumes included."""
        return time.monotonic() - self.began

    def on_round(self, run: Run, record: Record) -> None:
        """Save when it is time, after the history is safely on disk."""
        if record.round % self.every == 0 or run.stopped is not None:
            assert self.history.stream is not None
            os.fsync(self.history.stream.fileno())
            digest = self.history.digest.hexdigest()
            save_checkpoint(run, self.path, self.wall_seconds, digest)


class Patience(Callback):
    """Stops after so many evaluations without a better score."""

    def __init__(self, evaluations: int) -> None:
        self.evaluations = evaluations
        self.best: float | None = None
        self.since_best = 0

    def on_start(self, run: Run) -> None:
        """Look back over the evaluations of a run that is resumed."""
        for record in run.records:
            self._count(record)

    def on_round(self, run: Run, record: Record) -> None:
        """Stop if the best score was too many evaluations ago."""
        self._count(record)
        if record.score is not None and self.since_best >= self.evaluations:
            run.stop("no better score")

    def _count(self, record: Record) -> None:
        score = record.score
        if score is None:
            return
        if self.best is None or record.judged.better(score, self.best):
            self.best, self.since_best = score, 0
        else:
            self.since_best += 1


class StopOnInterrupt(Callback):
    """Lets Ctrl-C, SIGTERM or SIGHUP end the run after the round; a second one ends it at once.

    A signal that is ignored, as SIGHUP below `nohup`, stays ignored.
    """

    def __init__(self) -> None:
        self.asked = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> StopOnInterrupt:
        # Python lets only the main thread handle signals; elsewhere Ctrl-C is not ours to catch.
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                    self.before[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def on_round(self, run: Run, record: Record) -> None:
        """Stop if asked to."""
        if self.asked:
            run.stop("interrupted")
