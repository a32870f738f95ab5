"""Too little of everything: disk, memory, descriptors, readers, letters; and signals.

Each case runs in a process of its own. It holds if it ends with one sentence or none, without a
traceback, and if a run that was cut off goes on to the bits of the undisturbed one.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from torture.calls import tell
from torture.inputs import TINY
from torture.kills import story

BAD = ("Traceback", "bug in camu", "Exception ignored", "Warning")


def start(
    arguments: list[str], before: Callable[[], None] | None = None, **options: object
) -> subprocess.Popen[bytes]:
    """Start `camu ARGUMENTS` with limits that `before` sets, and with signals as in a terminal."""

    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):  # in the background they are ignored
            signal.signal(number, signal.SIG_DFL)
        if before is not None:
            before()

    pipes: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "camu.cli", *arguments]
    return subprocess.Popen(command, preexec_fn=prepare, **{**pipes, **options})  # type: ignore[call-overload, no-any-return]


def end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """The exit code and the message."""
    _, err = process.communicate(timeout=600)
    return process.returncode, (err or b"").decode("utf-8", "replace")


def limited(kind: int, most: int) -> Callable[[], None]:
    """Set a limit of the system in a process that starts; a file too large is an error."""

    def set_limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(kind, (most, most))

    return set_limit


def judge(name: str, code: int, err: str, codes: tuple[int, ...], say: str = "") -> str | None:
    """What is wrong with an ending; None if nothing is."""
    if code not in codes:
        return f"{name}: exit code {code}: {err[-300:]}"
    if found := [word for word in BAD if word in err]:
        return f"{name}: {found[0]}: {err[-300:]}"
    if say and say not in " ".join(err.split()):
        return f"{name}: does not say {say!r}: {err[-300:]}"
    return None


def limits(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Try every limit; returns the number tried by kind, and a line for each that did not hold."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "tiny.toml"
    config.write_text(TINY.replace("rounds = 4", "rounds = 60\neval_every = 10"))
    whole = folder / "whole"
    run = ["run", "-c", str(config)]
    code, err = end(start([*run, "--out", str(whole)]))
    assert code == 0, err
    expected = story(whole)
    tried: dict[str, int] = {}
    failures: list[str | None] = []

    def goes_on(name: str, out: Path) -> None:
        more = ["--resume"] if (out / "config.toml").exists() else []
        code, err = end(start([*run, "--out", str(out), *more]))
        wrong = judge(f"{name}, resumed", code, err, (0,))
        if wrong is None and story(out) != expected:
            wrong = f"{name}: other bits after --resume"
        failures.append(wrong)

    for most in (2_000, 12_000, 17_000):  # bytes of a file: as a disk that is full
        tried["full disk"] = tried.get("full disk", 0) + 1
        out = folder / f"full-{most}"
        code, err = end(start([*run, "--out", str(out)], limited(resource.RLIMIT_FSIZE, most)))
        failures.append(judge("full disk", code, err, (1,), "cannot be written"))
        goes_on("full disk", out)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        tried["signals"] = tried.get("signals", 0) + 1
        out = folder / number.name
        process = start([*run, "--out", str(out)])
        while process.poll() is None and not _begun(out, 5):
            time.sleep(0.01)
        process.send_signal(number)
        code, err = end(process)
        failures.append(judge(f"signals: {number.name}", code, err, (130,), "--resume"))
        goes_on(f"signals: {number.name}", out)
    for most in (300_000_000, 900_000_000, 1_600_000_000):
        tried["little memory"] = tried.get("little memory", 0) + 1
        code, err = end(start(["plan", "--json"], limited(resource.RLIMIT_AS, most)))
        failures.append(judge(f"little memory: {most}", code, err, (0, 1)))
    for most in (5, 8, 20):
        tried["few descriptors"] = tried.get("few descriptors", 0) + 1
        out = folder / f"few-{most}"
        code, err = end(start([*run, "--out", str(out)], limited(resource.RLIMIT_NOFILE, most)))
        failures.append(judge(f"few descriptors: {most}", code, err, (0, 1)))
        goes_on("few descriptors", out)
    failures += _streams(tried)
    return tried, [tell(line) for line in failures if line]


def _begun(out: Path, rounds: int) -> bool:
    path = out / "rounds.jsonl"
    return path.exists() and path.read_bytes().count(b"\n") > rounds


def _streams(tried: dict[str, int]) -> list[str | None]:
    """Outputs that are full, closed or in another alphabet."""
    found: list[str | None] = []
    for command in (["plan"], ["plan", "--json"], ["schemes"], ["config", "keys"]):
        tried["full output"] = tried.get("full output", 0) + 1
        with Path("/dev/full").open("wb") as full:
            code, err = end(start(command, stdout=full))
        found.append(judge(f"full output: {command}", code, err, (1,), "output"))
        tried["closed pipe"] = tried.get("closed pipe", 0) + 1
        process = start(command)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        code, err = end(process)
        found.append(judge(f"closed pipe: {command}", code, err, (0,)))
        for encoding in ("latin-1", "ascii"):
            tried["other alphabet"] = tried.get("other alphabet", 0) + 1
            environment = {**os.environ, "PYTHONIOENCODING": encoding}
            code, err = end(start(command, env=environment))
            found.append(judge(f"other alphabet: {encoding} {command}", code, err, (0,)))
    return found
