"""Runs a node's tasks in processes forked from one that has everything loaded.

Flower starts a new interpreter for every message, which loads torch each time. This executor loads
it once and forks, so that a message costs its own work only. It is single-threaded, as a process
that forks should be, and ends when its parent, the SuperNode, does.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

CHECK_SECONDS = 0.5


class ForkExecutor:
    """Flower's executor interface, with fork in the place of a new interpreter."""

    def get_eligible_capacity(
        self,
        supported_task_types: set[Any],
        *,
        insecure: bool = False,
        root_certificates_path: str | None = None,
    ) -> tuple[set[Any], set[str]]:
        """A fork is always possible."""
        return supported_task_types, set()

    def wait_for_capacity(self, *args: object, **options: object) -> None:
        """Nothing to wait for."""

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
        """Tasks in progress end by themselves when this process is gone."""


def _carry_out(spec: Any) -> None:
    """The life of a forked process; it never returns."""
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


def end_with_parent() -> None:
    """Watch the parent without a thread: a timer asks now and then whether it is still there."""
    parent = os.getppid()

    def look(number: int, frame: FrameType | None) -> None:
        if os.getppid() != parent:
            os._exit(0)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, CHECK_SECONDS, CHECK_SECONDS)


def main() -> None:
    """Serve the SuperNode at the given loopback address."""
    end_with_parent()
    # What a task needs, loaded before the first fork.
    import sklearn.datasets  # noqa: F401
    import torch  # noqa: F401
    from flwr.supercore.superexec import run_superexec
    from flwr.supernode.runtime import run_clientapp  # noqa: F401

    import camu.deploy.node.app  # noqa: F401

    vars(run_superexec)["get_executor"] = lambda *_, **__: ForkExecutor()
    run_superexec.run_superexec(runtime_api_address=sys.argv[1], insecure=True)


if __name__ == "__main__":
    main()
