"""Trainings of pages: directories that survive a restart, and the processes that fill them.

`python -m camu.live.training PARENT CONFIG DIR` trains one scheme. SIGINT ends it after the round
with a checkpoint; started again, it goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from camu.config import Config, load_config
from camu.errors import CamuError, InputError
from camu.files import write_json, write_text
from camu.learning.pool import available_cores
from camu.live.settings import PageState, read_state
from camu.live.watching import LEDGER
from camu.schemes.registry import configs_for
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.history import History, Record
from camu.simulation.run import Callback, Run
from camu.work import end_with_parent

MOST_RUNNING = 8
END_SECONDS = 5.0
_LEDGER_SECONDS = 0.25
_NAME = re.compile(r"training-(\d{1,6})")


@dataclass
class SchemeRun:
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
    def finished(self) -> bool:
        """Whether it has come to its end."""
        return RunDirectory(self.folder).summary.exists()

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.returncode is None

    def status(self) -> dict[str, Any]:
        """Its state in a word, and the sentence of its error."""
        if self.finished:
            return {"state": "finished"}
        if self.running:
            return {"state": "stopping" if self.stopping else "running"}
        if self.waiting:
            return {"state": "waiting"}
        if self.process is None or not self.process.returncode or self.stopping:
            return {"state": "paused"}
        error = f"the training process ended with code {self.process.returncode}"
        with contextlib.suppress(OSError, IndexError):
            error = self.log.read_text("utf-8", "replace").strip().splitlines()[-1][:500]
        return {"state": "failed", "error": error}


@dataclass
class Training:
    """Some schemes on one world."""

    number: int
    folder: Path
    state: dict[str, Any]
    runs: list[SchemeRun]
    over: bool = False
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this work, and hold its task until it is done."""
        task = asyncio.create_task(work)
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


class TrainingSet:
    """All trainings of a server's run directory. At most one process per core trains."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.turns = asyncio.Semaphore(min(MOST_RUNNING, available_cores()))
        self.all = _found(folder)

    def get(self, number: int) -> Training:
        """A training by its number."""
        if number not in self.all:
            raise InputError(f"there is no training {number}")
        return self.all[number]

    def begin(self, state: PageState, config: Config) -> Training:
        """Start to train the schemes of a page."""
        configs = configs_for(config, state.schemes)
        number = 1 + max(_directories(self.folder), default=0)
        folder = self.folder / f"training-{number:04d}"
        runs = _runs(folder, list(configs))
        for run, own in zip(runs, configs.values(), strict=True):
            # One core each; the number of workers changes no bit of the result.
            own = own.replace({"machine.workers": 1}) if len(runs) > 1 else own
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
            if not (run.running or run.waiting or run.finished):
                run.waiting, run.stopping = True, False
                training.keep(self._train(run))

    async def _train(self, run: SchemeRun) -> None:
        async with self.turns:
            if not run.waiting:
                return
            words = ("-m", "camu.live.training", str(os.getpid()), str(run.config), str(run.folder))
            with run.log.open("wb") as log:
                run.process = await asyncio.create_subprocess_exec(
                    *(sys.executable, *words),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            run.waiting = False
            await run.process.wait()

    def pause(self, training: Training) -> None:
        """End the runs after their round; they can go on later."""
        for run in training.runs:
            run.waiting = False
            if run.running:
                run.stopping = True
                training.keep(_interrupt(run))

    def stop(self, training: Training) -> None:
        """End the runs after their round, for good."""
        training.over = True
        write_json(training.folder / "training.json", {"state": training.state, "over": True})
        self.pause(training)

    async def close(self) -> None:
        """End every process: after its round if that comes soon, else at once."""
        running = [run for training in self.all.values() for run in training.runs]
        for run in running:
            run.waiting = False
        await asyncio.gather(*(_interrupt(run) for run in running if run.running))


async def _interrupt(run: SchemeRun) -> None:
    """Ask for the end after the round; a process without a round yet, or a long one, is killed."""
    process = run.process
    assert process is not None
    run.stopping = True
    with contextlib.suppress(ProcessLookupError):
        if RunDirectory(run.folder).rounds.exists():
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_SECONDS)
        if process.returncode is None:  # once it has ended, its number may be another process's
            os.killpg(process.pid, signal.SIGKILL)  # with the workers that it started
    await process.wait()


def _runs(folder: Path, schemes: list[str]) -> list[SchemeRun]:
    return [
        SchemeRun(name, folder / f"{index}-{re.sub(r'[^A-Za-z0-9_-]+', '.', name).strip('.')}")
        for index, name in enumerate(schemes)
    ]


def _directories(folder: Path) -> dict[int, Path]:
    """The directories of trainings by their number, also those that cannot be read."""
    names = ((_NAME.fullmatch(path.name), path) for path in sorted(folder.glob("training-*")))
    return {int(name[1]): path for name, path in names if name is not None}


def _found(folder: Path) -> dict[int, Training]:
    """The trainings that an earlier server left, by number."""
    found = {}
    for number, path in _directories(folder).items():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, CamuError):
            document = json.loads((path / "training.json").read_text("utf-8"))
            runs = _runs(path, read_state(document["state"]).schemes)
            over = bool(document.get("over"))
            found[number] = Training(number, path, document["state"], runs, over)
    return found


class Ledger(Callback):
    """Writes what each device has spent, and who is absent, a few times per second."""

    def __init__(self, path: Path) -> None:
        self.path, self.written = path, 0.0

    def on_round(self, run: Run, record: Record) -> None:
        """Write where the last time is long enough ago."""
        if time.monotonic() - self.written >= _LEDGER_SECONDS:
            self._write(run)

    def on_end(self, run: Run, history: History) -> None:
        """Write the last round."""
        if run.records:
            self._write(run)

    def _write(self, run: Run) -> None:
        self.written = time.monotonic()
        empty = [k for k, empty in enumerate(run.batteries.empty.tolist()) if empty]
        joules = [float(f"{joules:.6g}") for joules in run.device_joules]
        spent = {"round": run.round, "joules": joules, "absent": sorted(run.absent)}
        write_json(self.path, {**spent, "empty": empty})


def main() -> int:
    """Train, and say in one sentence on stderr why not."""
    parent, config, folder = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    end_with_parent(parent)
    try:
        ledger = Ledger(folder / LEDGER)
        run_in_directory(load_config(config), RunDirectory(folder), resume=True, callbacks=[ledger])
    except CamuError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
