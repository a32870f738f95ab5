"""Every scheme gives the bits it gave before: its weights' fingerprint on the preset demo.

`fingerprints.json` was made by running this file as a script; it names the torch version and the
processor's instruction set, because both change rounding.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from camu.config import load_config
from camu.schemes import make_scheme
from camu.simulation import simulate
from camu.world import build_world

FILE = Path(__file__).with_name("fingerprints.json")
KEPT = json.loads(FILE.read_text("utf-8"))
SAME_ROUNDING = (
    torch.__version__ == KEPT["torch"]
    and torch.backends.cpu.get_cpu_capability() == KEPT["capability"]
)


def measured(settings: list[str]) -> dict[str, float | str]:
    config = load_config(preset="demo", settings=["run.rounds=10", *settings])
    history = simulate(build_world(config), make_scheme(config)).history
    return {
        "weights_sha256": history.weights_sha256,
        "joules": history.final.total_joules,
        "virtual_seconds": history.final.virtual_seconds,
    }


SLOW = ("adaptive-tau", "camu, epoch")
CASES = [
    pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in KEPT["cases"]
]


@pytest.mark.parametrize("case", CASES)
def test_a_scheme_gives_the_bits_it_gave_before(case: str) -> None:
    kept = KEPT["cases"][case]
    now = measured(kept["settings"])
    assert now["joules"] == pytest.approx(kept["joules"], rel=1e-12)
    assert now["virtual_seconds"] == pytest.approx(kept["virtual_seconds"], rel=1e-12)
    if SAME_ROUNDING:
        assert now["weights_sha256"] == kept["weights_sha256"]


if __name__ == "__main__":
    cases = {
        name: {"settings": kept["settings"], **measured(kept["settings"])}
        for name, kept in KEPT["cases"].items()
    }
    version, capability = torch.__version__, torch.backends.cpu.get_cpu_capability()
    document = {"torch": version, "capability": capability, "cases": cases}
    FILE.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
