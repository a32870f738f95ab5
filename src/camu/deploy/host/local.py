"""A whole deployment on this machine: SuperLink, nodes and a run, over loopback with TLS and keys.

However it ends, only the run directory is left: all processes are ended, and the temporary
directory with the keys and Flower's own files is removed.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from camu.config import Config
from camu.deploy.allowed import named_code
from camu.deploy.deployment import Deployment, make_bundle, make_deployable_scheme
from camu.deploy.host.control import INSECURE, Control, Display, Follower
from camu.deploy.host.keys import KeyDirectory, NodeKeys, ServerKeys, make_keys
from camu.deploy.host.processes import Processes, free_ports, wait_for_port
from camu.deploy.host.superlink import superlink_command
from camu.deploy.host.supernode import supernode_command
from camu.deploy.host.temporary import temporary_folder
from camu.errors import CamuError, InputError
from camu.simulation.directory import INPUT_FILES, RunDirectory, check_directory
from camu.world import build_world, with_data

log = logging.getLogger(__name__)

START_SECONDS = 300.0
UPDATE_SECONDS = 0.3
RESTART_SECONDS = 5.0
STATE_SECONDS = 1.0
POLL_SECONDS_PER_NODE = 0.05  # 20 calls per second, of all nodes together
SUPERLINK = "superlink"


@dataclass(frozen=True)
class LocalDeployment:
    """The pieces of a running local deployment."""

    deployment: Deployment
    processes: Processes
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
        keys = self.keys
        server = ServerKeys(keys.authority, keys.server, keys.server_key) if keys else None
        log_file = self.logs / f"{SUPERLINK}.log"
        process = self.processes.start(
            SUPERLINK,
            superlink_command("127.0.0.1", self.port, server, token=self.token),
            log_file,
            self._environment(SUPERLINK),
        )
        wait_for_port(self.port, process, log_file, START_SECONDS)

    def start_node(self, number: int) -> None:
        """Start (again) one node of the trial."""
        keys = self.keys
        own = NodeKeys(keys.authority, keys.node_key(number)) if keys else None
        # Who starts the run is the owner of all nodes, and allows what its configuration names.
        allow = ",".join(name for _, name in named_code(self.deployment.config))
        count = self.deployment.nodes
        node: dict[str, str | int | float] = {"partition-id": number, "num-partitions": count}
        node["allow"] = allow
        name = f"node-{number}"
        command = supernode_command(self.address, own, node)
        log_file = self.logs / f"{name}.log"
        self.processes.start(name, command, log_file, self._environment(name))

    def control(self) -> Control:
        """A connection to the SuperLink's control interface."""
        return Control(self.address, self.keys.authority if self.keys else None, self.token)

    def _environment(self, name: str) -> dict[str, str]:
        home = self.folder / name
        home.mkdir(mode=0o700, exist_ok=True)
        # How often an executor asks for tasks. Quick polling is harmless on loopback, but the calls
        # of many nodes would keep a core busy.
        pause_seconds = max(0.1, POLL_SECONDS_PER_NODE * self.deployment.nodes)
        return {"FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": f"{pause_seconds:g}"}


def run_local(deployment: Deployment, display: Display, insecure: bool = False) -> RunDirectory:
    """Run a deployment on this machine until it has ended."""
    deployment = replace(deployment, config=_with_absolute_paths(deployment.config))
    directory = check_trial(deployment)
    deployment = replace(deployment, out=str(directory.path))
    bundle = make_bundle(deployment)
    follower = Follower(directory.path, display)
    with _interruptible():
        if insecure:
            display.warn(INSECURE)
        try:
            with open_local(deployment, insecure) as local:
                _carry_out(local, bundle, follower)
        finally:
            follower.update()
    if not directory.summary.exists():
        raise CamuError(f"the run ended without a summary; see {directory.path / 'server.log'}")
    return directory


def _with_absolute_paths(config: Config) -> Config:
    """The configuration for processes that run in other directories."""
    values = config.flat()
    given = {key: values[key] for key in INPUT_FILES if values[key] is not None}
    return config.replace({key: str(Path(path).absolute()) for key, path in given.items()})


def check_trial(deployment: Deployment) -> RunDirectory:
    """Refuse a deployment that cannot be tried on one machine; returns the run's directory."""
    if deployment.nodes < 1:
        raise InputError(f"--nodes {deployment.nodes}: start at least one node")
    make_deployable_scheme(deployment.config)
    if deployment.config.fleet.file is not None:  # wrong files are refused before nodes start
        with_data(build_world(deployment.config))
    directory = RunDirectory(Path(deployment.out).absolute())
    check_directory(deployment.config, directory, deployment.resume)
    return directory


@contextlib.contextmanager
def open_local(deployment: Deployment, insecure: bool = False) -> Iterator[LocalDeployment]:
    """A local deployment before anything runs; its files and processes end with the context."""
    with temporary_folder() as folder:
        keys = None if insecure else make_keys(folder / "keys", deployment.nodes)
        with Processes(uuid.uuid4().hex) as processes:
            logs = Path(deployment.out).absolute() / "logs"
            yield LocalDeployment(deployment, processes, free_ports(1)[0], folder, logs, keys)


def _carry_out(local: LocalDeployment, bundle: bytes, follower: Follower) -> None:
    display = follower.display
    display.say("starting the SuperLink")
    local.start_superlink()
    with local.control() as control:
        display.say("starting the nodes")
        for number in range(local.deployment.nodes):
            if local.keys is not None:
                control.register(local.keys.node_public_key(number), f"node-{number}")
            local.start_node(number)
        run = control.start(bundle)
        display.say("waiting for the nodes' reports")
        _follow(local, control, run, follower)


def _follow(local: LocalDeployment, control: Control, run: int, follower: Follower) -> None:
    """Show the run until it has ended; nodes that die are started again, as by systemd."""
    asked = time.monotonic()
    again: dict[str, float] = {}  # when nodes that died are started again
    while True:
        time.sleep(UPDATE_SECONDS)
        follower.update()
        for name in local.processes.dead():
            code = local.processes.running[name].returncode
            if name == SUPERLINK:
                raise CamuError(
                    f"the SuperLink has ended (code {code}); continue with: camu deploy local "
                    f"--resume --nodes {local.deployment.nodes} --out {local.deployment.out}"
                )
            if name not in again:
                follower.display.warn(f"{name} has ended (code {code}) and will be started again")
                again[name] = time.monotonic() + RESTART_SECONDS
            elif time.monotonic() > again[name]:
                del again[name]
                local.start_node(int(name.removeprefix("node-")))
        if time.monotonic() - asked < STATE_SECONDS:
            continue
        asked = time.monotonic()
        if follower.has_ended(control, run):
            return


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
