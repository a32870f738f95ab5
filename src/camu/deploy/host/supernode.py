"""A SuperNode with camu's executor: `python -m camu.deploy.host.supernode ARGS`.

The arguments are those of flower-supernode. The executor connects to the SuperNode over a loopback
port and ends with it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from camu.deploy.flower_compat import run_executor, run_supernode
from camu.deploy.host.keeper import end_with_keeper, keep_running
from camu.deploy.host.keys import NodeKeys
from camu.deploy.host.processes import end_with_starter, quiet_environment
from camu.errors import InputError

EXECUTOR = "--executor"  # argument of the process that runs the tasks


def supernode_command(
    superlink: str, port: int, keys: NodeKeys | None, node: Mapping[str, str | int | float]
) -> list[str]:
    """The command line of a SuperNode; `port` is the loopback port for its own executor."""
    command = [sys.executable, "-m", "camu.deploy.host.supernode", "--superlink", superlink]
    command += ["--port", str(port), "--node-config", node_config(node)]
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


def serve_tasks(address: str) -> None:
    """Run the tasks of the SuperNode at a loopback address, each in a forked process.

    Flower starts a new interpreter for every message, which loads torch each time. This process
    loads it once and forks. It has a single thread, as a process that forks should, and ends with
    its parent, the SuperNode.
    """
    end_with_keeper()
    # Tasks need these; they are loaded before the first fork.
    import sklearn.datasets  # noqa: F401
    import torch  # noqa: F401

    import camu.deploy.node_app  # noqa: F401

    run_executor(address)


def main() -> None:
    """Start the executor, then become the SuperNode."""
    arguments = sys.argv[1:]
    if arguments[:1] == [EXECUTOR]:
        serve_tasks(arguments[1])
        return
    end_with_starter()
    port = arguments[arguments.index("--port") + 1] if "--port" in arguments else "9094"
    # One thread per library, because a process that forks should have no others; the engine uses
    # one thread per worker anyway, so results do not change.
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "camu.deploy.host.supernode", EXECUTOR, f"127.0.0.1:{port}"]
    keep_running(
        "the executor",
        lambda: subprocess.Popen(command, env={**quiet_environment(), **single}),
    )
    run_supernode(arguments)


if __name__ == "__main__":
    main()
