"""Runs on a SuperLink: started, and followed through the files that the server writes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Protocol

from camu.deploy.deployment import Deployment, make_deployable_scheme, project_file
from camu.deploy.flower_compat import build_bundle
from camu.deploy.host.control import Control
from camu.errors import CamuError
from camu.simulation.directory import RunDirectory, check_directory
from camu.simulation.history import Record

UPDATE_SECONDS = 0.5
STATE_SECONDS = 5.0
INSECURE = "--insecure: plain text, and nodes are not asked for keys"


class Display(Protocol):
    """Shows a run in progress."""

    def say(self, state: str) -> None:
        """Show a step before the first round."""

    def warn(self, text: str) -> None:
        """Show a warning."""

    def show(self, record: Record) -> None:
        """Show a round that has ended."""


class Tail:
    """The whole lines that are added to a file; a rewritten file is read from its start."""

    def __init__(self, path: Path, skip_present: bool = False) -> None:
        self.path, self.place = path, 0
        if skip_present and path.exists():
            self.place = path.stat().st_size

    def lines(self) -> list[str]:
        """The lines added since the last call."""
        try:
            if self.path.stat().st_size < self.place:
                self.place = 0
            with self.path.open("rb") as stream:
                stream.seek(self.place)
                content = stream.read()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self.place += len(whole)
        return whole.decode("utf-8", errors="replace").splitlines()


class Follower:
    """Follows a run in its directory, and shows its rounds and the server's warnings."""

    def __init__(self, out: Path, display: Display) -> None:
        self.display = display
        self.rounds = Tail(out / "rounds.jsonl")
        self.server = Tail(out / "server.log", skip_present=True)
        self.error = ""  # the last error of the server

    def update(self) -> None:
        """Show the rounds and warnings since the last call."""
        for line in self.server.lines():
            words = line.split(" ", 3)  # date, time, level, text
            if len(words) == 4 and words[2] in ("WARNING", "ERROR"):
                self.display.warn(words[3])
                self.error = words[3] if words[2] == "ERROR" else self.error
        for line in self.rounds.lines():
            try:
                record = Record.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            self.display.show(record)

    def has_ended(self, control: Control, run: int) -> bool:
        """Whether a run is over; for a run that failed, raises the server's last error."""
        state = control.state(run)
        if state.status != "finished":
            return False
        self.update()
        if state.sub_status != "completed":
            why = self.error or state.details or state.sub_status
            raise CamuError(f"the run has failed: {why}")
        return True


def run_remote(
    deployment: Deployment, address: str, authority: Path | None, display: Display
) -> RunDirectory:
    """Start a run and show it until it has ended; without an authority, in plain text."""
    make_deployable_scheme(deployment.config)
    directory = RunDirectory(Path(deployment.out))
    check_directory(deployment.config, directory, deployment.resume)
    bundle = build_bundle(project_file(deployment))
    follower = Follower(directory.path, display)
    with Control(address, authority) as control:
        if authority is None:
            display.warn(INSECURE)
        run = control.start(bundle)
        display.say("waiting for the nodes' reports")
        while not follower.has_ended(control, run):
            deadline = time.monotonic() + STATE_SECONDS
            while time.monotonic() < deadline:
                time.sleep(UPDATE_SECONDS)
                follower.update()
    return directory
