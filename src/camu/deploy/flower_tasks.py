"""The processes that carry out Flower's tasks: they run camu's own apps and nothing else.

Flower installs the bundle of a run and loads the app that it names. Here the functions that would
do so are replaced: a bundle is read as data, a foreign one is refused, and the app is the one of
this installation. Like flower_compat, this module uses Flower's internals.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Queue
from typing import Any

from camu.deploy.bundles import read_bundle
from camu.deploy.flower_compat import OwnersToken
from camu.deploy.reports import Refusal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerSpec:
    """What a process needs to carry out tasks of a SuperLink."""

    address: str
    authority: str | None  # None: plain text
    token: str  # of the SuperLink's owner
    task_token: str = ""  # of one task

    @property
    def certificate(self) -> bytes | None:
        """The certificate of the authority."""
        return None if self.authority is None else Path(self.authority).read_bytes()


def run_node_executor(socket: Path) -> None:
    """Carry out the tasks of the SuperNode behind a unix socket, each in a forked process."""
    import httpx
    from flwr.supercore.constant import TaskType
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.superexec import run_superexec
    from flwr.supernode.runtime import run_clientapp

    class SocketClient(RuntimeHttpClient):
        """A client of the runtime interface over the socket."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._client.close()
            transport = httpx.HTTPTransport(uds=str(socket))
            self._client = httpx.Client(transport=transport, timeout=self._client.timeout)

    vars(run_superexec)["RuntimeHttpClient"] = SocketClient
    vars(run_clientapp)["RuntimeHttpClient"] = SocketClient
    use_own_node_app(run_clientapp)

    def carry_out(spec: Any) -> None:
        run_clientapp.run_clientapp(
            runtime_api_address=spec.runtime_api_address,
            token=spec.token,
            insecure=True,
            parent_pid=spec.parent_pid,
            runtime_dependency_install=False,
        )

    executor = Executor(TaskType.CLIENT_APP, lambda spec: fork(carry_out, spec))
    vars(run_superexec)["get_executor"] = lambda *_, **__: executor
    run_superexec.run_superexec(runtime_api_address="localhost", insecure=True)


def use_own_node_app(module: Any) -> None:
    """Let Flower's ClientApp process run this installation's app, whatever bundle arrives."""
    from camu.deploy import node_app

    vars(module)["install_from_fab"] = lambda bundle, **_: checked(bundle)
    vars(module)["get_load_client_app_fn"] = lambda **_: lambda *_: node_app.app


def run_server_executor(
    spec: ServerSpec, start: Callable[[ServerSpec], subprocess.Popen[bytes]]
) -> None:
    """Start the servers of a SuperLink's runs, each in a process of its own."""
    from flwr.supercore.constant import TaskType
    from flwr.supercore.superexec import run_superexec

    vars(run_superexec)["RuntimeHttpClient"] = _owners_client(spec.token)
    executor = Executor(
        TaskType.SERVER_APP, lambda task: start(replace(spec, task_token=task.token))
    )
    vars(run_superexec)["get_executor"] = lambda *_, **__: executor
    run_superexec.run_superexec(
        runtime_api_address=spec.address,
        insecure=spec.authority is None,
        root_certificates_path=spec.authority,
    )


def run_server(spec: ServerSpec) -> None:
    """Be the server of one run."""
    from flwr.superlink.grid import http_grid
    from flwr.superlink.runtime import run_serverapp

    vars(http_grid)["RuntimeHttpClient"] = _owners_client(spec.token)
    use_own_server_app(sys.modules["flwr.superlink.runtime.run_serverapp"])
    run_serverapp(
        runtime_api_address=spec.address,
        log_queue=Queue(),
        token=spec.task_token,
        insecure=spec.authority is None,
        certificates=spec.certificate,
        runtime_dependency_install=False,
    )


def use_own_server_app(module: Any) -> None:
    """Let Flower's ServerApp process run this installation's app, whatever bundle arrives."""
    run, tables = vars(module)["run_"], []

    def own(grid: Any, context: Any, **_: Any) -> Any:
        # Loaded only here, when the heartbeat has begun: on a slow or busy machine this takes
        # longer than the SuperLink waits for a sign of life.
        from camu.deploy.server.app import app

        return run(grid, context, "", loaded_server_app=app)

    vars(module).update(
        install_from_fab=lambda bundle, **_: tables.append(checked(bundle)),
        get_project_config=lambda *_: {
            "tool": {"flwr": {"app": {"components": {"serverapp": ""}}}}
        },
        get_fused_config_from_dir=lambda _, override: {**tables[-1], **override},
        run_=own,
    )


def checked(bundle: bytes) -> dict[str, Any]:
    """The table of a bundle; a foreign bundle is logged and refused."""
    try:
        return dict(read_bundle(bundle))
    except Refusal as refusal:
        log.warning("a run is refused: %s", refusal)
        raise


def _owners_client(token: str) -> type[Any]:
    """A client of the runtime interface that sends the owner's token."""
    from flwr.supercore.runtime import RuntimeHttpClient

    class Client(RuntimeHttpClient):
        """A client of the runtime interface with the token."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._interceptors = (*self._interceptors, OwnersToken(token))

    return Client


def fork(carry_out: Callable[[Any], None], spec: Any) -> None:
    """Carry out a task in a forked process, so that nothing is loaded again."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() != 0:
        return
    code = 1
    try:
        carry_out(spec)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        log.exception("a task has failed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@dataclass(frozen=True)
class Executor:
    """Flower's executor interface, for tasks of one type."""

    task_type: Any
    start: Callable[[Any], object]

    def get_eligible_capacity(
        self,
        supported_task_types: set[Any],
        *,
        insecure: bool = False,
        root_certificates_path: str | None = None,
    ) -> tuple[set[Any], set[str]]:
        """The one type of tasks; a process is always possible."""
        return {self.task_type}, set()

    def wait_for_capacity(self, *args: object, **options: object) -> None:
        """Return at once: there is always capacity."""

    def launch(self, spec: Any) -> Any:
        """Start a process that carries out one task."""
        from flwr.supercore.superexec.executor import LaunchResult

        if spec.task_type != self.task_type:
            return LaunchResult.failed(f"camu carries out no tasks of type {spec.task_type}")
        self.start(spec)
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
