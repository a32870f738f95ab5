"""Without the extra, the command says in one sentence what to install."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest


def test_without_the_extra_one_sentence_says_what_to_install(
    camu: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "flwr" else find(name)
    )
    outcome = camu("deploy", "keys", "somewhere")
    assert outcome.code == 2
    assert "pip install 'camu-fl[flower]'" in outcome.err
