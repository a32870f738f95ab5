"""A node, one process: `python -m camu.deploy.host.node OPTIONS`, with the options as JSON.

It asks its SuperLink for work, trains, and answers, and keeps data and engine between messages. It
runs this installation's app: a bundle is read as data, and a foreign one is refused. It has no
port, and torch is loaded only for a model that needs it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from camu.deploy.array_records import Refusal
from camu.deploy.host.keys import check_files
from camu.deploy.host.processes import (
    PRIVATE,
    end_with_starter,
    ending_with_a_sentence,
    quiet_environment,
)
from camu.errors import CamuError

log = logging.getLogger(__name__)

MODULE = "camu.deploy.host.node"
IDLE_SECONDS = 270.0
# Libraries with threads of their own; the engine has one thread per worker anyway.
SINGLE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Options = Mapping[str, str | int | float]


@dataclass(frozen=True)
class NodeOptions:
    """How a node is started: its SuperLink, its key, and what the owner said of it."""

    superlink: str
    authority: str | None = None  # certificate; None: plain text
    key: str | None = None  # file
    table: dict[str, Any] = field(default_factory=dict)  # of `node_app.Node.of`
    idle_seconds: float = IDLE_SECONDS
    isolate: bool = False


def node_command(
    superlink: str,
    authority: Path | None,
    key: Path | None,
    table: Options,
    idle_seconds: float = IDLE_SECONDS,
    isolate: bool = False,
) -> list[str]:
    """The command line of a node; without the authority's certificate it uses plain text.

    `allow` of the table has the names of own code that a run's configuration may name there.
    """
    files: tuple[str | None, str | None] = (None, None)
    if authority is not None and key is not None:
        check_files([authority], key)
        files = str(authority), str(key)
    options = NodeOptions(superlink, *files, {"allow": "", **table}, idle_seconds, isolate)
    return [sys.executable, "-m", MODULE, json.dumps(vars(options))]


def node_environment() -> dict[str, str]:
    """The environment of a node."""
    return {**quiet_environment(), **SINGLE}


class Answering(Protocol):
    """What works on messages."""

    def __call__(self, kind: str, content: Any, run: Mapping[str, Any], seconds: float) -> Any:
        """The content of the answer, which is of no use after so many seconds."""


def run_node(options: NodeOptions) -> None:
    """Work until the SuperLink refuses this node, or the program is ended."""
    from camu.deploy.flower import check_version

    check_version()
    from camu.deploy.host.isolated import Isolated
    from camu.deploy.host.node_connection import Connection, GivenUpError

    authority = None if options.authority is None else Path(options.authority)
    key = None if options.key is None else Path(options.key)
    table = {**options.table, **({} if key is None else {"key": str(key)})}
    isolated = Isolated(table)  # starts nothing before its first task
    work: Answering = isolated if options.isolate else InProcess(table)
    connection = Connection(options.superlink, authority, key, options.idle_seconds)
    with contextlib.closing(isolated), connection:
        while True:
            try:
                if (message := connection.next_message()) is not None:
                    began = time.monotonic()
                    answer = answer_to(message, connection.run_config, work)
                    connection.reply(answer, time.monotonic() - began)
            except GivenUpError as why:
                log.warning("a message is given up: %s", why)


@dataclass(frozen=True)
class InProcess:
    """Works on messages in this process, which keeps data and engine of the latest run."""

    table: Options

    def __call__(self, kind: str, content: Any, run: Mapping[str, Any], seconds: float) -> Any:
        """The content of the answer."""
        from camu.deploy import node_app

        return node_app.answer(kind, content, run, self.table)


def answer_to(message: Any, run_config: Any, work: Answering) -> Any:
    """The answer to a message: what the work gave, or an error with its reason."""
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode

    from camu.deploy import node_app

    about = message.metadata
    try:
        run = run_config(about.run_id)
        content = work(about.message_type, message.content, run, about.ttl)
        return Message(content, reply_to=message)
    except Exception as error:
        ours = isinstance(error, CamuError | Refusal)
        log.error("a task has failed: %s", error, exc_info=None if ours else error)
        reason = node_app.for_server(error)
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def main() -> None:
    """Be a node until SIGTERM, or until its starter ends."""
    end_with_starter()
    os.umask(PRIVATE)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout
    )
    for name in ("httpx", "flwr"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    run_node(NodeOptions(**json.loads(sys.argv[1])))


if __name__ == "__main__":
    with ending_with_a_sentence():
        main()
