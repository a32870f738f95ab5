"""Self-tests of a SuperLink before any node is let in: what must be refused is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from camu.deploy.flower import PINNED, unlogged
from camu.deploy.host.guard import PUSH, Guard, Registered
from camu.errors import CamuError


def check_guarded(app: Any) -> None:
    """A SuperLink's app must refuse a call of its control interface without a token."""
    if answer(app, "/v1/control/list-nodes", b"", {}) != 403:
        raise CamuError(f"the self-test failed: the control interface is open; {PINNED}")


def check_nodes_apart(inner: Any) -> None:
    """An unsigned call, and a message in another node's name, must not reach Flower's app.

    The call is signed as Flower's nodes sign theirs, with a new key that only this test registers.
    """
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    private, public = generate_key_pairs()
    app = Guard(inner, "", lambda: {public_key_to_bytes(public): Registered(1, public)})
    context = SimpleNamespace(request=SimpleNamespace(headers={}))
    NodeAuthHttpInterceptor(private, public).intercept(context, lambda _: None)  # type: ignore
    signed = context.request.headers

    def push(node: int, source: int) -> bytes:
        message = Message(metadata=Metadata(src_node_id=source))
        call = PushMessagesRequest(
            node=Node(node_id=node), messages_list=[message], message_object_trees=[ObjectTree()]
        )
        return bytes(call.SerializeToString())

    for body, headers, expected in (
        (push(1, 1), {}, 401),
        (push(2, 2), signed, 401),
        (push(1, 2), signed, 403),
    ):
        if answer(app, PUSH, body, headers) != expected:
            raise CamuError(f"the self-test failed: nodes can speak for others; {PINNED}")


def answer(app: Any, path: str, body: bytes, headers: Mapping[str, str]) -> int | None:
    """The status with which an app answers a call from this machine; None if it does not."""
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(event: dict[str, Any]) -> None:
        answers.append(event.get("status"))

    sent = {"content-length": str(len(body)), "content-type": "application/protobuf", **headers}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 1),
    }
    with unlogged(), contextlib.suppress(Exception):  # whatever else it does, it did not refuse
        asyncio.run(app(scope, receive, send))
    return answers[0] if answers else None
