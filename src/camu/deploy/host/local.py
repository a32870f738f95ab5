"""A whole deployment on this machine: SuperLink, nodes and a run, over loopback with TLS and keys.

However it ends, only the run directory is left: all processes are ended, and the temporary
directory with the keys and Flower's own files is removed.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from camu.deploy.deployment import (
    Deployment,
    check_run,
    make_bundle,
    named_code,
    with_absolute_paths,
)
from camu.deploy.host.control import Control, Display, Follower
from camu.deploy.host.keys import KeyDirectory, make_keys
from camu.deploy.host.node import Options, node_command, node_environment
from camu.deploy.host.processes import (
    INSECURE,
    Processes,
    temporary_folder,
    wait_for_port,
)
from camu.deploy.host.superlink import superlink_command
from camu.errors import CamuError, InputError
from camu.simulation.directory import RunDirectory
from camu.world import build_world, with_data

START_SECONDS = 300.0
RESTART_SECONDS = 5.0
STATE_SECONDS = 1.0
SUPERLINK = "superlink"


@dataclass(frozen=True)
class LocalDeployment:
    """The pieces of a running local deployment."""

    deployment: Deployment
    processes: Processes
    listener: socket.socket  # bound, so that nobody else can take its port before the SuperLink
    port: int
    folder: Path  # temporary: keys and Flower's own files
    logs: Path
    keys: KeyDirectory | None

    @property
    def address(self) -> str:
        """The address on which the SuperLink listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def token(self) -> Path:
        """The file with the token that the SuperLink's control interface asks for."""
        return self.keys.token if self.keys else self.folder / "control.token"

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it listens."""
        command = superlink_command("127.0.0.1", self.port, self.keys, token=self.token)
        process = self._start(SUPERLINK, command, self.listener)
        self.listener.close()  # the SuperLink has its own copy
        wait_for_port(self.port, process, self.logs / f"{SUPERLINK}.log", START_SECONDS)

    def start_node(self, number: int) -> None:
        """Start (again) one node of the trial."""
        keys = self.keys
        authority, key = (keys.authority, keys.node_key(number)) if keys else (None, None)
        table: Options = {
            "partition-id": number,
            "num-partitions": self.deployment.nodes,
            "state": str(Path(self.deployment.out).absolute() / "node-state" / str(number)),
            # Who starts the run owns all nodes, and allows what its configuration names.
            "allow": ",".join(name for _, name in named_code(self.deployment.config)),
        }
        self._start(f"node-{number}", node_command(self.address, authority, key, table))

    def _start(
        self, name: str, command: list[str], listener: socket.socket | None = None
    ) -> subprocess.Popen[bytes]:
        home = self.folder / name
        home.mkdir(mode=0o700, exist_ok=True)
        environment = {**node_environment(), "FLWR_HOME": str(home)}
        log = self.logs / f"{name}.log"
        return self.processes.start(name, command, log, environment, listener)

    def control(self) -> Control:
        """A connection to the SuperLink's control interface."""
        return Control(self.address, self.keys.authority if self.keys else None, self.token)


def run_local(deployment: Deployment, display: Display, insecure: bool = False) -> RunDirectory:
    """Run a deployment on this machine until it has ended."""
    out = str(Path(deployment.out).absolute())
    config = with_absolute_paths(deployment.config)
    deployment = replace(deployment, config=config, out=out)
    directory = check_trial(deployment)
    if insecure and deployment.is_secure:
        raise InputError(
            "--insecure: nodes without keys cannot sign those of secure sums; leave it out, or "
            "training.secure_sum"
        )
    with _interruptible():
        if insecure:
            display.warn(INSECURE)
        with open_local(deployment, insecure) as local:
            _carry_out(local, make_bundle(deployment), display)
    if not directory.summary.exists():
        raise CamuError(f"the run ended without a summary; see {directory.path / 'server.log'}")
    return directory


def check_trial(deployment: Deployment) -> RunDirectory:
    """Refuse a deployment that cannot be tried on one machine; returns the run's directory."""
    if deployment.nodes < 1:
        raise InputError(f"--nodes {deployment.nodes}: start at least one node")
    directory = check_run(deployment).directory
    if deployment.config.fleet.file is not None:  # wrong files are refused before nodes start
        with_data(build_world(deployment.config))
    return directory


@contextlib.contextmanager
def open_local(deployment: Deployment, insecure: bool = False) -> Iterator[LocalDeployment]:
    """A local deployment before anything runs; its files and processes end with the context."""
    with temporary_folder() as folder:
        keys = None if insecure else make_keys(folder / "keys", deployment.nodes)
        with Processes() as processes, socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = int(listener.getsockname()[1])
            logs = Path(deployment.out).absolute() / "logs"
            yield LocalDeployment(deployment, processes, listener, port, folder, logs, keys)


def _carry_out(local: LocalDeployment, bundle: bytes, display: Display) -> None:
    display.say("starting the SuperLink")
    local.start_superlink()
    with local.control() as control:
        display.say("starting the nodes")
        for number in range(local.deployment.nodes):
            if local.keys is not None:
                control.register(local.keys.node_public_key(number), f"node-{number}")
            local.start_node(number)
        follower = Follower(Path(local.deployment.out), control.start(bundle), display)
        display.say("waiting for the nodes' reports")
        again: dict[str, float] = {}  # when nodes that died are started again
        try:
            follower.follow(control, STATE_SECONDS, lambda: _restart(local, display, again))
        finally:
            follower.update()


def _restart(local: LocalDeployment, display: Display, again: dict[str, float]) -> None:
    """Start nodes that died again after a while, as systemd would do."""
    for name in local.processes.dead():
        code = local.processes.running[name].returncode
        if name == SUPERLINK:
            raise CamuError(
                f"the SuperLink has ended (code {code}); continue with: camu deploy local "
                f"--resume --nodes {local.deployment.nodes} --out {local.deployment.out}"
            )
        if name not in again:
            display.warn(f"{name} has ended (code {code}) and will be started again")
            again[name] = time.monotonic() + RESTART_SECONDS
        elif time.monotonic() > again[name]:
            del again[name]
            local.start_node(int(name.removeprefix("node-")))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Clean up after SIGTERM as after Ctrl-C, once and without interruption.

    The handler is set here, because a shell makes background programs ignore Ctrl-C. After the
    first signal, further ones are ignored until the program has ended: they must not cut short the
    cleaning or the last message.
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
