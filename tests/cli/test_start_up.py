"""Commands load no library that they do not use: start-up takes a fraction of a second."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "numpy",
    "scipy",
    "pydantic",
    "pandas",
    "sklearn",
    "torch",
    "altair",
    "jinja2",
    "camu.allocation",
}
CODE = """
import sys
from camu.cli import app
app({arguments}, standalone_mode=False)
print("loaded", *sorted({heavy} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--help"], set()),
        (["plan", "--help"], set()),
        (
            ["plan", "--preset", "demo", "--scheme", "fedavg"],
            {"numpy", "pydantic", "camu.allocation"},
        ),
    ],
)
def test_a_command_loads_only_what_it_uses(arguments: list[str], allowed: set[str]) -> None:
    code = CODE.format(arguments=arguments, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert set(line.split()[1:]) <= allowed
