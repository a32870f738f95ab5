"""Calls of nodes to a guard, signed as Flower's nodes sign theirs, without a network."""

from __future__ import annotations

import asyncio
import base64
import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from flwr.supercore.primitives.asymmetric import (
    generate_key_pairs,
    public_key_to_bytes,
    sign_message,
)

from camu.deploy.host.guard import Registered

TOKEN = "a" * 64
OWN = {"x-camu-token": TOKEN}


@dataclass
class SignedNode:
    """A node with a key."""

    number: int
    keys: Any = field(default_factory=generate_key_pairs)

    @property
    def public(self) -> bytes:
        return public_key_to_bytes(self.keys[1])

    @property
    def registration(self) -> dict[bytes, Registered]:
        return {self.public: Registered(self.number, self.keys[1])}

    def headers(self, late_seconds: float = 0.0) -> dict[str, str]:
        moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=late_seconds)
        stamp = moment.isoformat()
        return {
            "flwr-public-key": base64.b64encode(self.public).decode(),
            "flwr-timestamp": stamp,
            "flwr-signature": base64.b64encode(sign_message(self.keys[0], stamp.encode())).decode(),
        }


def scope(
    path: str,
    headers: Mapping[str, str] | list[tuple[str, str]],
    size: int | str | None = 0,
    host: str | None = "192.0.2.9",
    method: str = "POST",
) -> dict[str, Any]:
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    pairs += [] if size is None else [("content-length", str(size))]
    pairs += [("content-type", "application/protobuf")]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "client": None if host is None else (host, 1234),
        "headers": [(name.encode(), value.encode()) for name, value in pairs],
    }


class Caller:
    """The client's end of one call: gives the body, and keeps the answer."""

    def __init__(self, *parts: bytes, then_wait: bool = False) -> None:
        self.parts, self.then_wait = list(parts), then_wait
        self.asked = 0
        self.answer: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        if not self.parts:
            await asyncio.Event().wait()
        part = self.parts.pop(0)
        return {
            "type": "http.request",
            "body": part,
            "more_body": bool(self.parts) or self.then_wait,
        }

    async def send(self, event: dict[str, Any]) -> None:
        self.answer.append(event)

    @property
    def status(self) -> int | None:
        return next((part["status"] for part in self.answer if "status" in part), None)

    @property
    def text(self) -> str:
        return b"".join(part.get("body", b"") for part in self.answer).decode()


class Inner:
    """The application behind a guard: keeps the bodies of the calls that reach it."""

    def __init__(self, *answers: bytes) -> None:
        self.answers: list[bytes] = list(answers)
        self.bodies: list[bytes] = []
        self.paths: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.paths.append(scope["path"])
        self.bodies.append((await receive())["body"])
        body = self.answers.pop(0) if self.answers else b""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


def activate(public: bytes) -> bytes:
    return bytes(ActivateNodeRequest(public_key=public).SerializeToString())


def pull(node: int) -> bytes:
    return bytes(PullMessagesRequest(node=Node(node_id=node)).SerializeToString())


def reply(node: int, source: int, to: str, padding: int = 0) -> bytes:
    """The announcement of a reply."""
    about = Metadata(src_node_id=source, reply_to_message_id=to)
    return bytes(
        PushMessagesRequest(
            node=Node(node_id=node),
            messages_list=[Message(metadata=about)],
            message_object_trees=[ObjectTree(object_id="x" * padding)],
        ).SerializeToString()
    )


def piece(node: int, size: int) -> bytes:
    return bytes(
        PushObjectRequest(node=Node(node_id=node), object_content=b"x" * size).SerializeToString()
    )


def message(number: str, node: int, ttl: float = 60.0) -> bytes:
    """A message of a run's server to a node."""
    about = Metadata(message_id=number, dst_node_id=node, ttl=ttl)
    return bytes(
        PushAppMessagesRequest(messages_list=[Message(metadata=about)]).SerializeToString()
    )
