"""A whole deployment on this machine: SuperLink, nodes and a run, over loopback with TLS and keys.

Whatever ends it, nothing stays behind but the run directory: processes are ended, and keys and
Flower's own files lie in a temporary directory that is removed.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from camu.deploy.deployment import Settings
from camu.deploy.host.bundle import CLIENT_APP, build_bundle
from camu.deploy.host.commands import NodeKeys, ServerKeys, superlink_command, supernode_command
from camu.deploy.host.control import Control
from camu.deploy.host.follow import Display
from camu.deploy.host.keys import KeyDirectory, make_keys
from camu.deploy.host.processes import Processes, free_ports, wait_for_port
from camu.deploy.host.remote import has_ended
from camu.errors import CamuError, InputError
from camu.simulation.directory import RunDirectory, check_directory

log = logging.getLogger(__name__)

START_SECONDS = 300.0
LOOK_SECONDS = 0.3
RESTART_SECONDS = 5.0
STATE_SECONDS = 1.0
SUPERLINK = "superlink"


@dataclass(frozen=True)
class Local:
    """The pieces of a running local deployment."""

    settings: Settings
    processes: Processes
    port: int
    folder: Path  # temporary: keys and Flower's own files
    logs: Path
    keys: KeyDirectory | None

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"127.0.0.1:{self.port}"

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it listens."""
        keys = self.keys
        server = ServerKeys(keys.authority, keys.server, keys.server_key) if keys else None
        log_file = self.logs / f"{SUPERLINK}.log"
        process = self.processes.start(
            SUPERLINK,
            superlink_command("127.0.0.1", self.port, server),
            log_file,
            self._environment(SUPERLINK),
        )
        wait_for_port(self.port, process, log_file, START_SECONDS)

    def start_node(self, number: int) -> None:
        """Start (again) one node of the trial."""
        keys = self.keys
        own = NodeKeys(keys.authority, keys.node_key(number)) if keys else None
        node = {"partition-id": number, "num-partitions": self.settings.nodes}
        name = f"node-{number}"
        command = supernode_command(self.address, free_ports(1)[0], own, node)
        log_file = self.logs / f"{name}.log"
        self.processes.start(name, command, log_file, self._environment(name))

    def control(self) -> Control:
        """A connection to the SuperLink's control interface."""
        return Control(self.address, self.keys.authority if self.keys else None)

    def _environment(self, name: str) -> dict[str, str]:
        home = self.folder / name
        home.mkdir(mode=0o700, exist_ok=True)
        # Quick polling is harmless on loopback.
        return {"FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}


def run_local(
    settings: Settings, insecure: bool = False, client_app: str = CLIENT_APP
) -> RunDirectory:
    """Run a deployment on this machine until it is done."""
    directory = check_trial(settings)
    settings = replace(settings, out=str(directory.path))
    bundle = build_bundle(settings, client_app)
    title = settings.config.scheme.name
    with (
        _interruptible(),
        Display(title, settings.config.run.rounds, directory.path) as display,
    ):
        if insecure:
            display.warn("--insecure: plain text, and nodes are not asked for keys")
        with deployment(settings, insecure) as local:
            _carry_out(local, bundle, display)
    if not directory.summary.exists():
        raise CamuError(f"the run ended without a summary; see {directory.path / 'server.log'}")
    return directory


def check_trial(settings: Settings) -> RunDirectory:
    """Refuse what no trial can carry out; returns the run's directory."""
    if settings.nodes < 1:
        raise InputError(f"--nodes {settings.nodes}: start at least one node")
    if settings.config.fleet.file is not None:
        raise InputError("fleet.file: a trial deals camu's data sets, so it needs fleet.regions")
    directory = RunDirectory(Path(settings.out).absolute())
    check_directory(settings.config, directory, settings.resume)
    return directory


@contextlib.contextmanager
def deployment(settings: Settings, insecure: bool = False) -> Iterator[Local]:
    """The frame of a local deployment: temporary files and processes that end with it."""
    with tempfile.TemporaryDirectory(prefix="camu-deploy-") as name:
        folder = Path(name)  # made with mode 0700
        keys = None if insecure else make_keys(folder / "keys", settings.nodes)
        with Processes(uuid.uuid4().hex) as processes:
            logs = Path(settings.out).absolute() / "logs"
            yield Local(settings, processes, free_ports(1)[0], folder, logs, keys)


def _carry_out(local: Local, bundle: bytes, display: Display) -> None:
    display.say("starting the SuperLink")
    local.start_superlink()
    with local.control() as control:
        display.say("starting the nodes")
        for number in range(local.settings.nodes):
            if local.keys is not None:
                control.register(local.keys.node_public_key(number), f"node-{number}")
            local.start_node(number)
        run = control.start(bundle)
        display.say("waiting for the nodes' reports")
        _follow(local, control, run, display)


def _follow(local: Local, control: Control, run: int, display: Display) -> None:
    """Show the run until it has ended; nodes that die are started again, as systemd would."""
    asked = time.monotonic()
    again: dict[str, float] = {}  # when nodes that died are started again
    while True:
        time.sleep(LOOK_SECONDS)
        display.update()
        for name in local.processes.dead():
            code = local.processes.running[name].returncode
            if name == SUPERLINK:
                raise CamuError(
                    f"the SuperLink has ended (code {code}); go on with: camu deploy local "
                    f"--resume --nodes {local.settings.nodes} --out {local.settings.out}"
                )
            if name not in again:
                display.warn(f"{name} has ended (code {code}) and will be started again")
                again[name] = time.monotonic() + RESTART_SECONDS
            elif time.monotonic() > again[name]:
                del again[name]
                local.start_node(int(name.removeprefix("node-")))
        if time.monotonic() - asked < STATE_SECONDS:
            continue
        asked = time.monotonic()
        if has_ended(control, run, display):
            return


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Clean up after SIGTERM as after Ctrl-C, once and undisturbed.

    The handler is our own, because a shell lets what it starts in the background ignore Ctrl-C.
    Once interrupted, the program is about to end, and further signals are ignored until it has:
    they must not cut short the cleaning or what is said at the end.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        if not interrupted:
            for number, handler in before.items():
                signal.signal(number, handler)
