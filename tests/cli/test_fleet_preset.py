"""What a fleet file leaves open comes from the same preset in every command and in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from camu import load_config, read_fleet
from camu.errors import CamuError

FLEET = Path(__file__).parents[2] / "docs" / "examples" / "fleet.csv"
EXPECTED = load_config(preset="demo").replace({"fleet.file": str(FLEET)})


@pytest.mark.parametrize(
    "command",
    [
        ("plan",),
        ("run",),
        ("live", "--no-browser"),
        ("compare",),
        ("forecast", "--target", "0.9"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_with_a_fleet_file_takes_the_preset_demo(
    command: tuple[str, ...], camu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import camu.config as config

    loaded = []

    def load_and_stop(*arguments: Any) -> None:
        loaded.append(load_config(*arguments))
        raise CamuError("stop here")

    monkeypatch.setattr(config, "load_config", load_and_stop)
    assert "stop here" in camu(*command, "--fleet", FLEET).err
    assert loaded == [EXPECTED]


def test_a_fleet_file_read_in_python_takes_the_preset_demo() -> None:
    assert read_fleet(FLEET).config == EXPECTED
