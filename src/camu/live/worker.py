"""Processes that plan for pages: they read requests as lines of JSON and answer with such lines.

One that hangs or crashes is replaced. A process ends with its input, and with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import traceback
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import IO, Any

from camu.config import Config
from camu.errors import CamuError
from camu.live.downloads import download, training_config
from camu.live.planner import Planner
from camu.live.settings import faults, read_state
from camu.work import end_with_parent

ANSWER_SECONDS = 60.0
GRACE_SECONDS = 10.0
LARGEST_ANSWER = 64 * 2**20


class WorkerError(CamuError):
    """A worker ended or took too long."""


class Workers:
    """A few worker processes; each answers one request at a time."""

    def __init__(
        self,
        base: Config,
        folder: Path,
        count: int = 2,
        seconds: float = ANSWER_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self.base, self.folder = base, folder
        self.seconds, self.grace_seconds = seconds, grace_seconds
        self._answers: set[asyncio.Task[bytes]] = set()
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
        """The JSON answer of a worker; WorkerError if there is none.

        Who stops waiting gets no answer; the worker may finish for some seconds, because a new
        one would have to start.
        """
        answer = asyncio.create_task(self._answer(await self._free.get(), request))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(self.grace_seconds, answer.cancel)
            raise

    async def _answer(self, process: Process | None, request: dict[str, Any]) -> bytes:
        good = False
        try:
            process = await self._living(process)
            line = await asyncio.wait_for(_exchange(process, request), self.seconds)
            good = True
            return line
        except TimeoutError:
            raise WorkerError(
                f"planning took longer than {self.seconds:g} seconds and was ended; "
                "choose a smaller fleet or a faster solver"
            ) from None
        except (OSError, ValueError, asyncio.IncompleteReadError):
            raise WorkerError(
                "the planning process ended unexpectedly and is started again; "
                "the terminal of camu live shows why"
            ) from None
        finally:
            if not good and process is not None:
                await self._end(process)
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

    async def _end(self, process: Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._all.discard(process)

    async def close(self) -> None:
        """End all processes; who waits for one of them is told."""
        self._closed = True
        for answer in list(self._answers):
            answer.cancel()
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


def answer(planner: Planner, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request; errors that a user can cause are sentences in it."""
    try:
        state = read_state(request["state"])
        if request["do"] == "plan":
            return planner.plan(state)
        if request["do"] == "configure":
            return {"toml": training_config(planner, state).to_toml()}
        return download(planner, state, request["what"], request["scheme"])
    except CamuError as error:
        return {"errors": faults(error)}


def serve(planner: Planner, requests: IO[str], answers: IO[str]) -> None:
    """Answer until the input ends."""
    for line in requests:
        try:
            text = _json(answer(planner, json.loads(line)))
        except Exception as error:  # the next request can still be answered
            traceback.print_exc()
            words = f"{type(error).__name__}: {error}. This is a bug in camu; please report it"
            text = _json({"errors": [{"key": None, "text": words}]})
        answers.write(text + "\n")
        answers.flush()


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def main() -> None:
    """`python -m camu.live.worker PARENT FOLDER`, with the configuration as the first line."""
    end_with_parent(int(sys.argv[1]))
    # What a user's own code prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    base = Config.from_toml(json.loads(sys.stdin.readline()))
    serve(Planner(base, Path(sys.argv[2])), sys.stdin, answers)


if __name__ == "__main__":
    main()
