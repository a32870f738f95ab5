"""A SuperNode with camu's executor beside it: `python -m camu.deploy.host.supernode ARGS`.

The arguments are those of flower-supernode. The executor talks to the SuperNode over a loopback
port and ends with it.
"""

from __future__ import annotations

import subprocess
import sys

from camu.deploy.host.processes import end_with_starter, quiet_environment


def main() -> None:
    """Start the executor, then become the SuperNode."""
    end_with_starter()
    arguments = sys.argv[1:]
    port = arguments[arguments.index("--port") + 1] if "--port" in arguments else "9094"
    # One thread per library, because a process that forks should have no others; the engine uses
    # one thread per worker anyway, so results do not change.
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    subprocess.Popen(
        [sys.executable, "-m", "camu.deploy.host.executor", f"127.0.0.1:{port}"],
        env={**quiet_environment(), **single},
    )
    from flwr.supernode.cli import flower_supernode

    sys.argv = ["flower-supernode", *arguments, "--isolation", "process"]
    flower_supernode()


if __name__ == "__main__":
    main()
