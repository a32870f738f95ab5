"""The trainings of pages: directories that survive a restart, and the processes that fill them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from asyncio.subprocess import Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import CamuError, InputError
from camu.files import write_json, write_text
from camu.learning.pool import available_cores
from camu.live.state import PageState, read_state
from camu.schemes.registry import configs_for
from camu.simulation.directory import RunDirectory

MOST_TRAININGS = 500
MOST_RUNNING = 8
END_SECONDS = 5.0
_NAME = re.compile(r"training-(\d{1,6})")


@dataclass
class OneRun:
    """One scheme of a training."""

    scheme: str
    folder: Path
    process: Process | None = None
    waiting: bool = False
    stopping: bool = False

    @property
    def config(self) -> Path:
        """The configuration that it starts with."""
        return self.folder.with_name(self.folder.name + ".toml")

    @property
    def log(self) -> Path:
        """What its process wrote on stderr."""
        return self.folder.with_name(self.folder.name + ".log")

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.returncode is None

    def status(self) -> dict[str, Any]:
        """Its state in a word, and the sentence of its error."""
        if RunDirectory(self.folder).summary.exists():
            word = "finished"
        elif self.running:
            word = "stopping" if self.stopping else "running"
        elif self.waiting:
            word = "waiting"
        elif (
            self.process is not None
            and self.process.returncode not in (0, None)
            and (not self.stopping)
        ):
            return {"state": "failed", "error": self._error()}
        else:
            word = "paused"
        return {"state": word}

    def _error(self) -> str:
        assert self.process is not None
        with contextlib.suppress(OSError):
            lines = self.log.read_text("utf-8", "replace").strip().splitlines()
            if lines:
                return lines[-1][:500]
        return f"the training process ended with code {self.process.returncode}"


@dataclass
class Training:
    """Some schemes on one world."""

    number: int
    folder: Path
    state: dict[str, Any]
    runs: list[OneRun]
    over: bool = False
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a task until it is done."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def status(self) -> dict[str, Any]:
        """What a page shows in the list of trainings."""
        return {
            "number": self.number,
            "schemes": [run.scheme for run in self.runs],
            "state": self.state,
            "over": self.over,
            "runs": [run.status() for run in self.runs],
        }


class Trainings:
    """All trainings of a server's run directory. At most one process per core trains."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.turns = asyncio.Semaphore(min(MOST_RUNNING, available_cores()))
        self.all = {training.number: training for training in _found(folder)}

    def get(self, number: int) -> Training:
        """A training by its number."""
        if number not in self.all:
            raise InputError(f"there is no training {number}")
        return self.all[number]

    def begin(self, state: PageState, config: Config) -> Training:
        """Start to train the schemes of a page."""
        if len(self.all) >= MOST_TRAININGS:
            raise InputError(
                f"{self.folder}: there are {MOST_TRAININGS} trainings already; move some away"
            )
        configs = configs_for(config, state.schemes)
        number = 1 + max((*self.all, *_numbers(self.folder)), default=0)
        folder = self.folder / f"training-{number:04d}"
        runs = _runs(folder, list(configs))
        for run, own in zip(runs, configs.values(), strict=True):
            # One core each; the number of workers changes no bit of the result.
            own = own.replace({"run.workers": 1}) if len(runs) > 1 else own
            write_text(run.config, own.to_toml())
        document = state.model_dump(mode="json")
        write_json(folder / "training.json", {"state": document, "over": False})
        training = Training(number, folder, document, runs)
        self.all[number] = training
        self.resume(training)
        return training

    def resume(self, training: Training) -> None:
        """Go on with every run that is not finished."""
        if training.over:
            raise InputError(f"training {training.number} was stopped; start a new one")
        for run in training.runs:
            if run.running or run.waiting or RunDirectory(run.folder).summary.exists():
                continue
            run.waiting, run.stopping = True, False
            training.keep(asyncio.create_task(self._train(run)))

    async def _train(self, run: OneRun) -> None:
        async with self.turns:
            if not run.waiting:
                return
            words = [sys.executable, "-m", "camu.live.train", str(os.getpid())]
            with run.log.open("wb") as log:
                run.process = await asyncio.create_subprocess_exec(
                    *words,
                    str(run.config),
                    str(run.folder),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            run.waiting = False
            await run.process.wait()

    async def pause(self, training: Training) -> None:
        """End the runs after their round; they can go on later."""
        for run in training.runs:
            run.waiting = False
            if run.running:
                run.stopping = True
                training.keep(asyncio.create_task(_interrupt(run)))

    async def stop(self, training: Training) -> None:
        """End the runs after their round, for good."""
        training.over = True
        write_json(training.folder / "training.json", {"state": training.state, "over": True})
        await self.pause(training)

    async def close(self) -> None:
        """End every process: after its round if that comes soon, else at once."""
        running = [run for training in self.all.values() for run in training.runs]
        for run in running:
            run.waiting = False
        await asyncio.gather(*(_interrupt(run) for run in running if run.running))


async def _interrupt(run: OneRun) -> None:
    """Ask for the end after the round; a process without a round yet, or a long one, is killed."""
    process = run.process
    assert process is not None
    run.stopping = True
    with contextlib.suppress(ProcessLookupError):
        if RunDirectory(run.folder).rounds.exists():
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)  # with the workers that it started
    await process.wait()


def _runs(folder: Path, schemes: list[str]) -> list[OneRun]:
    return [
        OneRun(name, folder / f"{index}-{re.sub(r'[^A-Za-z0-9_-]+', '.', name).strip('.')}")
        for index, name in enumerate(schemes)
    ]


def _numbers(folder: Path) -> list[int]:
    """The numbers that are taken, also by directories that cannot be read."""
    names = (_NAME.fullmatch(path.name) for path in folder.glob("training-*"))
    return [int(name[1]) for name in names if name is not None]


def _found(folder: Path) -> list[Training]:
    """The trainings that an earlier server left."""
    found = []
    for path in sorted(folder.glob("training-*")):
        name = _NAME.fullmatch(path.name)
        try:
            document = json.loads((path / "training.json").read_text("utf-8"))
            state = read_state(document["state"])
        except (OSError, ValueError, KeyError, TypeError, CamuError):
            continue
        if name is not None:
            runs = _runs(path, state.schemes)
            over = bool(document.get("over"))
            found.append(Training(int(name[1]), path, document["state"], runs, over))
    return found
