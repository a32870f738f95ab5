"""A planning process that crashes or hangs is ended and replaced; the page goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from camu.live.worker import WorkerError, Workers
from helpers.configs import small

REQUEST: dict[str, Any] = {"do": "plan", "state": {"schemes": ["fedavg"]}}


def with_workers(
    folder: Path, work: Callable[[Workers], Awaitable[None]], seconds: float = 60.0
) -> None:
    async def run() -> None:
        workers = Workers(small(), folder, count=1, seconds=seconds)
        try:
            await work(workers)
        finally:
            await workers.close()

    # In a thread: a browser of other tests may have an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(run())).result()


def only(workers: Workers) -> Any:
    (process,) = workers._all
    return process


@pytest.mark.slow
def test_a_crashed_process_is_replaced(tmp_path: Path) -> None:
    async def work(workers: Workers) -> None:
        await workers.start()
        asked = asyncio.create_task(workers.ask(REQUEST))
        await asyncio.sleep(0)
        only(workers).kill()
        with pytest.raises(WorkerError, match="ended unexpectedly"):
            await asked
        assert json.loads(await workers.ask(REQUEST))["errors"] == []

    with_workers(tmp_path, work)


@pytest.mark.slow
def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async def work(workers: Workers) -> None:
        await workers.start()
        process = only(workers)
        with pytest.raises(WorkerError, match=r"took longer than 0\.001 seconds"):
            await workers.ask(REQUEST)
        assert process.returncode is not None
        assert not workers._all

    with_workers(tmp_path, work, seconds=0.001)


@pytest.mark.slow
def test_a_process_whose_answer_nobody_waits_for_goes_on(tmp_path: Path) -> None:
    async def work(workers: Workers) -> None:
        await workers.start()
        process = only(workers)
        asked = asyncio.create_task(workers.ask(REQUEST))
        await asyncio.sleep(0.1)
        asked.cancel()
        assert json.loads(await workers.ask(REQUEST))["errors"] == []
        assert only(workers) is process

    with_workers(tmp_path, work)


@pytest.mark.slow
def test_a_process_that_goes_on_for_nobody_is_replaced_in_the_end(tmp_path: Path) -> None:
    async def work(workers: Workers) -> None:
        workers.grace_seconds = 0.0
        await workers.start()
        process = only(workers)
        asked = asyncio.create_task(workers.ask(REQUEST))
        await asyncio.sleep(0.1)
        asked.cancel()
        await process.wait()
        assert json.loads(await workers.ask(REQUEST))["errors"] == []
        assert only(workers) is not process

    with_workers(tmp_path, work)
