"""Text files: read with clear errors, written whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import re
import secrets
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from camu.errors import CamuError, InputError

MOST_BYTES = 1 << 32  # of any file that is read as a whole
_LONG_LIST = 1000  # entries
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_TEMPORARY = re.compile(r"\..+-[0-9a-f]{8}\.tmp")
_LARGEST_READ = 4 * 2**20  # bytes of a growing file at a time


def open_regular(path: str | Path, most_bytes: int = MOST_BYTES) -> BufferedReader:
    """A regular file, open for reading.

    Raises OSError for anything that cannot be read to its end: a directory, a pipe, a device, a
    name that no file can have, or more than `most_bytes`.
    """
    _check_name(path)
    # Without O_NONBLOCK, opening a named pipe waits for a writer.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        state = os.fstat(handle)
        if stat.S_ISDIR(state.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if state.st_size > most_bytes:
            raise OSError(
                errno.EFBIG, f"it has {state.st_size:,} bytes, and at most {most_bytes:,} are read"
            )
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_name(path: str | Path) -> None:
    """Raise OSError for a name that no file can have: it has a NUL, or is no text."""
    try:
        good = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        good = False
    if not good:
        raise OSError(errno.EINVAL, "no file can have this name")


class Tail:
    """The whole lines that are added to a regular file; a rewritten file is read from its start."""

    def __init__(self, path: Path, skip_present: bool = False) -> None:
        self.path, self.place, self.inode = path, 0, 0
        self.again = False  # whether the last lines are the first ones of a rewritten file
        if skip_present and path.exists():
            self.place = path.stat().st_size

    def lines(self) -> list[str]:
        """The lines added since the last call, some megabytes at a time."""
        self.again = False
        try:
            info = self.path.stat()
            if (info.st_ino, info.st_size) == (self.inode, self.place):
                return []  # all is read
            if self.inode not in (0, info.st_ino) or info.st_size < self.place:
                self.place, self.again = 0, True
            self.inode = info.st_ino
            with open_regular(self.path) as stream:
                stream.seek(self.place)
                content = stream.read(_LARGEST_READ)
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]  # a line that is being written is read later
        self.place += len(whole)
        return [line.decode("utf-8", errors="replace") for line in whole.splitlines()]


def read_bytes(path: str | Path, what: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file; `what` names the right kind of file.

    Raises InputError where it cannot be read: "PATH: cannot be read (reason); give WHAT".
    """
    try:
        with open_regular(path, most_bytes) as stream:
            return stream.read()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{shown(path)}: cannot be read ({reason}); give {what}") from None


def read_text(path: str | Path, what: str, most_bytes: int = MOST_BYTES) -> str:
    """The text of a UTF-8 file without its byte-order mark; `what` names the right kind of file.

    Raises InputError where the file cannot be read: "PATH: cannot be read (reason); give WHAT".
    """
    data = read_bytes(path, what, most_bytes)
    try:
        # As in a file that is opened as text, every line ends with \n.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: cannot be read (it is not UTF-8 text, byte {error.start}); give {what}"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: str | Path, what: str) -> Any:
    """The content of a JSON file; `what` names the right kind of file.

    Raises InputError, with the line where possible; a key that appears twice in an object is an
    error too.
    """
    return parse_json(read_text(path, what), path, what)


def parse_json(text: str, path: str | Path, what: str) -> Any:
    """The content of a JSON text that was read from `path`; errors as in `read_json`."""

    def wrong(reason: str, line: int | None = None) -> InputError:
        where = f"{path}" if line is None else f"{path}, line {line}"
        return InputError(f"{where}: cannot be read ({reason}); give {what}")

    def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            repeated = next(name for name in names if names.count(name) > 1)
            raise wrong(f"the key {repeated} appears twice in an object")
        return found

    try:
        return json.loads(text, object_pairs_hook=without_repeats)
    except json.JSONDecodeError as error:
        raise wrong(f"it is not valid JSON: {error.msg}", error.lineno) from None
    except ValueError:  # Python refuses whole numbers of thousands of digits
        raise wrong("it is not valid JSON: a number is too long") from None
    except RecursionError:
        raise wrong("it is not valid JSON: it is nested too deeply") from None


