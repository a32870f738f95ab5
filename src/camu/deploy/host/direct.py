"""The calls that carry messages go straight to Flower's handlers, without its middleware.

Eight layers of middleware cost several times what a handler does, and a message takes a dozen
calls. The guard has checked who calls. What is not listed here goes the usual way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.error.http import http_error_translator
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.superlink.servicer.fleet import fleet_handlers as fleet
from flwr.superlink.servicer.runtime import runtime_handlers as runtime
from starlette.requests import Request

Handler = Callable[[Request, Any, Any], Any]  # HTTP request, call, state


def _with_store(handler: Callable[[Any, Any, Any], Any]) -> Handler:
    return lambda _, call, state: handler(call, state, state.object_store)


def _of_node(handler: Callable[[Any, Any], Any]) -> Handler:
    return lambda _, call, state: handler(call, state)


def _of_server(handler: Callable[[Any, Any, Any], Any]) -> Handler:
    """A call of a run's server, which has the token of a task."""

    def handle(request: Request, call: Any, state: Any) -> Any:
        token = request.headers.get(TASK_TOKEN_HEADER)
        return handler(call, state, authenticate_task(request, token, state))

    return handle


HANDLERS: dict[str, Handler] = {
    "/v1/fleet/pull-messages": _with_store(fleet.pull_messages),
    "/v1/fleet/push-messages": _of_node(fleet.push_messages),
    "/v1/fleet/pull-object": _of_node(fleet.pull_object),
    "/v1/fleet/push-object": _of_node(fleet.push_object),
    "/v1/fleet/confirm-message-received": _with_store(fleet.confirm_message_received),
    "/v1/runtime/pull-messages": _of_server(runtime.pull_messages),
    "/v1/runtime/push-messages": _of_server(runtime.push_messages),
    "/v1/runtime/pull-object": _of_server(runtime.pull_object),
    "/v1/runtime/push-object": _of_server(runtime.push_object),
    "/v1/runtime/confirm-message-received": _of_server(runtime.confirm_message_received),
    "/v1/runtime/get-nodes": _of_server(runtime.get_nodes),
}


@dataclass(frozen=True)
class Direct:
    """An ASGI app: Flower's own, with a short way for the calls that carry messages."""

    app: Any  # Flower's

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a call."""
        post = scope["type"] == "http" and scope.get("method") == "POST"
        handler = HANDLERS.get(scope["path"]) if post else None
        if handler is None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        call = PROTOBUF_REQUEST_TYPES["POST", scope["path"]]()
        body = await request.body()

        def work() -> bytes:
            call.ParseFromString(body)
            state = self.app.state.linkstate_factory.state()
            return bytes(handler(request, call, state).SerializeToString(deterministic=True))

        try:
            answer = await asyncio.to_thread(work)
        except Exception as error:
            await _refuse(error, request, send)
            return
        headers = [
            (b"content-type", PROTOBUF_MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(answer)),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


async def _refuse(error: Exception, request: Request, send: Any) -> None:
    """Answer with an error as Flower does."""

    async def fail(_: Any) -> Any:
        raise error

    response = await http_error_translator(request, fail)
    await response(request.scope, request.receive, send)
