"""Control of a SuperLink: register nodes, start a run and follow it to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from camu.deploy.claims import BINDING
from camu.deploy.deployment import Deployment, make_bundle, make_deployable_scheme
from camu.deploy.flower_compat import ControlClient
from camu.deploy.host.certificates import end_of
from camu.deploy.host.keys import read_token, token_path
from camu.deploy.tail import Tail
from camu.deploy.watching import Alarm, Watcher, read_status
from camu.errors import CamuError, InputError
from camu.simulation.directory import RunDirectory, check_directory
from camu.simulation.history import Record
from camu.simulation.starting import read_start


@dataclass(frozen=True)
class RunState:
    """The state of a run: `pending`, `starting`, `running` or `finished`, and then how."""

    status: str
    sub_status: str
    details: str


@dataclass(frozen=True)
class Registration:
    """A registered node: Flower's id of it, and whether it was registered just now."""

    node: int
    new: bool


@dataclass(frozen=True)
class NodeState:
    """A registered node."""

    node: int
    name: str
    status: str


@dataclass(frozen=True)
class RunListing:
    """A run on a SuperLink."""

    run: int
    status: str
    sub_status: str
    started: str


class UnreachableError(CamuError):
    """A SuperLink that does not answer."""


class Control:
    """A connection to one SuperLink; a context manager."""

    def __init__(self, address: str, authority: Path | None, token: Path | None = None) -> None:
        """Without an authority's certificate the connection is plain text.

        `token` is the file with the owner's token; it is next to the certificate by default.
        """
        self.address = address
        try:
            certificate = authority.read_bytes() if authority is not None else None
        except OSError as error:
            raise InputError(f"{authority}: cannot be read ({error.strerror})") from None
        owners = read_token(token or token_path(authority))
        self._client = ControlClient(address, certificate, owners)

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def register(self, public_key: Path, name: str) -> Registration:
        """Let the owner of a key take part; a key that is already registered stays as it is.

        A name that `camu.deploy.claims.binding` made binds the key to devices.
        """
        key = _read_public_key(public_key)
        with self._explained(f"{public_key}: cannot be registered"):
            known = self._client.registered_node(key)
            if known is not None:
                self._check_binding(public_key, known, name)
                return Registration(known, new=False)
            return Registration(self._client.register_node(key, name), new=True)

    def _check_binding(self, public_key: Path, node: int, name: str) -> None:
        """Refuse to bind a registered key to other devices: nodes keep what they were given."""
        (before,) = [each.name for each in self.nodes() if each.node == node]
        if name.startswith(BINDING) and name != before:
            bound = before.removeprefix(BINDING) if before.startswith(BINDING) else "no devices"
            raise InputError(
                f"{public_key}: is registered for {bound}, which cannot be changed; make and "
                "register another key"
            )

    def start(self, bundle: bytes) -> int:
        """Start a run; returns Flower's id of it."""
        with self._explained("the run cannot be started"):
            return self._client.start_run(bundle)

    def state(self, run: int) -> RunState:
        """The state of a run."""
        with self._explained("the run's state cannot be read"):
            return RunState(*self._client.run_status(run))

    def nodes(self) -> list[NodeState]:
        """The registered nodes."""
        with self._explained("the nodes cannot be listed"):
            return [NodeState(*node) for node in self._client.nodes()]

    def runs(self) -> list[RunListing]:
        """All runs, in the order of their start."""
        with self._explained("the runs cannot be listed"):
            return [RunListing(*run) for run in self._client.runs()]

    def stop(self, run: int) -> None:
        """Stop a run; its directory keeps all complete rounds."""
        known = {each.run: each for each in self.runs()}
        if run not in known:
            raise InputError(f"{run}: there is no such run; camu deploy list shows them")
        if known[run].status == "finished":
            raise InputError(f"{run}: the run has already ended ({known[run].sub_status})")
        with self._explained("the run cannot be stopped"):
            if not self._client.stop_run(run):
                raise CamuError(f"{self.address}: the run {run} cannot be stopped")

    def _explained(self, what: str) -> AbstractContextManager[None]:
        return _explained(f"{self.address}: {what}")


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn errors of the connection into one sentence."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        detail = error.response.text.strip()[:300] or error.response.reason_phrase
        raise CamuError(f"{what} ({error.response.status_code}: {detail})") from None
    except httpx.HTTPError as error:
        raise UnreachableError(f"{what} ({str(error) or type(error).__name__})") from None


