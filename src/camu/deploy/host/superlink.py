"""A SuperLink that only its owner controls: `python -m camu.deploy.host.superlink ARGS`.

The arguments are those of flower-superlink. Every call but those of nodes needs the owner's token.
Servers of runs are camu's own server app, started by camu's executor. Connections without TLS are
logged, which Flower does not do.
"""

from __future__ import annotations

import json
import logging
import ssl
import subprocess
import sys
from functools import partial
from pathlib import Path

from camu.deploy.flower_compat import run_superlink
from camu.deploy.flower_tasks import ServerSpec, run_server, run_server_executor
from camu.deploy.host.guard import Guard
from camu.deploy.host.keeper import end_with_keeper, keep_running
from camu.deploy.host.keys import ServerKeys, make_token, read_token, token_path
from camu.deploy.host.processes import end_with_starter
from camu.work import end_with_parent

log = logging.getLogger(__name__)

MODULE = "camu.deploy.host.superlink"
TOKEN = "--token"  # followed by the path of the file, which is no secret  # nosec B105
EXECUTOR, SERVER = "--executor", "--server"  # arguments of processes that the SuperLink starts


def superlink_command(
    host: str,
    port: int,
    keys: ServerKeys | None,
    database: Path | None = None,
    token: Path | None = None,
) -> list[str]:
    """The command line of a SuperLink; without keys it uses plain text and takes every node.

    `token` is the file with the owner's token (default: next to the authority's certificate); it
    is made if there is none.
    """
    if keys is not None:
        keys.check()
    token = token or token_path(keys.authority if keys else None)
    make_token(token)
    command = [sys.executable, "-m", MODULE, TOKEN, str(token)]
    command += ["--host", host, "--port", str(port), "--disable-runtime-dependency-installation"]
    if database is not None:
        command += ["--database", str(database)]
    if keys is None:
        return [*command, "--insecure"]
    return [
        *command,
        *("--ssl-ca-certfile", str(keys.authority)),
        *("--ssl-certfile", str(keys.certificate)),
        *("--ssl-keyfile", str(keys.key)),
        "--enable-supernode-auth",
    ]


class LoggedHandshake(ssl.SSLObject):
    """A TLS connection that logs a failed handshake, such as that of a plain-text client."""

    def do_handshake(self) -> None:
        """Shake hands; a connection without TLS is logged and refused by an error."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise  # not yet: the rest is on its way
        except ssl.SSLError as error:
            log.warning("a connection is refused: no TLS handshake (%s)", error.reason or error)
            raise


def start_helper(kind: str, spec: ServerSpec) -> subprocess.Popen[bytes]:
    """Start a process of the SuperLink; its tokens go through a pipe, which nobody else reads."""
    command = [sys.executable, "-m", MODULE, kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    with process.stdin:
        process.stdin.write(json.dumps(vars(spec)).encode())
    return process


def main() -> None:
    """Run Flower's SuperLink behind the guard, or one of its helpers."""
    kind = sys.argv[1]
    if kind in (EXECUTOR, SERVER):
        # An executor that dies is started again; a server ends with its executor.
        end_with_keeper() if kind == EXECUTOR else end_with_parent()
        spec = ServerSpec(**json.loads(sys.stdin.read()))
        if kind == SERVER:
            run_server(spec)
        else:
            run_server_executor(spec, partial(start_helper, SERVER))
        return
    end_with_starter()
    token = read_token(Path(sys.argv[2]))
    run_superlink(
        sys.argv[3:],
        partial(Guard, token=token),
        LoggedHandshake,
        lambda address, authority: keep_running(
            "the executor of runs",
            lambda: start_helper(EXECUTOR, ServerSpec(address, authority, token)),
        ),
    )


if __name__ == "__main__":
    main()
