"""A task in a process of its own: it cannot harm its node, and is ended when its time is over.

The process is started for the first task and kept, with data and engine. It gets its tasks through
a pipe, has no connection to anybody, and is started again after it has ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from flwr.app import ConfigRecord, RecordDict

from camu.errors import CamuError
from camu.work import end_with_parent

log = logging.getLogger(__name__)

MODULE = "camu.deploy.host.isolated"
_COUNT = struct.Struct("<Q")


class Isolated:
    """Works on messages in a process of its own."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(
        self, kind: str, content: RecordDict, run: Mapping[str, Any], seconds: float
    ) -> RecordDict:
        """The content of the answer; an error if the process ends, or is ended after its time."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(seconds, process.kill)
        late.start()
        try:
            head = {"kind": kind, "run": dict(run), "node": dict(self.table)}
            write_parts(process.stdin, [json.dumps(head).encode(), *flatten(content)])
            error, *parts = read_parts(process.stdout)
        except (OSError, EOFError):
            self.close()
            code = process.returncode
            raise CamuError(f"the process of the task has ended (code {code})") from None
        finally:
            late.cancel()
        if error:
            raise CamuError(error.decode())
        return unflatten(parts)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError), self._process:
                pass  # which closes its pipes and waits for it
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [sys.executable, "-m", MODULE, str(os.getpid())]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        return self._process


def flatten(content: RecordDict) -> list[bytes]:
    """A message of camu as pieces of bytes."""
    pieces = []
    for name, record in content.items():
        pieces += [name.encode(), record.deflate()]
    return pieces


def unflatten(pieces: Sequence[bytes]) -> RecordDict:
    """The message of these pieces."""
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    return RecordDict({name.decode(): ConfigRecord.inflate(record) for name, record in pairs})


def write_parts(stream: IO[bytes], parts: Sequence[bytes]) -> None:
    """Write pieces of bytes with their number and lengths."""
    stream.write(_COUNT.pack(len(parts)))
    for part in parts:
        stream.write(_COUNT.pack(len(part)))
        stream.write(part)
    stream.flush()


def read_parts(stream: IO[bytes]) -> list[bytes]:
    """Read pieces of bytes; EOFError at the end of the stream."""

    def read(size: int) -> bytes:
        found = stream.read(size)
        if len(found) < size:
            raise EOFError
        return found

    (count,) = _COUNT.unpack(read(_COUNT.size))
    return [read(_COUNT.unpack(read(_COUNT.size))[0]) for _ in range(count)]


def main() -> None:
    """Work on what comes through the pipe, until it ends."""
    end_with_parent(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what own code prints is no answer
    from camu.deploy import node_app

    with contextlib.suppress(EOFError):
        while True:
            head, *pieces = read_parts(sys.stdin.buffer)
            asked = json.loads(head)
            try:
                content = unflatten(pieces)
                found = node_app.answer(asked["kind"], content, asked["run"], asked["node"])
            except Exception as error:
                log.error("a task has failed", exc_info=error)
                write_parts(answers, [node_app.for_server(error).encode() or b"no reason given"])
            else:
                write_parts(answers, [b"", *flatten(found)])


if __name__ == "__main__":
    main()
