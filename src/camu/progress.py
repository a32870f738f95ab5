"""The one type of progress reports: a command shows them, long work sends them."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # name of the work, steps done, steps in all


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""
