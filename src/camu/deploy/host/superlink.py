"""A SuperLink that only its owner controls: `python -m camu.deploy.host.superlink ARGS`.

The arguments are those of flower-superlink. Flower serves nodes, control and runtime on one port,
and only the nodes' calls are signed. All other calls must come from this machine and carry a token
that only the SuperLink's owner can read. Servers of runs are camu's own server app, started by
camu's executor: a bundle is read as data, and a foreign one is refused. Connections without TLS are
logged, which Flower does not do.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from typing import Any

from camu.deploy.flower import (
    Executor,
    OwnersToken,
    check_bundles_refused,
    check_version,
    plain_logs,
    read_own_bundle,
    replace,
    run_executor,
)
from camu.deploy.host.connections import LoggedHandshake, Quota, allow_files, bounded_connections
from camu.deploy.host.guard import Guard, registered
from camu.deploy.host.keys import (
    KeyDirectory,
    check_files,
    make_private,
    make_token,
    read_token,
    token_path,
)
from camu.deploy.host.processes import (
    PRIVATE,
    end_with_child,
    end_with_starter,
    ending_with_a_sentence,
    inherited_listener,
)
from camu.deploy.host.self_test import check_guarded, check_nodes_apart
from camu.work import end_with_parent

log = logging.getLogger(__name__)

MODULE = "camu.deploy.host.superlink"
TOKEN = "--token"  # followed by the path of the file, which is no secret  # nosec B105
EXECUTOR, SERVER = "--executor", "--server"  # arguments of processes that the SuperLink starts
GRACE_SECONDS = 3  # for calls under way when the SuperLink ends
STOP_SECONDS = 30  # until a server that was stopped is ended by force


def superlink_command(
    host: str,
    port: int,
    keys: KeyDirectory | None,
    database: Path | None = None,
    token: Path | None = None,
) -> list[str]:
    """The command line of a SuperLink; without keys it uses plain text and takes every node.

    `token` is the file with the owner's token (default: next to the authority's certificate); it
    is made if there is none.
    """
    if keys is not None:
        check_files([keys.authority, keys.server], keys.server_key)
    token = token or token_path(keys.authority if keys else None)
    make_token(token)
    command = [sys.executable, "-m", MODULE, TOKEN, str(token)]
    # In this isolation Flower starts no executor, which would run the code of bundles.
    command += ["--host", host, "--port", str(port), "--isolation", "process"]
    if database is not None:
        make_private(database)
        command += ["--database", str(database)]
    if keys is None:
        return [*command, "--insecure"]
    return [
        *command,
        *("--ssl-ca-certfile", str(keys.authority)),
        *("--ssl-certfile", str(keys.server)),
        *("--ssl-keyfile", str(keys.server_key)),
        "--enable-supernode-auth",
    ]


def run_superlink(token: str, arguments: list[str]) -> None:
    """Run Flower's SuperLink with a guard around its ASGI app and camu's own executor."""
    check_version()
    for name in ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API"):
        os.environ.pop(name, None)  # further interfaces, which nothing guards
    import uvicorn
    from flwr.supercore.address import resolve_bind_address
    from flwr.supercore.http_logging import get_uvicorn_log_config
    from flwr.supercore.logger import console_handler
    from flwr.superlink.main import create_app

    from camu.deploy.host.direct import Direct

    allow_files()
    for name in ("camu.deploy.host.guard", "camu.deploy.host.connections", "uvicorn.error"):
        logging.getLogger(name).addFilter(Quota())
    service = importlib.import_module("flwr.superlink.cli.flower_superlink")
    sys.argv = ["flower-superlink", *arguments]
    config = service._parse_superlink_lifespan_config()
    inner = create_app(config, service.SuperLinkLifespan)
    state = inner.state.linkstate_factory.state()
    app = Guard(
        Direct(inner),
        token,
        (lambda: registered(state.get_node_info())) if config.enable_supernode_auth else None,
    )
    check_guarded(app)
    if config.enable_supernode_auth:
        check_nodes_apart(Direct(inner))
    host = f"[{config.host}]" if ":" in config.host else config.host
    address = resolve_bind_address(f"{host}:{config.port}")
    task = ServerTask(address, config.ssl_ca_certfile, token)
    # It asks again until the server listens.
    end_with_child("the executor of runs", start_helper(EXECUTOR, task))
    settings = uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        log_config=get_uvicorn_log_config(console_handler.level),
        ssl_keyfile=config.ssl_keyfile,
        ssl_certfile=config.ssl_certfile,
        ssl_context_factory=None if config.ssl_certfile is None else _tls_context,
        access_log=False,  # the guard logs what it refuses
        timeout_graceful_shutdown=GRACE_SECONDS,
        **bounded_connections(),
    )
    listener = inherited_listener()
    uvicorn.Server(settings).run(None if listener is None else [listener])


def _tls_context(settings: Any, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """The TLS context of the server; SIGHUP loads a renewed certificate for new connections."""
    context, files = default(), (settings.ssl_certfile, settings.ssl_keyfile)
    context.sslobject_class = LoggedHandshake
    signal.signal(signal.SIGHUP, lambda *_: load_certificate(context, *files))
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a renewed certificate; where it cannot be used, the old one stays."""
    try:
        # On a context of its own first: a wrong file must not take the place of a good one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        context.load_cert_chain(certificate, key)
        log.warning("%s is used from now on", certificate)
    except (OSError, ssl.SSLError) as error:
        log.error("%s: cannot be used (%s); the old one stays", certificate, error)


