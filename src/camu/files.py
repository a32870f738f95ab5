"""Text files: read with clear errors, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from camu.errors import CamuError, InputError

_LONG_LIST = 1000  # entries


def read_text(path: str | Path, what: str) -> str:
    """The text of a UTF-8 file without its byte-order mark; `what` names the right kind of file.

    Raises InputError where the file cannot be read: "PATH: cannot be read (reason); give WHAT".
    """
    try:
        return Path(path).read_text("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path}: cannot be read ({reason}); give {what}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: cannot be read (it is not UTF-8 text, byte {error.start}); give {what}"
        ) from None


def read_json(path: str | Path, what: str) -> Any:
    """The content of a JSON file; `what` names the right kind of file.

    Raises InputError, with the line where possible; a key that appears twice in an object is an
    error too.
    """
    text = read_text(path, what)
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        where, reason = f"{path}, line {error.lineno}", f"it is not valid JSON: {error.msg}"
    except _RepeatedKeyError as error:
        where, reason = str(path), f"the key {error} appears twice in an object"
    except ValueError:  # Python refuses whole numbers of thousands of digits
        where, reason = str(path), "it is not valid JSON: a number is too long"
    except RecursionError:
        where, reason = str(path), "it is not valid JSON: it is nested too deeply"
    raise InputError(f"{where}: cannot be read ({reason}); give {what}")


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file next to `path`, then rename it to `path`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            with temporary.open("rb+") as stream:
                os.fsync(stream.fileno())
            temporary.chmod(0o644)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CamuError(f"{path}: cannot be written ({error.strerror or error})") from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    write_whole(path, lambda temporary: _fill(temporary, data))


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_whole(path, lambda temporary: _fill_json(temporary, document))


def _fill_json(path: Path, document: Any) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        for part in json_parts(document):
            stream.write(part)


def json_parts(document: Any) -> Iterator[str]:
    """The text of a JSON file, part by part.

    Everything is indented, but the entries of a long list in an object take a line each: that is a
    fraction of the time, and the text is never in memory as a whole.
    """
    lists = document if isinstance(document, dict) else {}
    long = {
        key
        for key, value in lists.items()
        if isinstance(value, list | tuple) and len(value) > _LONG_LIST
    }
    if not long:
        yield json.dumps(document, indent=2, allow_nan=False) + "\n"
        return
    encode = json.JSONEncoder(allow_nan=False).encode
    for number, (key, value) in enumerate(lists.items()):
        yield f"{',' if number else '{'}\n  {encode(key)}: "
        if key in long:
            for row, entry in enumerate(value):
                yield f"{',' if row else '['}\n    {encode(entry)}"
            yield "\n  ]"
        else:
            yield json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n  ")
    yield "\n}\n"


def _fill(path: Path, data: bytes) -> None:
    path.write_bytes(data)


class _RepeatedKeyError(Exception):
    pass


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return found
