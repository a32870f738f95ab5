"""Where commands may write: never over a user's files, and never over what they read.

Three rules hold for all commands. A directory that a command fills must be empty or hold its own
earlier results; a mark in it says whose they are. A file that a command reads is never written. The
files of a run are written by that run alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from camu.errors import InputError
from camu.files import is_temporary, read_json, shown, write_json

MARK = "camu.json"  # in a directory of results: the command that made it
LOCK = ".lock"
RUN_FILES = (  # the summary comes last: it marks a finished run
    "config.toml",
    "plan.json",
    "manifest.json",
    "rounds.jsonl",
    "model.safetensors",
    "devices.csv",
    "summary.json",
)
_SHOWN_NAMES = 5


def entries(folder: Path, own: Collection[str] = ()) -> list[str]:
    """The names in a directory except these, the lock, and temporary files that a kill left."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{shown(folder)}: cannot be read ({error.strerror})") from None
    return [n for n in names if n != LOCK and n not in own and not is_temporary(n)]


def refuse_foreign(folder: Path, names: Collection[str]) -> None:
    """Refuse a directory in which these names are not this command's."""
    if not names:
        return
    listed = [name if name.isprintable() else ascii(name) for name in list(names)[:_SHOWN_NAMES]]
    more = f" and {len(names) - len(listed)} more" if len(names) > len(listed) else ""
    raise InputError(
        f"{shown(folder)}: this directory holds other files ({', '.join(listed)}{more}); give an "
        "empty directory with --out, or move these files away"
    )


def claim(folder: Path, command: str) -> dict[str, Any]:
    """Take a directory for the results of a command; returns what its mark says from before.

    Raises InputError, before anything is written, if the directory holds anything and no earlier
    call of the command has marked it.
    """
    mark, document = folder / MARK, {"command": command}
    if not mark.exists():
        refuse_foreign(folder, entries(folder))
        write_json(mark, document)
        return document
    found = read_json(mark, f"the mark of `camu {command}`, or another directory")
    if not isinstance(found, dict) or found.get("command") != command:
        raise InputError(
            f"{shown(folder)}: `camu {command}` did not make this directory (see {MARK} in it); "
            "give an empty directory with --out"
        )
    return found


def refuse_inputs(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse to write files that the command reads."""
    read = list(inputs)
    for path in outputs:
        if any(_same(path, given) for given in read):
            raise InputError(f"{shown(path)}: the command reads this file; write to another one")


def check_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse to write a file that the command reads, or one that belongs to a run."""
    refuse_inputs([path], inputs)
    folder = path.parent
    inside = folder.name == "checkpoint" and _holds_run(folder.parent)
    if inside or (path.name in RUN_FILES and _holds_run(folder)):
        raise InputError(
            f"{shown(path)}: this file belongs to the run in that directory; write to another one"
        )


def _holds_run(folder: Path) -> bool:
    return (folder / "config.toml").exists() and (folder / "manifest.json").exists()


def _same(path: Path, other: Path) -> bool:
    try:
        return path.resolve() == other.resolve() or path.samefile(other)
    except (OSError, RuntimeError):  # one of them does not exist
        return False


def remove_temporaries(folder: Path, names: Collection[str]) -> None:
    """Remove what a kill left of these files while they were written; call it under the lock."""
    if not folder.is_dir():
        return
    for name in os.listdir(folder):
        if is_temporary(name) and re.sub(r"-\w{8}\.tmp$", "", name[1:]) in names:
            (folder / name).unlink(missing_ok=True)
