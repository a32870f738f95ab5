"""Control of a SuperLink: register nodes, start a run and follow it to its end."""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from camu.deploy.deployment import Deployment, check_run, make_bundle
from camu.deploy.flower import TOKEN_HEADER, OwnersToken
from camu.deploy.host.keys import CERTIFICATE, read_token, token_path
from camu.deploy.host.processes import INSECURE
from camu.deploy.host.versions import VERSIONS
from camu.deploy.messages import name_some
from camu.deploy.server.mailbox import BINDING
from camu.deploy.status import ACTIVE, EVENTS, read_status
from camu.errors import CamuError, InputError
from camu.files import Tail, read_bytes
from camu.simulation.directory import RunDirectory

UPDATE_SECONDS = 0.3
STATE_SECONDS = 5.0
PATIENCE_SECONDS = 60.0  # how long a SuperLink may be silent, and a stopped server may take to end
UNSHOWN = ("run-started", "run-finished", "run-stopped", "run-failed", "node-new")


class RunState(NamedTuple):
    """A run on a SuperLink: `pending`, `starting`, `running` or `finished`, and then how."""

    run: int
    status: str
    sub_status: str
    started: str = ""
    details: str = ""


class NodeState(NamedTuple):
    """A registered node; its version is empty where it has not asked for work since the start."""

    node: int
    name: str
    status: str
    version: str = ""


class Registration(NamedTuple):
    """The file of a public key, and its name, which of `mailbox.binding` binds it to devices."""

    key: Path
    name: str


class UnreachableError(CamuError):
    """A SuperLink that does not answer."""


