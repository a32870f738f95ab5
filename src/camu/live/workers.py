"""Worker processes that plan for pages; one that hangs or crashes is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import CamuError

ANSWER_SECONDS = 60.0
LARGEST_ANSWER = 64 * 2**20


class WorkerError(CamuError):
    """A worker ended or took too long."""


class Workers:
    """A few worker processes; each answers one request at a time."""

    def __init__(
        self, base: Config, folder: Path, count: int = 2, seconds: float = ANSWER_SECONDS
    ) -> None:
        self.base, self.folder, self.seconds = base, folder, seconds
        self._free: asyncio.Queue[Process | None] = asyncio.Queue()
        self._all: set[Process] = set()
        self._closed = False
        for _ in range(count):
            self._free.put_nowait(None)  # a place; its process starts with the first request

    async def start(self) -> None:
        """Start the processes now, so that the first page need not wait for them."""
        for _ in range(self._free.qsize()):
            self._free.put_nowait(await self._living(self._free.get_nowait()))

    async def ask(self, request: dict[str, Any]) -> bytes:
        """The JSON answer of a worker; WorkerError if there is none."""
        process = await self._free.get()
        try:
            process = await self._living(process)
            return await asyncio.wait_for(_exchange(process, request), self.seconds)
        except TimeoutError:
            await self._end(process)
            raise WorkerError(
                f"planning took longer than {self.seconds:g} seconds and was ended; "
                "choose a smaller fleet or a faster solver"
            ) from None
        except (OSError, ValueError, asyncio.IncompleteReadError):
            await self._end(process)
            raise WorkerError(
                "the planning process ended unexpectedly and is started again; "
                "the terminal of camu live shows why"
            ) from None
        except asyncio.CancelledError:
            await self._end(process)  # its answer is for nobody
            raise
        finally:
            self._free.put_nowait(process)

    async def _living(self, process: Process | None) -> Process:
        """This process, or a new one if it has ended."""
        if self._closed:
            raise WorkerError("the server is ending")
        if process is not None and process.returncode is None:
            return process
        words = [sys.executable, "-m", "camu.live.worker", str(os.getpid()), str(self.folder)]
        started = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=PIPE, limit=LARGEST_ANSWER, start_new_session=True
        )
        self._all.add(started)
        assert started.stdin is not None
        started.stdin.write(json.dumps(self.base.to_toml()).encode() + b"\n")
        return started

    async def _end(self, process: Process | None) -> None:
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._all.discard(process)

    async def close(self) -> None:
        """End all processes; who waits for one of them is told."""
        self._closed = True
        for process in list(self._all):
            await self._end(process)


async def _exchange(process: Process, request: dict[str, Any]) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    await process.stdin.drain()
    line = await process.stdout.readline()
    if not line.endswith(b"\n"):
        raise asyncio.IncompleteReadError(line, None)
    return line