@dataclasses.dataclass(frozen=True)
class ServerTask:
    """What a process needs to carry out tasks of a SuperLink."""

    address: str
    authority: str | None  # None: plain text
    token: str  # of the SuperLink's owner
    task_token: str = ""  # of one task
    parent: int = 0  # the process that it ends with


def start_helper(kind: str, task: ServerTask) -> subprocess.Popen[bytes]:
    """Start a process of the SuperLink; its tokens go through a pipe, which nobody else reads."""
    command = [sys.executable, "-m", MODULE, kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    with process.stdin:
        process.stdin.write(json.dumps({**vars(task), "parent": os.getpid()}).encode())
    return process


def run_server_executor(task: ServerTask) -> None:
    """Start the servers of a SuperLink's runs, each in a process of its own."""
    check_version()
    from flwr.supercore.constant import TaskType

    def start(spec: Any) -> object:
        return start_helper(SERVER, dataclasses.replace(task, task_token=spec.token))

    run_executor(
        Executor(TaskType.SERVER_APP, start),
        _owners_client(task.token),
        runtime_api_address=task.address,
        insecure=task.authority is None,
        root_certificates_path=task.authority,
    )


def run_server(task: ServerTask) -> None:
    """Be the server of one run."""
    check_version()
    from flwr.superlink.grid import http_grid

    client = _owners_client(task.token)
    replace(http_grid, "RuntimeHttpClient", client, http_grid.HttpGrid._connect)
    # A server that is stopped keeps the model first, which takes a busy machine some time.
    ending = importlib.import_module("flwr.supercore.exit.exit")
    replace(ending, "FORCE_EXIT_TIMEOUT_SECONDS", STOP_SECONDS, ending.flwr_exit)
    module = importlib.import_module("flwr.superlink.runtime.run_serverapp")
    use_own_server_app(module, _registered_nodes(task))
    module.run_serverapp(
        runtime_api_address=task.address,
        log_queue=Queue(),
        token=task.task_token,
        insecure=task.authority is None,
        certificates=None if task.authority is None else Path(task.authority).read_bytes(),
        runtime_dependency_install=False,
    )


def _registered_nodes(task: ServerTask) -> Callable[[], Sequence[Any]]:
    """A function that lists all registered nodes; Flower tells a server of those online only."""
    from flwr.proto.control_pb2 import ListNodesRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    client = ControlHttpClient.from_server_address(
        server_address=task.address,
        insecure=task.authority is None,
        root_certificates=task.authority,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="flwr CLI"),
            OwnersToken(task.token),
        ],
    )
    return lambda: [
        node for node in client.ListNodes(ListNodesRequest()).nodes_info if not node.unregistered_at
    ]


def use_own_server_app(module: Any, nodes: Callable[[], Sequence[Any]]) -> None:
    """Let Flower's ServerApp process run this installation's app, whatever bundle arrives.

    The app finds the registered `nodes` at its grid.
    """
    run, tables, serve = module.run_, [], module.run_serverapp

    def own(grid: Any, context: Any, **_: Any) -> Any:
        # Loaded only here, when the heartbeat has begun: on a slow or busy machine this takes
        # longer than the SuperLink waits for a sign of life.
        from camu.deploy.server.app import app
        from camu.deploy.server.mailbox import REGISTERED

        setattr(grid, REGISTERED, nodes)
        return run(grid, context, "", loaded_server_app=app)

    project = {"tool": {"flwr": {"app": {"components": {"serverapp": ""}}}}}
    new = {
        "install_from_fab": lambda bundle, **_: tables.append(read_own_bundle(bundle)),
        "get_project_config": lambda *_: project,
        "get_fused_config_from_dir": lambda _, override: {**tables[-1], **override},
        "run_": own,
    }
    for name, function in new.items():
        replace(module, name, function, serve)
    check_bundles_refused(module.install_from_fab)


def _owners_client(token: str) -> type[Any]:
    """A client of the runtime interface that sends the owner's token."""
    from flwr.supercore.runtime import RuntimeHttpClient

    class Client(RuntimeHttpClient):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._interceptors = (*self._interceptors, OwnersToken(token))

    return Client


def main() -> None:
    """Run Flower's SuperLink behind the guard, or one of its helpers."""
    kind = sys.argv[1]
    plain_logs()
    if kind in (EXECUTOR, SERVER):
        task = ServerTask(**json.loads(sys.stdin.read()))
        end_with_parent(task.parent)
        run_server(task) if kind == SERVER else run_server_executor(task)
        return
    end_with_starter()
    os.umask(PRIVATE)  # also of the servers of runs, with their directories
    run_superlink(read_token(Path(sys.argv[2])), sys.argv[3:])


if __name__ == "__main__":
    with ending_with_a_sentence():
        main()
