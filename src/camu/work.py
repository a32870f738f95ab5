"""Long work: reports of its progress, and processes that end with the one that started them."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
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


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside the block once it has taken this long.

    It interrupts Python code and waiting, in the main thread only; other threads, and Windows, have
    no limit. A timer of `end_with_parent` goes on.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return
    began_seconds = time.monotonic()
    before = signal.getsignal(signal.SIGALRM)
    first_seconds, period_seconds = signal.setitimer(signal.ITIMER_REAL, 0.0)
    due_seconds = began_seconds + first_seconds if first_seconds else math.inf

    def check(number: int, frame: FrameType | None) -> None:
        nonlocal due_seconds
        now_seconds = time.monotonic()
        if now_seconds >= due_seconds:
            due_seconds = now_seconds + period_seconds if period_seconds else math.inf
            if callable(before):
                before(number, frame)
        if now_seconds >= began_seconds + seconds:
            raise TimeoutError(f"it has not ended after {seconds:g} s")

    signal.signal(signal.SIGALRM, check)
    tick_seconds = min(CHECK_SECONDS, seconds)
    signal.setitimer(signal.ITIMER_REAL, tick_seconds, tick_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        if due_seconds < math.inf:
            left_seconds = max(due_seconds - time.monotonic(), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left_seconds, period_seconds)


Progress = Callable[[str, int, int], None]  # name of the work, steps done, steps in all


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""
