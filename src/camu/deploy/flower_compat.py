"""All uses of Flower's internals: what to check when Flower is upgraded.

Flower's public API has no way to control a SuperLink from Python, to run tasks in forked processes,
or to close the control interface to other machines. The functions here import Flower's own modules
and replace two of their functions. The version of Flower is pinned for that reason.

Imports are deferred, because each program needs a part of Flower and all of it is slow to import.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.supercore.control import ControlHttpClient


def build_bundle(project_file: str) -> bytes:
    """The Flower app with this pyproject.toml, as the bundle that a SuperLink takes."""
    from flwr.cli.build import build_fab_from_files

    content, _ = build_fab_from_files({"pyproject.toml": project_file.encode()})
    return content


class ControlClient:
    """Calls of a SuperLink's control interface; errors are those of httpx."""

    def __init__(self, address: str, certificate: bytes | None) -> None:
        """Without an authority's certificate the connection is plain text."""
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        self._client: ControlHttpClient = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=certificate is None,
            root_certificates=certificate,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
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


def run_superlink(middleware: Callable[[Any], Any], tls_connection: type[ssl.SSLObject]) -> None:
    """Run Flower's SuperLink on sys.argv, with a middleware around its ASGI app."""
    ssl.SSLContext.sslobject_class = tls_connection
    reload_certificates()
    from flwr.superlink import main as service
    from flwr.superlink.cli import flower_superlink

    create_app = service.create_app

    def guarded(*args: Any, **options: Any) -> Any:
        app = create_app(*args, **options)
        app.add_middleware(middleware)
        return app

    service.create_app = guarded
    flower_superlink()


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


def run_supernode(arguments: list[str]) -> None:
    """Run Flower's SuperNode; its tasks are left to an executor in another process."""
    from flwr.supernode.cli import flower_supernode

    sys.argv = ["flower-supernode", *arguments, "--isolation", "process"]
    flower_supernode()


def run_executor(address: str) -> None:
    """Carry out the tasks of the SuperNode at this loopback address in forked processes."""
    from flwr.supercore.superexec import run_superexec
    from flwr.supernode.runtime import run_clientapp  # noqa: F401  loaded before the first fork

    vars(run_superexec)["get_executor"] = lambda *_, **__: ForkExecutor()
    run_superexec.run_superexec(runtime_api_address=address, insecure=True)


class ForkExecutor:
    """Flower's executor interface; a task is a fork instead of a new interpreter."""

    def get_eligible_capacity(
        self,
        supported_task_types: set[Any],
        *,
        insecure: bool = False,
        root_certificates_path: str | None = None,
    ) -> tuple[set[Any], set[str]]:
        """All task types: a fork is always possible."""
        return supported_task_types, set()

    def wait_for_capacity(self, *args: object, **options: object) -> None:
        """Return at once: there is always capacity."""

    def launch(self, spec: Any) -> Any:
        """Fork a process that carries out one task."""
        from flwr.supercore.superexec.executor import LaunchResult

        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork() == 0:
            _carry_out(spec)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Collect the processes that have ended."""
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    return
            except ChildProcessError:
                return

    def close(self) -> None:
        """Do nothing: tasks in progress end by themselves after this process."""


def _carry_out(spec: Any) -> None:
    """Carry out a task in a forked process; never returns."""
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    code = 1
    try:
        run_clientapp(
            runtime_api_address=spec.runtime_api_address,
            token=spec.token,
            insecure=spec.insecure,
            certificates=None,
            parent_pid=spec.parent_pid,
            runtime_dependency_install=False,
        )
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
