"""What camu replaces in Flower: what to check when Flower is upgraded.

Flower's public API has no way to run tasks in forked processes, to keep the code of bundles out, or
to close interfaces to other users. The module host.superlink imports Flower's own modules and
replaces some of their functions, all of them through `replace`. So the version of Flower is pinned,
compared at the start, and tested by itself then.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from types import CodeType
from typing import Any

from camu.deploy.array_records import Refusal
from camu.deploy.deployment import read_bundle
from camu.errors import CamuError, InputError

log = logging.getLogger(__name__)

FLOWER = "1.41.0"
PINNED = f"install the version that camu was made for: pip install 'flwr=={FLOWER}'"
TOKEN_HEADER = "x-camu-token"  # a name, no secret  # nosec B105
HOLD_HEADER = "x-camu-hold"  # seconds that a question for work may wait
VERSION_HEADER = "x-camu-version"
REPLY_HEADER = "x-camu-reply-bytes"  # how large the replies to messages can be
_reply_bytes: ContextVar[int | None] = ContextVar("reply_bytes", default=None)


def replace(owner: Any, name: str, new: Any, used_by: Callable[..., Any] | None = None) -> None:
    """Replace a name of Flower's, which its function `used_by` uses.

    A name that is missing, or is not used there, ends the program: Flower's own function would do
    what must not happen, such as running the code of a bundle.
    """
    names = set() if used_by is None else _names_in(used_by.__code__)
    if not hasattr(owner, name) or (used_by is not None and name not in names):
        where = getattr(owner, "__name__", type(owner).__name__)
        raise CamuError(f"{where} of the installed Flower does not use {name}; {PINNED}")
    setattr(owner, name, new)


def _names_in(code: CodeType) -> set[str]:
    """The names that a function and the functions inside it use."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*map(_names_in, inner))


def check_version() -> None:
    """Refuse any other version of Flower than the one whose internals are replaced."""
    installed = version("flwr")
    if installed != FLOWER:
        raise InputError(f"Flower {installed} is installed; {PINNED}")


def plain_logs() -> None:
    """Write no colour codes where Flower's log is no terminal."""
    from flwr.supercore.logger import update_console_handler

    update_console_handler(colored=sys.stderr.isatty())


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Log no refusals of self-tests, which would look like attacks."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def check_bundles_refused(install: Callable[..., Any]) -> None:
    """Self-test: a bundle with code must be refused where Flower would install it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("self-test.py", "")
    try:
        with unlogged():
            install(content.getvalue(), skip_prompt=True)
    except Refusal:
        return
    raise CamuError(f"the self-test failed: a foreign bundle is not refused; {PINNED}")


def read_own_bundle(bundle: bytes) -> dict[str, Any]:
    """The table of a bundle; a foreign bundle is logged and refused."""
    try:
        return dict(read_bundle(bundle))
    except Refusal as refusal:
        log.warning("a run is refused: %s", refusal)
        raise


@contextlib.contextmanager
def replies_of(most_bytes: int) -> Iterator[None]:
    """Tell the SuperLink how large a reply to the messages can be that are sent meanwhile."""
    before = _reply_bytes.set(most_bytes)
    try:
        yield
    finally:
        _reply_bytes.reset(before)


@dataclass(frozen=True)
class OwnersToken:
    """Flower's interceptor interface: adds the token of the SuperLink's owner to calls."""

    token: str

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        context.request.headers[TOKEN_HEADER] = self.token
        if (most := _reply_bytes.get()) is not None:
            context.request.headers[REPLY_HEADER] = str(most)
        return call_next(context)


@dataclass(frozen=True)
class Executor:
    """Flower's executor interface, for tasks of one type; `start` starts a process for a task."""

    task_type: Any
    start: Callable[[Any], object]

    def get_eligible_capacity(self, *args: object, **options: object) -> tuple[set[Any], set[str]]:
        return {self.task_type}, set()

    def wait_for_capacity(self, *args: object, **options: object) -> None:
        """Return at once: a process is always possible."""

    def launch(self, spec: Any) -> Any:
        from flwr.supercore.superexec.executor import LaunchResult

        if spec.task_type != self.task_type:
            return LaunchResult.failed(f"camu carries out no tasks of type {spec.task_type}")
        self.start(spec)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Collect the processes that have ended."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass

    def close(self) -> None:
        """Do nothing: tasks in progress end by themselves after this process."""


def run_executor(executor: Executor, client: type[Any], **options: Any) -> None:
    """Run Flower's loop that asks for tasks, with this executor and this client."""
    from flwr.supercore.superexec import run_superexec

    run = run_superexec.run_superexec
    replace(run_superexec, "RuntimeHttpClient", client, run)
    replace(run_superexec, "get_executor", lambda *_, **__: executor, run)
    run(**options)
