"""Around every command: signals, streams and errors, so that each ends with one sentence."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, TextIO

from camu.cli.console import plain_console
from camu.errors import CamuError

_STOPS = ("SIGTERM", "SIGHUP")  # they stop a command as Ctrl-C does
_documents: list[TextIO] = []  # stdout itself, while all else that is printed goes to stderr


def run_guarded(command: Callable[[], object], debug: bool, json_only: bool) -> NoReturn:
    """Run a command, turn errors into one sentence on stderr, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a letter shows `?`
            stream.reconfigure(errors="replace")

    def fail(text: str, code: int = 1) -> int:
        plain_console(stderr=True).print(f"error: {text}", style="bold red", soft_wrap=True)
        return code

    code: Any = 0
    try:
        with _stopped_by_signals(), _stdout_for_json(json_only):
            command()
    except SystemExit as stop:
        # rich and typer end with 1 when the reader of a pipe has gone (`camu ... | head`)
        code = 0 if isinstance(stop.__context__, BrokenPipeError) else stop.code
    except CamuError as error:
        if debug:
            raise
        code = fail(str(error), error.exit_code)
    except BrokenPipeError:
        code = 0
    except KeyboardInterrupt:
        code = fail("stopped", 130)
    except Exception as error:
        if debug:
            raise
        code = fail(explain(error))
    sys.exit(_flush(fail) or code)


def print_json(document: Any, indent: int | None = None) -> None:
    """Print the one JSON document of a command on stdout."""
    stream = _documents[0] if _documents else sys.stdout
    print(json.dumps(document, indent=indent, allow_nan=False), file=stream, flush=True)


def explain(error: Exception) -> str:
    """What to say about an error, also if no part of camu has put it into words."""
    if isinstance(error, CamuError):
        return str(error)
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory; use fewer workers (machine.workers), devices or samples"
            f"{f' ({error})' if str(error) else ''}"
        )
    if isinstance(error, OSError):
        where = error.filename or (
            "the output" if error.errno in (errno.ENOSPC, errno.EIO) else "the system"
        )
        return f"{where}: {error.strerror or error}"
    if isinstance(error, ImportError):
        return (
            f"a library cannot be loaded ({error}); install camu again, or give it more memory if "
            "that is limited"
        )
    return (
        f"{type(error).__name__}: {error}. This is a bug in camu; please report it. --debug shows "
        "the traceback."
    )


def _flush(fail: Callable[[str], int]) -> int:
    """Write what is still in the buffer of stdout; the exit code if that fails, else 0."""
    code = 0
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _forget(sys.stdout)
    except (OSError, ValueError) as error:
        code = fail(f"the output cannot be written ({getattr(error, 'strerror', error)})")
        _forget(sys.stdout)
    return code


def _forget(stream: TextIO) -> None:
    """Let what is in a stream's buffer go nowhere, so that Python's last flush does not fail."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does; ignored ones stay ignored (nohup)."""
    before: dict[int, Any] = {}
    here = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != here:  # a worker that was forked from this process
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for name in _STOPS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _stdout_for_json(wanted: bool) -> Iterator[None]:
    """Keep stdout for one document: what a user's own code or a library prints goes to stderr."""
    real = None
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there may be no such file
        if wanted and sys.stdout.fileno() == 1:
            sys.stdout.flush()
            real = os.dup(1)
            os.dup2(2, 1)  # also for what is printed below Python
    if real is None:
        yield
        return
    with os.fdopen(real, "w", encoding="utf-8") as stream:
        _documents.append(stream)
        try:
            yield
        finally:
            _documents.clear()
            sys.stdout.flush()
            os.dup2(real, 1)
