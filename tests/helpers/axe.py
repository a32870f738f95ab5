"""axe-core on an open page: what people with a screen reader or weak sight could not use."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"


@cache
def _source() -> str:
    if not SCRIPT.exists():
        pytest.skip(f"{SCRIPT} is absent; scripts/install-browser installs it")
    return SCRIPT.read_text(encoding="utf-8")


def violations(page: Any) -> list[str]:
    """What axe-core finds wrong on a page, a line for each rule."""
    page.evaluate(f"{_source()};0")
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 5  # it did look
    return [
        f"{rule['id']}: {rule['help']}: {[node['html'][:120] for node in rule['nodes'][:5]]}"
        for rule in found["violations"]
    ]