def _read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError(
            f"{path}: is not a public key of a node; `camu deploy keys DIR` makes them"
        )
    return key


UPDATE_SECONDS = 0.5
STATE_SECONDS = 5.0
PATIENCE_SECONDS = 60.0  # how long a busy SuperLink may leave its follower without an answer
INSECURE = "--insecure: plain text, and nodes are not asked for keys"


class Display(Protocol):
    """Shows a run in progress."""

    def say(self, state: str) -> None:
        """Show a step before the first round."""

    def warn(self, text: str) -> None:
        """Show a warning."""

    def show(self, record: Record) -> None:
        """Show a round that has ended."""


class Follower:
    """Follows a run in its directory, and shows its rounds and the server's warnings."""

    def __init__(
        self, out: Path, display: Display, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.display, self.clock = display, clock
        self.answered_seconds = clock()
        self.rounds = Tail(out / "rounds.jsonl")
        self.server = Tail(out / "server.log", skip_present=True)
        self.error = ""  # the last error of the server
        self.out, self.waiting = out, ""  # the devices that were last waited for

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
        self._show_waiting()

    def _show_waiting(self) -> None:
        """Name the devices that the run waits for."""
        try:
            names = read_status(self.out).get("waiting_for", [])
        except CamuError:
            return
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        waiting = ", ".join(map(str, names[:5])) + more
        if waiting and waiting != self.waiting:
            self.display.say(f"waiting for {waiting}")
        self.waiting = waiting

    def has_ended(self, control: Control, run: int) -> bool:
        """Whether a run is over; for a run that failed, raises the server's last error.

        A SuperLink that does not answer for a while does not end the run, so nor its following.
        """
        try:
            state = control.state(run)
        except UnreachableError:
            if self.clock() - self.answered_seconds > PATIENCE_SECONDS:
                raise
            return False
        self.answered_seconds = self.clock()
        if state.status != "finished":
            return False
        self.update()
        if state.sub_status == "stopped":
            raise CamuError("the run was stopped; continue it with --resume")
        if state.sub_status != "completed":
            why = self.error or state.details or state.sub_status
            raise CamuError(f"the run has failed: {why}")
        return True


def run_remote(
    deployment: Deployment,
    address: str,
    authority: Path | None,
    display: Display,
    alarm: Alarm | None = None,
) -> RunDirectory:
    """Start a run and show it until it has ended; without an authority, in plain text."""
    make_deployable_scheme(deployment.config)
    directory = RunDirectory(Path(deployment.out))
    deployment = deployment.with_shape()
    first = read_start(Path(deployment.start), deployment.config) if deployment.start else None
    check_directory(deployment.config, directory, deployment.resume, first)
    bundle = make_bundle(deployment)
    follower = Follower(directory.path, display)
    watcher = Watcher(directory.path, alarm, lambda: [end_of(authority)] if authority else [])
    with Control(address, authority) as control:
        if authority is None:
            display.warn(INSECURE)
        run = control.start(bundle)
        display.say("waiting for the nodes' reports")
        try:
            while not follower.has_ended(control, run):
                deadline = time.monotonic() + STATE_SECONDS
                while time.monotonic() < deadline:
                    time.sleep(UPDATE_SECONDS)
                    follower.update()
                    watcher.update()
        finally:
            watcher.update()
    return directory
