"""A run on a SuperLink that is already there: started, and followed until it has ended."""

from __future__ import annotations

import time
from pathlib import Path

from camu.deploy.deployment import Settings
from camu.deploy.host.bundle import build_bundle
from camu.deploy.host.control import Control
from camu.deploy.host.follow import Display
from camu.errors import CamuError
from camu.simulation.directory import RunDirectory, check_directory

LOOK_SECONDS = 0.5
STATE_SECONDS = 5.0


def run_remote(settings: Settings, address: str, authority: Path | None) -> RunDirectory:
    """Start a run and show it until it has ended; without an authority, in plain text."""
    directory = RunDirectory(Path(settings.out))
    check_directory(settings.config, directory, settings.resume)
    bundle = build_bundle(settings)
    config = settings.config
    with (
        Control(address, authority) as control,
        Display(config.scheme.name, config.run.rounds, directory.path) as display,
    ):
        if authority is None:
            display.warn("--insecure: plain text, and nodes are not asked for keys")
        run = control.start(bundle)
        display.say("waiting for the nodes' reports")
        while not has_ended(control, run, display):
            deadline = time.monotonic() + STATE_SECONDS
            while time.monotonic() < deadline:
                time.sleep(LOOK_SECONDS)
                display.update()
    return directory


def has_ended(control: Control, run: int, display: Display) -> bool:
    """Whether a run is over; a run that failed is an error with the server's own words."""
    state = control.state(run)
    if state.status != "finished":
        return False
    display.update()
    if state.sub_status != "completed":
        raise CamuError(f"the run has failed: {display.error or state.details or state.sub_status}")
    return True
