"""The number of cores, also on systems that do not tell a process's own."""

from __future__ import annotations

import os

import pytest

from camu.learning.pool import available_cores


def test_cores_of_this_process_where_the_system_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert available_cores() == 3


def test_cores_of_the_machine_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert available_cores() == 7
