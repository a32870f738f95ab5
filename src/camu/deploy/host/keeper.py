"""Keeps a helper process running: one that dies is started again."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable

from camu.work import end_with_parent

log = logging.getLogger(__name__)

KEEPER = "CAMU_KEEPER_PID"
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 60.0  # a process that ran this long had no trouble at its start


def keep_running(
    what: str,
    start: Callable[[], subprocess.Popen[bytes]],
    pause: Callable[[float], None] = time.sleep,
) -> threading.Thread:
    """Start a process, and start it again whenever it ends, as long as this process runs.

    The pause before a new start doubles while the process ends soon after its start. The process
    must call `end_with_keeper`, so that it does not outlive this one.
    """
    os.environ[KEEPER] = str(os.getpid())
    process = start()

    def keep() -> None:
        nonlocal process
        seconds = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            code = process.wait()
            if time.monotonic() - began > STEADY_SECONDS:
                seconds = FIRST_PAUSE_SECONDS
            log.warning("%s has ended (code %s); it is started again in %g s", what, code, seconds)
            pause(seconds)
            seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
            process = start()

    thread = threading.Thread(target=keep, name=f"keeper of {what}", daemon=True)
    thread.start()
    return thread


def end_with_keeper() -> None:
    """In a process that is kept running: end when its keeper has ended, also before this call."""
    keeper = os.environ.get(KEEPER)
    end_with_parent(int(keeper) if keeper else None)
