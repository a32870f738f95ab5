"""The calls of a node to its SuperLink: signed, and repeated while the SuperLink is away.

A question for work is kept at the SuperLink until there is some, so an idle node is silent for
minutes, and works at once. While a run needs the node, it gives a sign of life every half minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import fab_from_proto, message_from_proto, message_to_proto, run_from_proto
from flwr.proto import fleet_pb2, message_pb2
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.inflatable import inflatable_object as objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from camu import __version__
from camu.deploy.array_records import printable
from camu.deploy.flower import HOLD_HEADER, VERSION_HEADER, read_own_bundle
from camu.errors import CamuError, InputError
from camu.files import read_bytes

log = logging.getLogger(__name__)

BUSY_SECONDS = 30.0  # between signs of life while a run needs the node
BUSY_HOLD_SECONDS = 20.0  # of a question for work meanwhile
IDLE_AFTER_SECONDS = 300.0  # without a message
LONGEST_HOLD = 270.0  # a signature is valid for 305 s
LONGEST_PACE, PATIENCE = 1800.0, 2  # of signs of life, as Flower has them
ASK_AGAIN_SECONDS = 3.0  # where the SuperLink does not keep questions
CALL_SECONDS = 30.0
AGAIN_SECONDS, LONGEST_AGAIN_SECONDS = 1.0, 20.0  # between two tries
PART_SECONDS = 30.0  # that the parts of a message may still be on their way
REFUSED, AWAY = (401, 412), (429, 502, 503, 504)
ENDS = 500  # the answer of a SuperLink that ends to a question that it has kept


class RefusedNodeError(CamuError):
    """The SuperLink does not let this node take part."""


class GivenUpError(Exception):
    """The SuperLink wants nothing more of a message, or its parts are not there."""


class _Client(FleetHttpClient):
    """Flower's client, with a question for work that may wait."""

    def wait_for_work(self, node: Node, seconds: float) -> fleet_pb2.PullMessagesResponse:
        self.hold = f"{seconds:.0f}"
        return self._unary_unary(
            path="/v1/fleet/pull-messages",
            rpc_method="/flwr.proto.Fleet/PullMessages",
            request=fleet_pb2.PullMessagesRequest(node=node),
            response_type=fleet_pb2.PullMessagesResponse,
            timeout=seconds + CALL_SECONDS,
        )

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        """Flower's interceptor interface: say how long a question may wait, and camu's version."""
        if isinstance(context.message, fleet_pb2.PullMessagesRequest):
            context.request.headers[HOLD_HEADER] = self.hold
            context.request.headers[VERSION_HEADER] = __version__
        return call_next(context)


