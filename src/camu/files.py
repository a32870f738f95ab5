"""Files that are whole or absent: written beside, flushed to disk, renamed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from camu.errors import CamuError


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, then put it in the place of `path`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        os.close(handle)
        beside = Path(name)
        try:
            write(beside)
            with beside.open("rb+") as stream:
                os.fsync(stream.fileno())
            beside.chmod(0o644)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise CamuError(f"{path}: cannot be written ({error.strerror or error})") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_whole(path, lambda beside: _fill(beside, text))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def _fill(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
