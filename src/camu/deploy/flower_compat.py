"""All uses of Flower's internals: what to check when Flower is upgraded.

Flower's public API has no way to control a SuperLink from Python, to run tasks in forked processes,
to keep the code of bundles out, or to close interfaces to other users. The functions here and in
flower_tasks import Flower's own modules and replace some of their functions. The version of Flower
is pinned for that reason.

Imports are deferred, because each program needs a part of Flower and all of it is slow to import.
"""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from camu.deploy.bundles import read_bundle
from camu.deploy.reports import Refusal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.supercore.control import ControlHttpClient


log = logging.getLogger(__name__)

TOKEN_HEADER = "x-camu-token"  # a name, no secret  # nosec B105


def build_bundle(project_file: str) -> bytes:
    """The Flower app with this pyproject.toml, as the bundle that a SuperLink takes."""
    from flwr.cli.build import build_fab_from_files

    content, _ = build_fab_from_files({"pyproject.toml": project_file.encode()})
    return content


class OwnersToken:
    """Adds the owner's token to a client's calls."""

    def __init__(self, token: str) -> None:
        self.token = token

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        """Send a request with the token."""
        context.request.headers[TOKEN_HEADER] = self.token
        return call_next(context)


class ControlClient:
    """Calls of a SuperLink's control interface; errors are those of httpx."""

    def __init__(self, address: str, certificate: bytes | None, token: str) -> None:
        """Without an authority's certificate the connection is plain text."""
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        self._client: ControlHttpClient = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=certificate is None,
            root_certificates=certificate,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="flwr CLI"),
                OwnersToken(token),
            ],
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def registered_node(self, key: ec.EllipticCurvePublicKey) -> int | None:
        """The id of the node with this public key; None if it is not registered."""
        from flwr.proto.control_pb2 import ListNodesRequest
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        wanted = public_key_to_bytes(key)
        for node in self._client.ListNodes(ListNodesRequest()).nodes_info:
            if node.public_key == wanted and not node.unregistered_at:
                return int(node.node_id)
        return None

    def register_node(self, key: ec.EllipticCurvePublicKey, name: str) -> int:
        """Register a node's public key; returns the node's id."""
        from flwr.proto.control_pb2 import RegisterNodeRequest
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        request = RegisterNodeRequest(public_key=public_key_to_bytes(key), name=name)
        return int(self._client.RegisterNode(request).node_id)

    def start_run(self, bundle: bytes) -> int:
        """Start a run of an app; returns the run's id."""
        from flwr.common.serde import fab_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        return int(self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

    def nodes(self) -> list[tuple[int, str, str]]:
        """Id, name and status of the registered nodes."""
        from flwr.proto.control_pb2 import ListNodesRequest

        return [
            (int(node.node_id), node.name, node.status)
            for node in self._client.ListNodes(ListNodesRequest()).nodes_info
            if not node.unregistered_at
        ]

    def runs(self) -> list[tuple[int, str, str, str]]:
        """Id, status, sub-status and time of the start of all runs."""
        from flwr.proto.control_pb2 import ListRunsRequest

        found = self._client.ListRuns(ListRunsRequest()).run_dict
        return [
            (int(number), run.status.status, run.status.sub_status, run.pending_at)
            for number, run in sorted(found.items(), key=lambda item: item[1].pending_at)
        ]

    def stop_run(self, run: int) -> bool:
        """Stop a run; whether it was stopped."""
        from flwr.proto.control_pb2 import StopRunRequest

        return bool(self._client.StopRun(StopRunRequest(run_id=run)).success)

    def run_status(self, run: int) -> tuple[str, str, str]:
        """The run's status, its sub-status and details."""
        from flwr.proto.control_pb2 import ListRunsRequest

        found = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        return found.status, found.sub_status, found.details


def run_superlink(
    arguments: list[str],
    guard: Callable[[Any], Any],
    tls_connection: type[ssl.SSLObject],
    start_executor: Callable[[str, str | None], object],
) -> None:
    """Run Flower's SuperLink with a guard around its ASGI app and camu's own executor."""
    for name in ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API"):
        os.environ.pop(name, None)  # further interfaces, which nothing guards
    ssl.SSLContext.sslobject_class = tls_connection
    reload_certificates()
    from flwr.supercore.address import resolve_bind_address
    from flwr.superlink import main as service
    from flwr.superlink.cli import flower_superlink
    from flwr.superlink.servicer.fleet import fleet_handlers

    create_app, push_messages = service.create_app, fleet_handlers.push_messages

    def guarded(*args: Any, **options: Any) -> Any:
        app = create_app(*args, **options)
        app.add_middleware(guard)
        return app

    def start(lifespan: Any) -> None:
        config = lifespan.config
        host = f"[{config.host}]" if ":" in config.host else config.host
        address = resolve_bind_address(f"{host}:{config.port}")
        start_executor(address, config.ssl_ca_certfile)  # it ends with this process

    def push_own_messages(request: Any, state: Any) -> Any:
        check_sender(request)
        return push_messages(request=request, state=state)

    service.create_app = guarded
    fleet_handlers.push_messages = push_own_messages
    module = sys.modules["flwr.superlink.cli.flower_superlink"]
    vars(module)["SuperLinkLifespan"]._start_superexec_if_needed = start
    sys.argv = ["flower-superlink", *arguments]
    flower_superlink()


def check_sender(request: Any) -> None:
    """Refuse a node's message in another node's name; Flower checks only who made the call."""
    from fastapi import HTTPException

    for message in request.messages_list:
        claimed = message.metadata.src_node_id
        if claimed != request.node.node_id:
            log.warning(
                "a message of node %s is refused: it came from node %s",
                claimed,
                request.node.node_id,
            )
            raise HTTPException(status_code=403, detail="a message in another node's name")


def reload_certificates() -> None:
    """Let uvicorn use a renewed certificate for new connections without a restart."""
    import uvicorn.config

    from camu.deploy.host.reloading import keep_reloading

    create = uvicorn.config.create_ssl_context

    def created(certfile: str, keyfile: str, *args: Any, **options: Any) -> ssl.SSLContext:
        context = create(certfile, keyfile, *args, **options)
        keep_reloading(context, certfile, keyfile)
        return context

    vars(uvicorn.config)["create_ssl_context"] = created


def answer_for_lost_tasks(states: Any) -> None:
    """Let a node answer with an error when a task has ended without an answer.

    `states` is Flower's class of a node's state. Flower answers only for a task that stopped giving
    signs of life after it had read its message. For any other, the node would wait for an answer
    for ever: online, and silent in every round.
    """
    from flwr.supercore.constant import TaskType
    from flwr.supernode.nodestate.in_memory_nodestate import CLIENT_APP_CRASHED_ERROR

    finish_task, on_expired = states.finish_task, states._on_task_tokens_expired

    def answer(state: Any, tasks: Any) -> None:
        runs = {task.run_id for task in tasks if task.type == TaskType.CLIENT_APP}
        with state.lock_msg_store:
            for entry in state.msg_store.values():
                if not entry.message.metadata.reply_to_message_id:
                    entry.is_retrieved = True  # a node works on one message at a time
            state._store_error_replies(runs, CLIENT_APP_CRASHED_ERROR)

    def finish(state: Any, task_id: int, *args: Any, **options: Any) -> bool:
        finished = bool(finish_task(state, task_id, *args, **options))
        if finished:
            answer(state, state.get_tasks(task_ids=[task_id]))
        return finished

    def expire(state: Any, tasks: Any) -> None:
        answer(state, tasks)
        on_expired(state, tasks)

    states.finish_task, states._on_task_tokens_expired = finish, expire


def run_supernode(arguments: list[str], socket: Path) -> None:
    """Run Flower's SuperNode; its executor, in another process, reaches it over a unix socket."""
    import uvicorn
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    config = uvicorn.Config

    def on_socket(*args: Any, **options: Any) -> uvicorn.Config:
        return config(*args, **{**options, "uds": str(socket)})  # host and port are then not used

    def run_config(bundle: bytes, run: Any) -> dict[str, Any]:
        try:
            return {**read_bundle(bundle), **run.override_config}
        except Refusal as refusal:
            log.warning("run %s is refused: %s", run.run_id, refusal)
            return {}  # the executor refuses it too, and tells the server why

    answer_for_lost_tasks(InMemoryNodeState)
    vars(uvicorn)["Config"] = on_socket
    vars(start_client_internal)["get_fused_config_from_fab"] = run_config
    sys.argv = ["flower-supernode", *arguments, "--isolation", "process"]
    flower_supernode()
