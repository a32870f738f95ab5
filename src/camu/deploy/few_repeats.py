"""A filter for logs that would say the same thing every few seconds for months."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

REPEAT_SECONDS = 600.0
_MOST_LINES = 1000  # remembered at the same time


class FewRepeats(logging.Filter):
    """Lets a line pass once in ten minutes; the next one says how often it was left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self._seen: dict[str, tuple[float, int]] = {}  # when it was written, and how often not

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        text, now = record.getMessage(), self.clock()
        written, left_out = self._seen.get(text, (-REPEAT_SECONDS, 0))
        if now - written < REPEAT_SECONDS:
            self._seen[text] = (written, left_out + 1)
            return False
        if len(self._seen) >= _MOST_LINES:
            self._seen = {
                line: (at, count)
                for line, (at, count) in self._seen.items()
                if now - at < REPEAT_SECONDS
            }
            if len(self._seen) >= _MOST_LINES:
                self._seen.clear()
        self._seen[text] = (now, 0)
        if left_out:
            record.msg, record.args = f"{text} ({left_out} times more since it was last said)", ()
        return True
