"""Long work: reports of its progress, and processes that end with the one that started them."""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

CHECK_SECONDS = 0.5


def end_with_parent(parent: int | None = None, grace_seconds: float = 0.0) -> None:
    """End this process when its parent is gone, even if the parent was killed.

    `parent` is the parent's process id, for a parent that may already be gone (default: the present
    one). With `grace_seconds`, this process first gets SIGTERM and has that time to clean up.

    A timer checks the parent. There is no thread, because some callers fork. Call it in the main
    thread. Without SIGALRM (Windows) nothing is checked.
    """
    if not hasattr(signal, "SIGALRM"):
        return
    expected = os.getppid() if parent is None else parent
    noticed_seconds: float | None = None

    def check(number: int, frame: FrameType | None) -> None:
        nonlocal noticed_seconds
        if os.getppid() == expected:
            return
        if noticed_seconds is None and grace_seconds > 0:
            noticed_seconds = time.monotonic()
            os.kill(os.getpid(), signal.SIGTERM)
        elif noticed_seconds is None or time.monotonic() - noticed_seconds > grace_seconds:
            os._exit(1)

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, CHECK_SECONDS, CHECK_SECONDS)
    # Python takes its handlers away before it has ended; the next SIGALRM would then be the end,
    # and the exit code would be lost.
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.0)


Progress = Callable[[str, int, int], None]  # name of the work, steps done, steps in all


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""
