"""Call the command line in this process, and judge how it ended."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from camu.cli import main

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

HANG_SECONDS = 120.0  # far beyond any refusal, also on a busy machine


@dataclass(frozen=True)
class Outcome:
    """How a call ended."""

    code: int
    out: str
    err: str
    seconds: float


@dataclass(frozen=True)
class Case:
    """A bad input: the arguments, and words of which the message must name one.

    With `may_work`, the command may also do its work: then it prints one JSON document.
    """

    kind: str
    arguments: Sequence[str]
    names: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    may_work: bool = False


def call(arguments: Sequence[str]) -> Outcome:
    """Run `camu ARGUMENTS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    began, before = time.monotonic(), sys.argv
    sys.argv = ["camu", *map(str, arguments)]
    code: object = 0
    execve = os.execve
    os.execve = _no_program  # it would take the place of this process
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", DeprecationWarning)  # as Python does
            main()
    except SystemExit as stop:
        code = stop.code
    except BaseException as error:
        code = f"{type(error).__name__} came out of the command: {error}"
    finally:
        sys.argv, os.execve = before, execve
    number = code if isinstance(code, int) else 0 if code is None else -1
    said = err.getvalue() + (f"\n{code}" if number == -1 else "")
    return Outcome(number, out.getvalue(), said, time.monotonic() - began)


def _no_program(path: str, *_: object) -> NoReturn:
    raise AssertionError(f"it started {path}")


def complaint(case: Case, outcome: Outcome) -> str | None:
    """What is wrong with the way a bad input was refused; None if it was refused well."""
    said = "".join(outcome.err.split())
    if outcome.code not in ((0, 1, 2) if case.may_work else (1, 2)):
        return f"exit code {outcome.code}"
    for word in ("Traceback", "bugincamu", "Warning", "Exceptionignored"):
        if word in said:
            return word
    if outcome.seconds > HANG_SECONDS:
        return f"took {outcome.seconds:.0f} s"
    if outcome.code == 0:
        return _wrong_document(outcome.out)
    if outcome.out.strip():
        return "wrote to stdout"
    if "rror" not in said:
        return "says nothing"
    if case.names and not any("".join(name.split()) in said for name in case.names):
        return f"names none of {', '.join(case.names)}"
    return None


def _wrong_document(text: str) -> str | None:
    """What is wrong with the JSON document of a command; numbers must be finite."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} in the document")

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError as error:
        return f"stdout: {error}"
    return None


def tell(line: str) -> str:
    """Show a failure at once, and return it."""
    print(line, file=sys.stderr, flush=True)
    return line


def write(path: Path, content: str | bytes) -> Path:
    """Write a file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path