class Connection:
    """A node at its SuperLink; a context manager, at whose end the node says goodbye."""

    def __init__(
        self, address: str, authority: Path | None, key: Path | None, idle_seconds: float
    ) -> None:
        """Without a key, and in plain text, the node registers itself."""
        private, public = (generate_key_pairs if key is None else lambda: read_key(key))()
        self.idle_seconds, self.registered = idle_seconds, key is not None
        self._key = public_key_to_bytes(public)
        certificate = None if authority is None else read_bytes(authority, "a certificate")
        self._client: Any = _Client.from_server_address(
            *(address, authority is None, certificate),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(private, public),
            ],
        )
        self._client._interceptors = (*self._client._interceptors, self._client)
        # So that nodes that lost the SuperLink at one moment do not come back at one moment, too.
        self._spread = 0.8 + 0.4 * self._key[-40] / 255
        self._node: Node | None = None
        self._runs: dict[int, Mapping[str, Any]] = {}
        self._away, self._worked = False, -IDLE_AFTER_SECONDS
        self._ended, self._news = threading.Event(), threading.Event()

    def __enter__(self) -> Connection:
        if not self.registered:
            asked = fleet_pb2.RegisterNodeFleetRequest(public_key=self._key)
            self._call(self._client.RegisterNode, asked)
        asked = fleet_pb2.ActivateNodeRequest(
            public_key=self._key, heartbeat_interval=self._idle_pace
        )
        self._node = Node(node_id=self._call(self._client.ActivateNode, asked).node_id)
        log.info("connected as node %s", self._node.node_id)
        threading.Thread(target=self._beat, name="signs of life", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._news.set()
        number = self._node.node_id if self._node else 0
        try:
            self._client.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=number))
            if not self.registered:
                asked = fleet_pb2.UnregisterNodeFleetRequest(node_id=number)
                self._client.UnregisterNode(asked)
        except (httpx.HTTPError, RuntimeError):
            pass  # it is away, or has refused this node
        self._client.close()

    @property
    def busy(self) -> bool:
        """Whether a run has needed this node lately."""
        return time.monotonic() - self._worked < IDLE_AFTER_SECONDS

    @property
    def _idle_pace(self) -> float:
        return min(PATIENCE * self.idle_seconds, LONGEST_PACE)

    def next_message(self) -> Message | None:
        """Ask for work and wait for it; None if there is none for now."""
        asked, busy = time.monotonic(), self.busy
        if not busy:  # on the connection of the questions, without another handshake
            self._call(self._client.SendNodeHeartbeat, self._sign_of_life(self._idle_pace), ENDS)
        held = min(BUSY_HOLD_SECONDS if busy else LONGEST_HOLD, self.idle_seconds)
        found = self._call(lambda node: self._client.wait_for_work(node, held), self._node, ENDS)
        if not found.messages_list:
            least = ASK_AGAIN_SECONDS if busy else self.idle_seconds
            self._ended.wait(max(0.0, least - (time.monotonic() - asked)))
            return None
        self._worked = time.monotonic()
        if not busy:
            self._news.set()
        with _given_up():
            about = message_from_proto(found.messages_list[0]).metadata
            return self._whole(found.message_object_trees[0], about.run_id)

    def run_config(self, run: int) -> Mapping[str, Any]:
        """The table of a run; a foreign bundle is refused."""
        if run not in self._runs:
            with _given_up():
                asked = GetRunRequest(node=self._node, run_id=run)
                facts = run_from_proto(self._call(self._client.GetRun, asked).run)
                wanted = GetFabRequest(node=self._node, hash_str=facts.fab_hash, run_id=run)
                bundle = fab_from_proto(self._call(self._client.GetFab, wanted).fab).content
            self._runs = {run: {**read_own_bundle(bundle), **facts.override_config}}
        return self._runs[run]

    def _whole(self, tree: Any, run: int) -> Message:
        """A message with its content, which comes in parts."""
        parts = {
            part.object_id: self._part(run, part.object_id)
            for part in objects.iterate_object_tree(tree)
        }
        confirmed = message_pb2.ConfirmMessageReceivedRequest(
            node=self._node, run_id=run, message_object_id=tree.object_id
        )
        self._call(self._client.ConfirmMessageReceived, confirmed)
        message = inflate_object_from_contents(tree.object_id, parts)
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    def _part(self, run: int, number: str) -> bytes:
        asked = message_pb2.PullObjectRequest(node=self._node, run_id=run, object_id=number)
        until, pause = time.monotonic() + PART_SECONDS, 0.05
        while True:
            found = self._call(self._client.PullObject, asked)
            if found.object_found and found.object_available:
                return bytes(found.object_content)
            if not found.object_found or time.monotonic() > until:
                raise GivenUpError("a part of a message is not at the SuperLink")
            self._ended.wait(pause)  # the run's server is still sending it
            pause = min(2 * pause, 1.0)

    def reply(self, message: Message, seconds: float) -> None:
        """Send the answer to a message, which took so many seconds."""
        self._worked = time.monotonic()
        message.metadata.__dict__["_message_id"] = message.object_id
        with objects.no_object_id_recompute(), _given_up():
            parts = objects.get_all_nested_objects(message)
            announced = fleet_pb2.PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(message))],
                message_object_trees=[objects.get_object_tree(message)],
                clientapp_runtime_list=[seconds],
            )
            due = self._call(self._client.PushMessages, announced)
            for number in due.objects_to_push:
                sent = message_pb2.PushObjectRequest(
                    node=self._node,
                    run_id=message.metadata.run_id,
                    object_id=number,
                    object_content=parts[number].deflate(),
                    session_id=due.session_id,
                )
                if not self._call(self._client.PushObject, sent).stored:
                    raise GivenUpError("the SuperLink does not wait for it any more")

    def _sign_of_life(self, pace: float) -> SendNodeHeartbeatRequest:
        return SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=pace)

    def _beat(self) -> None:
        """Give signs of life while a run needs the node, also while it trains.

        What goes wrong is seen by the questions for work.
        """
        while True:
            self._news.wait(0.8 * BUSY_SECONDS)
            self._news.clear()
            if self._ended.is_set():
                return
            if self.busy:
                with suppress(httpx.HTTPError, RuntimeError, ValueError):
                    self._client.SendNodeHeartbeat(self._sign_of_life(BUSY_SECONDS))

    def _call(self, call: Callable[[Any], Any], asked: Any, *away: int) -> Any:
        """Call the SuperLink until it answers; it may be away for long.

        `away` are further status codes with which it says so.
        """
        pause = AGAIN_SECONDS
        while True:
            try:
                found = call(asked)
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status in REFUSED:
                    words = f"the SuperLink refuses this node: {refused(error.response)}"
                    raise RefusedNodeError(words) from None
                if status not in (*AWAY, *away):
                    raise
                why = refused(error.response)
            except httpx.TransportError as error:
                why = str(error) or type(error).__name__
            else:
                if self._away:
                    log.info("the SuperLink answers again")
                self._away = False
                return found
            if not self._away:
                log.warning("the SuperLink does not answer (%s); it is asked again", why)
            self._away = True
            if self._ended.wait(pause * self._spread):
                raise GivenUpError("the node ends")
            pause = min(2 * pause, LONGEST_AGAIN_SECONDS)


@contextmanager
def _given_up() -> Iterator[None]:
    """Turn an answer with an error, such as that a run has ended, into the end of one message."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        raise GivenUpError(refused(error.response)) from None


def refused(answer: Any) -> str:
    """The words with which a SuperLink has refused a call."""
    words = " ".join(answer.text.split())
    return printable(words) or f"status {answer.status_code}"


def read_key(path: Path) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    """The key pair of a node."""
    what = "a private key of a node (`camu deploy keys DIR` makes them)"
    try:
        key = load_ssh_private_key(read_bytes(path, what), None)
    except ValueError:
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: is not {what}")
    return key, key.public_key()
