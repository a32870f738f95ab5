"""Temporary directories with keys go with their owner, or with the next start after a SIGKILL."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from camu.deploy.host.processes import PREFIX, temporary_folder

OWNER = """
from camu.deploy.host.processes import temporary_folder
with temporary_folder() as folder:
    (folder / "node.key").write_text("secret")
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_next_start_removes_the_keys_of_a_killed_one_and_of_no_other(place: Path) -> None:
    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    (killed, stale), (alive, owned) = start(), start()
    strange = place / f"{PREFIX}strange"  # without an owner's lock: not made by camu
    strange.mkdir()
    link = place / f"{PREFIX}link"
    link.symlink_to(owned)
    killed.kill()
    killed.communicate()
    try:
        with temporary_folder() as folder:
            assert not stale.exists()
            assert (owned / "node.key").exists()
            assert strange.exists()
            assert link.exists()
            assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        alive.communicate("\n")
    assert not folder.exists()
    assert not owned.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")
def test_the_directories_of_other_users_stay(place: Path) -> None:
    folder = place / f"{PREFIX}other"
    folder.mkdir()
    (folder / "owned").touch()
    os.chown(folder, 65534, 65534)
    with temporary_folder():
        assert folder.exists()


def test_a_socket_gets_a_short_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place / ("long" * 30)))
    with temporary_folder(for_socket=True) as folder:
        assert len(str(folder / "runtime")) < 100