def expanded(path: str | Path, key: str) -> Path:
    """A path whose ~ or ~user is replaced by a home directory; `key` is what gave it."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(
            f"{key} = {shown(path)}: there is no home directory of this user; write the whole path"
        ) from None


def shown(path: str | Path) -> str:
    """A path for a message: short, and without characters that a terminal obeys."""
    text = str(path)
    text = text if len(text) <= 300 else f"{text[:140]}…{text[-140:]}"
    return text if text.isprintable() else ascii(text)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file next to `path`, then rename it to `path`.

    A new file has the mode that the umask leaves, and a file that is replaced keeps its mode.
    """
    try:
        _check_name(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}.tmp")
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            write(temporary)
            with temporary.open("rb+") as stream:
                os.fsync(stream.fileno())
            with contextlib.suppress(FileNotFoundError):
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))
            os.replace(temporary, path)
            _sync_directory(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CamuError(f"{shown(path)}: cannot be written ({error.strerror or error})") from None


def is_temporary(name: str) -> bool:
    """Whether `write_whole` gives such a name to a file that is not complete."""
    return _TEMPORARY.fullmatch(name) is not None


def _sync_directory(folder: Path) -> None:
    """Make a renaming outlast a loss of power, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other process work in a directory inside the block; it is made if need be.

    The system releases the lock when the process ends, however that happens. Directories that were
    made for it and are empty at the end are removed.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock")
    made: list[Path] = []
    try:
        _check_name(folder)
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without flock, filelock warns and uses the file alone
            lock.acquire(blocking=False)
    except Timeout:
        raise InputError(
            f"{folder}: another process is working here; wait until it ends, or give another "
            "directory"
        ) from None
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{shown(folder)}: cannot be written ({reason})") from None
    try:
        yield
    finally:
        if [entry.name for entry in folder.iterdir()] == [".lock"]:
            (folder / ".lock").unlink()
            with contextlib.suppress(OSError):  # the first that holds something stays
                for path in made:
                    path.rmdir()
        lock.release()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_bytes(data))


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_parts(path, json_parts(document))


def write_parts(path: Path, parts: Iterable[str]) -> None:
    """Write a text file part by part, whole or not at all."""

    def fill(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as stream:
            stream.writelines(parts)

    write_whole(path, fill)


def json_parts(document: Any) -> Iterator[str]:
    """The text of a JSON file, part by part.

    Everything is indented, but the entries of a long list in an object take a line each: that is a
    fraction of the time, and the text is never in memory as a whole.
    """
    if not isinstance(document, dict) or not document:
        yield json.dumps(document, indent=2, allow_nan=False) + "\n"
        return
    encode = json.JSONEncoder(allow_nan=False).encode
    for number, (key, value) in enumerate(document.items()):
        yield f"{',' if number else '{'}\n  {encode(str(key))}: "
        if isinstance(value, list | tuple) and len(value) > _LONG_LIST:
            for row, entry in enumerate(value):
                yield f"{',' if row else '['}\n    {encode(entry)}"
            yield "\n  ]"
        else:
            yield json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n  ")
    yield "\n}\n"


def to_csv(rows: Iterable[Iterable[object]]) -> str:
    """CSV of rows, the head first. What has no value (None, NaN) is an empty cell.

    A spreadsheet takes text that begins with =, +, - or @ for a formula and may run it; such text
    that is not a number gets an apostrophe, which `from_cell` removes.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_to_cell, row) for row in rows)
    return text.getvalue()


def _to_cell(value: object) -> object:
    if value is None or value != value:
        return ""
    return f"'{value}" if isinstance(value, str) and _is_formula(value) else value


def _is_formula(text: str) -> bool:
    if _FORMULA.match(text) is None:
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def from_cell(text: str) -> str:
    """The text of a cell that `to_csv` may have protected."""
    return text[1:] if text[:1] == "'" and _is_formula(text[1:]) else text


def csv_rows(
    path: Path, what: str, text: str | None = None, mark: str = ","
) -> tuple[list[list[str]], list[str]]:
    """The rows of a CSV file that are not blank, and the line where each ends.

    `what` names the right kind of file. `text` is its content where it was read already, `mark`
    what separates columns.
    """
    text = read_text(path, what) if text is None else text
    rows, places = list[list[str]](), list[str]()
    protected = "'" in text  # most large tables have none
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    try:
        for row in reader:
            if row:
                rows.append([from_cell(cell) for cell in row] if protected else row)
                places.append(f"line {reader.line_num}")
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: is not valid CSV ({error}); "
            "write comma-separated columns"
        ) from None
    return rows, places


def parquet_table(path: Path, what: str, fix: str) -> Any:
    """The table of a Parquet file, by pyarrow, which is there; `what` and `fix` are for errors."""
    import pyarrow  # deferred: only Parquet needs it
    import pyarrow.parquet

    content = pyarrow.BufferReader(read_bytes(path, what))
    try:
        return pyarrow.parquet.read_table(content)
    except (pyarrow.ArrowException, OSError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{path}: cannot be read as Parquet ({said[0][:200]}); {fix}") from None


def csv_table(
    path: Path, what: str, content: str, text: str | None = None, mark: str = ","
) -> tuple[list[str], list[list[str]], list[str]]:
    """The header, the rows and their places of a CSV file; every row has all columns.

    `content` says what to write into an empty file.
    """
    rows, places = csv_rows(path, what, text, mark)
    if not rows:
        raise InputError(f"{path}: is empty; write {content}")
    header = [name.strip() for name in rows[0]]
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise InputError(f"{path}, {places[0]}: columns must be separated by commas")
    for number, name in enumerate(header):
        where = f"{path}, {places[0]}, column"
        if not name:
            raise InputError(f"{where} {number + 1}: has no name; name it in the header")
        if name in header[:number]:
            raise InputError(f"{where} {name}: appears twice; remove one")
    for row, place in zip(rows[1:], places[1:], strict=True):
        if len(row) != len(header):
            raise InputError(
                f"{path}, {place}: {len(row)} cells for the {len(header)} columns of the header; "
                "write one cell per column, empty where it may be"
            )
    return header, rows[1:], places[1:]