class Control:
    """A connection to the control interface of one SuperLink; a context manager."""

    def __init__(self, address: str, authority: Path | None, token: Path | None = None) -> None:
        """Without an authority's certificate the connection is plain text.

        `token` is the file with the owner's token; it is next to the certificate by default.
        """
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        self.address = address
        certificate = None if authority is None else read_bytes(authority, CERTIFICATE)
        secret = read_token(token or token_path(authority))
        owners = OwnersToken(secret)
        self._client: Any = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=certificate is None,
            root_certificates=certificate,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI"), owners],
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if certificate is not None:
            context.load_verify_locations(cadata=certificate.decode())
        self._web = httpx.Client(  # calls that are camu's own
            base_url=f"{'http' if certificate is None else 'https'}://{address}",
            headers={TOKEN_HEADER: secret},
            verify=context,
        )

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._web.close()

    def register(self, public_key: Path, name: str) -> tuple[int, bool]:
        """Let the owner of a key take part; see `register_all`."""
        return next(self.register_all([Registration(public_key, name)]))

    def register_all(self, wanted: Sequence[Registration]) -> Iterator[tuple[int, bool]]:
        """Let the owners of keys take part; gives Flower's id of each node, and whether it is new.

        A key that is already registered stays as it is. All are checked before the first one is
        registered.
        """
        from flwr.proto.control_pb2 import RegisterNodeRequest
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        keys = [public_key_to_bytes(_read_public_key(each.key)) for each in wanted]
        here = {node.public_key: node for node in self._all_nodes()}
        for key, (path, name) in zip(keys, wanted, strict=True):
            if (node := here.get(key)) is not None:
                if node.unregistered_at:
                    raise InputError(f"{path}: was revoked; make and register another key")
                _check_binding(path, node.name, name)
        for key, (path, name) in zip(keys, wanted, strict=True):
            if key in here:
                yield int(here[key].node_id), False
                continue
            with self._explained(f"{path}: cannot be registered"):
                request = RegisterNodeRequest(public_key=key, name=name)
                yield int(self._client.RegisterNode(request).node_id), True

    def revoke(self, which: str) -> int:
        """Let a node take part no longer; `which` is the file of its public key, or its number."""
        from flwr.proto.control_pb2 import UnregisterNodeRequest
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        found = self._registered()
        if which.isdecimal():
            numbers = [node.node_id for node in found if node.node_id == int(which)]
        else:
            key = public_key_to_bytes(_read_public_key(Path(which)))
            numbers = [node.node_id for node in found if node.public_key == key]
        if not numbers:
            raise InputError(f"{which}: is not registered; camu deploy list shows what is")
        with self._explained(f"{which}: cannot be revoked"):
            self._client.UnregisterNode(UnregisterNodeRequest(node_id=numbers[0]))
        return int(numbers[0])

    def start(self, bundle: bytes) -> int:
        """Start a run; returns Flower's id of it."""
        from flwr.common.serde import fab_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        with self._explained("the run cannot be started"):
            return int(self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

    def state(self, run: int) -> RunState:
        """The state of a run."""
        return self._runs("the run's state cannot be read", run_id=run)[0]

    def runs(self) -> list[RunState]:
        """All runs, in the order of their start."""
        return sorted(self._runs("the runs cannot be listed"), key=lambda run: run.started)

    def _runs(self, problem: str, **which: int) -> list[RunState]:
        from flwr.proto.control_pb2 import ListRunsRequest

        with self._explained(problem):
            found = self._client.ListRuns(ListRunsRequest(**which)).run_dict
        return [
            RunState(int(n), s.status, s.sub_status, run.pending_at, s.details)
            for n, run in found.items()
            for s in [run.status]
        ]

    def nodes(self) -> list[NodeState]:
        """The registered nodes."""
        versions = self.versions()["nodes"]
        return [
            NodeState(int(n.node_id), n.name, n.status, versions.get(str(n.node_id), ""))
            for n in self._registered()
        ]

    def versions(self) -> dict[str, Any]:
        """The versions of camu: `superlink`, and `nodes` by their numbers."""
        with self._explained("the versions cannot be read"):
            answer = self._web.get(VERSIONS)
            answer.raise_for_status()
            return dict(answer.json())

    def _registered(self) -> list[Any]:
        return [node for node in self._all_nodes() if not node.unregistered_at]

    def _all_nodes(self) -> list[Any]:
        from flwr.proto.control_pb2 import ListNodesRequest

        with self._explained("the nodes cannot be listed"):
            return list(self._client.ListNodes(ListNodesRequest()).nodes_info)

    def stop(self, run: int) -> None:
        """Stop a run; its directory keeps all complete rounds."""
        from flwr.proto.control_pb2 import StopRunRequest

        known = {each.run: each for each in self.runs()}
        if run not in known:
            raise InputError(f"{run}: there is no such run; camu deploy list shows them")
        if known[run].status == "finished":
            raise InputError(f"{run}: the run has already ended ({known[run].sub_status})")
        with self._explained("the run cannot be stopped"):
            if not self._client.StopRun(StopRunRequest(run_id=run)).success:
                raise CamuError(f"{self.address}: the run {run} cannot be stopped")

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn errors of the connection into one sentence."""
        try:
            yield
        except httpx.HTTPStatusError as error:
            detail = error.response.text.strip()[:300] or error.response.reason_phrase
            code = error.response.status_code
            raise CamuError(f"{self.address}: {what} ({code}: {detail})") from None
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise UnreachableError(f"{self.address}: {what} ({why})") from None


def _check_binding(public_key: Path, before: str, name: str) -> None:
    """Refuse to bind a registered key to other devices: nodes keep what they were given."""
    if name.startswith(BINDING) and name != before:
        bound = before.removeprefix(BINDING) if before.startswith(BINDING) else "no devices"
        raise InputError(
            f"{public_key}: is registered for {bound}, which cannot be changed; make and "
            "register another key"
        )


def _read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    what = "a public key of a node (`camu deploy keys DIR` makes them)"
    try:
        key = load_ssh_public_key(read_bytes(path, what))
    except ValueError:
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError(f"{path}: is not {what}")
    return key


class Display(Protocol):
    """Shows a run in progress."""

    def say(self, state: str) -> None:
        """Show a step before the first round."""

    def warn(self, text: str) -> None:
        """Show a warning."""

    def show(self, status: dict[str, Any]) -> None:
        """Show the status of a run after a round."""


class Follower:
    """Follows a run in the status and the events of its directory, and shows it."""

    def __init__(
        self, out: Path, run: int, display: Display, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.out, self.run, self.display, self.clock = out, run, display, clock
        self.answered_seconds = clock()  # when the SuperLink was last heard
        self.stopped_seconds: float | None = None  # when the run was found to be stopped
        self.events = Tail(out / EVENTS, skip_present=True)
        self.round, self.waiting = -1, ""

    def update(self) -> None:
        """Show what has happened since the last call."""
        for line in self.events.lines():
            event = json.loads(line)
            if event["event"] not in UNSHOWN:
                self.display.warn(event["text"])
        status = self.status()
        if status.get("round", self.round) != self.round:
            self.round = status["round"]
            for kind in ("silent", "refused"):  # devices that the round did without
                if names := (status.get("last_round") or {}).get(kind, []):
                    what = f"round {self.round}: {kind}: {name_some(names)} (server.log says why)"
                    self.display.warn(what)
            self.display.show(status)
        waiting = name_some(status.get("waiting_for", []))
        if waiting and (until := status.get("waiting_until")):
            waiting += time.strftime(", until %H:%M:%S at most", time.localtime(until))
        if waiting and waiting != self.waiting:
            self.display.say(f"waiting for {waiting}")
        self.waiting = waiting

    def status(self) -> dict[str, Any]:
        """The status of this run; empty before its server has written one."""
        try:
            status = read_status(self.out)
        except CamuError:
            return {}
        return status if status.get("run") == str(self.run) else {}

    def follow(
        self, control: Control, seconds: float, look: Callable[[], None] = lambda: None
    ) -> None:
        """Show the run until it has ended, which is asked after every so many seconds.

        `look` is called in between, and may end the following with an error.
        """
        asked = self.clock()
        while True:
            time.sleep(UPDATE_SECONDS)
            self.update()
            look()
            if self.clock() - asked >= seconds:
                asked = self.clock()
                if self.has_ended(control):
                    return

    def has_ended(self, control: Control) -> bool:
        """Whether the run is over, completed or stopped; for one that failed, raises its error.

        The run goes on while the SuperLink is silent, and so does this.
        """
        try:
            state = control.state(self.run)
        except UnreachableError:
            if self.clock() - self.answered_seconds > PATIENCE_SECONDS:
                raise
            return False
        self.answered_seconds = self.clock()
        if state.status != "finished":
            return False
        self.update()
        if state.sub_status == "stopped":  # its server still keeps the model
            if self.stopped_seconds is None:
                self.stopped_seconds = self.clock()
            late = self.clock() - self.stopped_seconds > PATIENCE_SECONDS
            return late or self.status().get("state") not in ACTIVE
        if state.sub_status != "completed":
            why = self.status().get("error") or state.details or state.sub_status
            raise CamuError(f"the run has failed: {why}")
        return True


def run_remote(
    deployment: Deployment, address: str, authority: Path | None, display: Display
) -> RunDirectory:
    """Start a run and show it until it has ended; without an authority, in plain text."""
    directory = check_run(deployment).directory
    bundle = make_bundle(deployment.with_shape())
    with Control(address, authority) as control:
        if authority is None:
            display.warn(INSECURE)
        follower = Follower(directory.path, control.start(bundle), display)
        display.say("waiting for the nodes' reports")
        follower.follow(control, STATE_SECONDS)
    return directory
