"""Temporary directories for one user alone, which the next start removes if their owner died."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "camu-deploy-"
OWNED = "owned"  # file that the owner holds a lock on; the system ends the lock with the owner
LONGEST_SOCKET_PATH = 100  # the system allows about 107 characters


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new directory of mode 700; directories of processes that are gone are removed first."""
    with _folder(tempfile.gettempdir()) as folder:
        yield folder


@contextlib.contextmanager
def socket_folder() -> Iterator[Path]:
    """A new directory of mode 700 with a path that is short enough for a unix socket."""
    usual = tempfile.gettempdir()
    short = len(f"{usual}/{PREFIX}12345678/runtime") <= LONGEST_SOCKET_PATH
    with _folder(usual if short else "/tmp") as folder:  # nosec B108
        yield folder


@contextlib.contextmanager
def _folder(parent: str) -> Iterator[Path]:
    remove_stale(Path(parent))
    with (
        tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True) as name,
        (Path(name) / OWNED).open("w") as lock,
    ):  # made with mode 700
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def remove_stale(parent: Path) -> None:
    """Remove this user's directories whose owner was killed, with the keys in them."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            ours = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
            if ours and _is_stale(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_stale(folder: Path) -> bool:
    """Whether nobody holds the lock; a directory without one is just being made, or not ours."""
    with (folder / OWNED).open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
