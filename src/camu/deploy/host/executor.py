"""Runs a node's tasks in processes forked from one that has everything loaded.

Flower starts a new interpreter for every message, which loads torch each time. This program loads
it once and forks, so that a message costs its own work only. It has a single thread, as a process
that forks should, and ends with its parent, the SuperNode.
"""

from __future__ import annotations

import sys

from camu.deploy.flower_compat import run_executor
from camu.processes import end_with_parent


def main() -> None:
    """Serve the SuperNode at the given loopback address."""
    end_with_parent()
    # Tasks need these; they are loaded before the first fork.
    import sklearn.datasets  # noqa: F401
    import torch  # noqa: F401

    import camu.deploy.node_app  # noqa: F401

    run_executor(sys.argv[1])


if __name__ == "__main__":
    main()
