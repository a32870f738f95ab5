"""A SuperNode with camu's executor: `python -m camu.deploy.host.supernode ARGS`.

The arguments are those of flower-supernode. The executor reaches the SuperNode over a socket in a
directory of mode 700, so that no other user can take its tasks or pretend to be the SuperNode, and
ends with it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from camu.deploy.flower_compat import run_supernode
from camu.deploy.flower_tasks import run_node_executor
from camu.deploy.host.keeper import end_with_keeper, keep_running
from camu.deploy.host.keys import NodeKeys
from camu.deploy.host.processes import end_with_starter, quiet_environment
from camu.deploy.host.temporary import socket_folder
from camu.errors import InputError

MODULE = "camu.deploy.host.supernode"
EXECUTOR = "--executor"  # argument of the process that runs the tasks


def supernode_command(
    superlink: str, keys: NodeKeys | None, node: Mapping[str, str | int | float]
) -> list[str]:
    """The command line of a SuperNode; without keys it uses plain text.

    `allow` of `node` has the names of own code that a run's configuration may name there.
    """
    command = [sys.executable, "-m", MODULE, "--superlink", superlink]
    command += ["--node-config", node_config({"allow": "", **node})]
    if keys is None:
        return [*command, "--insecure"]
    keys.check()
    return [
        *command,
        *("--root-certificates", str(keys.authority)),
        *("--auth-supernode-private-key", str(keys.key)),
    ]


def node_config(node: Mapping[str, str | int | float]) -> str:
    """A node's configuration as Flower writes it: key=value, with texts in quotes."""
    words = []
    for key, value in node.items():
        if isinstance(value, str):
            if any(mark in value for mark in "\"'\\\n"):
                raise InputError(f"{key} = {value}: quotes and backslashes cannot be passed on")
            words.append(f'{key}="{value}"')
        else:
            words.append(f"{key}={value}")
    return " ".join(words)


def serve_tasks(socket: Path) -> None:
    """Run the tasks of the SuperNode behind a socket, each in a forked process.

    Flower starts a new interpreter for every message, which loads torch each time. This process
    loads it once and forks. It has a single thread, as a process that forks should, and ends with
    its parent, the SuperNode.
    """
    end_with_keeper()
    # Tasks need these; they are loaded before the first fork.
    import sklearn.datasets  # noqa: F401
    import torch  # noqa: F401

    run_node_executor(socket)


def main(module: str = MODULE) -> None:
    """Start the executor, `python -m MODULE --executor SOCKET`, then become the SuperNode."""
    arguments = sys.argv[1:]
    if arguments[:1] == [EXECUTOR]:
        serve_tasks(Path(arguments[1]))
        return
    end_with_starter()
    # One thread per library, because a process that forks should have no others; the engine uses
    # one thread per worker anyway, so results do not change.
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with socket_folder() as folder:
        socket = folder / "runtime"
        command = [sys.executable, "-m", module, EXECUTOR, str(socket)]
        keep_running(
            "the executor",
            lambda: subprocess.Popen(command, env={**quiet_environment(), **single}),
        )
        run_supernode(arguments, socket)


if __name__ == "__main__":
    main()
