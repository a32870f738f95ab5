"""A short part of `make torture`: see docs/reliability.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from torture.__main__ import bad_inputs, finished_run
from torture.flips import flips


@pytest.mark.slow
def test_bad_inputs_are_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tried, failures = bad_inputs(120, 1, tmp_path / "inputs")
    assert sum(tried.values()) == 120
    assert failures == []


@pytest.mark.slow
def test_flipped_bits_are_noticed(tmp_path: Path) -> None:
    tried, failures = flips(20, 1, tmp_path, finished_run(tmp_path / "run"))
    assert sum(tried.values()) == 20
    assert failures == []
