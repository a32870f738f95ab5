"""Processes killed at random moments: what is left must go on to the same bits.

Each process is forked from this one, which has imported everything and computed nothing. It dies by
SIGKILL: after a random time, or at the n-th time that it renames, syncs or opens a file to write.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from torture.calls import call, tell
from torture.inputs import TINY

KINDS = ("run", "run", "run", "run", "run", "compare", "compare", "compare", "reproduce", "fetch")
PRELOADED = (
    "camu.cli.progress_bar",
    "camu.data.store",
    "camu.experiments.compare",
    "camu.experiments.comparison",
    "camu.experiments.scheduler",
    "camu.report.writing",
    "camu.simulation.directory",
)


def forked(work: Callable[[], object], die: Callable[[], None] | None, seconds: float) -> int:
    """Do work in a forked process and return its wait status; it dies as `die` arranges."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        code = 70
        try:
            if die is not None:
                die()
            work()
            code = 0
        finally:
            os._exit(code)
    if seconds:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    with_group(child)
    return status


def with_group(child: int) -> None:
    """End what a killed process has started itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def at_call(name: str, number: int, after: bool) -> Callable[[], None]:
    """Arrange that this process dies before or after its n-th call of a function."""

    def arrange() -> None:
        where: Any = builtins if name == "open" else os
        plain, seen = getattr(where, name), [0]

        def counted(*arguments: Any, **options: Any) -> Any:
            seen[0] += 1
            if seen[0] == number and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = plain(*arguments, **options)
            if seen[0] == number and after:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        setattr(where, name, counted)

    return arrange


def camu(*arguments: str) -> Callable[[], None]:
    """A command as work for a process; a refusal ends it with its exit code."""

    def work() -> None:
        done = call(arguments)
        if done.code:
            os._exit(done.code)

    return work


def story(folder: Path) -> dict[str, str]:
    """Everything that finished runs below a folder hold, without the time that they took."""
    found = {}
    for summary in sorted(folder.rglob("summary.json")):
        document = json.loads(summary.read_text())
        for name in ("wall_seconds", "files", "sha256", "notes"):
            document.pop(name)
        run = summary.parent
        tensors = load_file(run / "model.safetensors")
        model = {name: tensors[name].tobytes().hex() for name in sorted(tensors)}
        parts = [json.dumps(document), (run / "rounds.jsonl").read_text(), json.dumps(model)]
        parts += [(run / name).read_text() for name in ("plan.json", "config.toml")]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        found[str(run.relative_to(folder))] = digest
    return found


class Work:
    """The four kinds of work, on small inputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "tiny.toml"
        self.config.write_text(TINY.replace("rounds = 4", "rounds = 9\neval_every = 2"))
        self.expected: dict[str, dict[str, str]] = {}

    def command(self, kind: str, out: Path) -> Callable[[], object]:
        """The work of a kind, new or to be continued."""
        if kind == "run":
            more = ["--resume"] if (out / "config.toml").exists() else []
            return camu("run", "-c", str(self.config), "--out", str(out), *more)
        if kind == "compare":
            names = ["--schemes", "fedavg,camu", "--seeds", "1"]
            return camu("compare", "-c", str(self.config), *names, "--out", str(out))
        if kind == "reproduce":
            return lambda: _reproduce(self.config, out)
        return lambda: _fetch(out)

    def result(self, kind: str, out: Path) -> dict[str, str]:
        """What the work has left."""
        if kind != "fetch":
            return story(out)
        files = sorted(path for path in out.rglob("*") if path.is_file())
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
            if path.suffix != ".lock"
        }

    def reference(self, kind: str) -> dict[str, str]:
        """What undisturbed work leaves."""
        if kind not in self.expected:
            out = self.folder / f"whole-{kind}"
            status = forked(self.command(kind, out), None, 0.0)
            assert status == 0, (kind, status)
            self.expected[kind] = self.result(kind, out)
            assert self.expected[kind]
        return self.expected[kind]


def _reproduce(config: Path, out: Path) -> None:
    """The runs of a study, as `camu reproduce` executes them."""
    from camu.config import load_config
    from camu.experiments.scheduler import Executor

    whole = load_config(config)
    configs = {f"cell-{seed}": whole.replace({"run.seed": seed}) for seed in (1, 2)}
    Executor(out, processes=1).run(configs)


def _fetch(out: Path) -> None:
    """A data set from a source on this machine into the cache."""
    from camu.data import store
    from camu.data.catalog import DatasetSpec, IdxFile

    content = bytes(number % 251 for number in range(300_012))
    digest = hashlib.sha256(content).hexdigest()
    files = tuple(IdxFile(f"part-{n}", digest, (300, 1000)) for n in range(3))
    spec = DatasetSpec("toy", "made up", (10, 100), 10, 300, 300, files, (_Disk(content),))
    os.environ["CAMU_DATA"] = str(out)
    store.fetch(spec)
    assert store._from_cache(spec) is not None


class _Disk:
    """A source that delivers slowly from memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def describe(self) -> str:
        return "this machine"

    def missing(self) -> str | None:
        return None

    def fetch(self, sizes: Any, directory: Path, advance: Callable[[int], None]) -> None:
        for name in sizes:
            with (directory / name).open("wb") as stream:
                for start in range(0, len(self.content), 50_000):
                    stream.write(self.content[start : start + 50_000])
                    stream.flush()
                    advance(50_000)
                    time.sleep(0.005)


def kills(count: int, seed: int, folder: Path) -> tuple[dict[str, int], list[str]]:
    """Kill and go on; returns the number of kills by kind, and a line for each that went wrong."""
    for name in PRELOADED:  # once, and not in every process
        importlib.import_module(name)
    work = Work(folder)
    tried = dict.fromkeys(KINDS, 0)
    failures = []
    attempt = 0
    while sum(tried.values()) < count:
        dice = random.Random(f"{seed}/kill/{attempt}")
        kind = KINDS[attempt % len(KINDS)]
        attempt += 1
        expected = work.reference(kind)
        out = folder / "killed"
        shutil.rmtree(out, ignore_errors=True)
        moments: list[str] = []
        for _ in range(min(dice.randrange(1, 4), count - sum(tried.values()))):
            moment, die, seconds = _moment(dice, kind)
            status = forked(work.command(kind, out), die, seconds)
            if os.WIFSIGNALED(status):  # otherwise it ended before its moment
                tried[kind] += 1
                moments.append(moment)
            elif status:
                failures.append(tell(f"{kind}: after {moments}: exit code {status >> 8}"))
        status = forked(work.command(kind, out), None, 0.0)
        if status or work.result(kind, out) != expected:
            wrong = f"exit code {status >> 8}" if status else "other bits"
            failures.append(tell(f"{kind}: after {', '.join(moments)}: {wrong}"))
    return tried, failures


def _moment(dice: random.Random, kind: str) -> tuple[str, Callable[[], None] | None, float]:
    """When a process dies: in words, what to arrange in it, and after how many seconds."""
    if dice.random() < 0.4 or kind == "reproduce":
        seconds = dice.uniform(0.0, {"run": 0.6, "compare": 1.2, "reproduce": 9.0}.get(kind, 0.3))
        return f"{seconds:.2f} s", None, seconds
    name = dice.choice(["replace", "fsync"] if kind != "fetch" else ["replace", "open"])
    number, after = dice.randrange(1, 14 if kind != "fetch" else 4), dice.random() < 0.5
    return f"{name} {number}", at_call(name, number, after), 0.0
