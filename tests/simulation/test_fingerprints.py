"""Every scheme gives the bits it gave before: its weights' fingerprint on the preset demo.

`fingerprints.json` was made by running this file as a script. There is a fingerprint per kernel,
with what changes its rounding: torch's version and instruction set, or the compiler.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest
import torch

from camu.config import load_config
from camu.learning import native
from camu.schemes import make_scheme
from camu.simulation import simulate
from camu.world import build_world

FILE = Path(__file__).with_name("fingerprints.json")
KEPT = json.loads(FILE.read_text("utf-8"))


def kernels() -> dict[str, str]:
    """The kernels of this machine, each with what changes its rounding."""
    capability = torch.backends.cpu.get_cpu_capability()
    found = {"torch": f"{torch.__version__} {capability} {vendor()}"}
    loaded = native.library()
    for name in native.INSTRUCTION_SETS:
        if loaded is not None and loaded.camu_supports(name.encode()):
            found[f"native {name}"] = native.compiler()
    return found


def vendor() -> str:
    """The processor's maker: torch's matrix products differ with it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split()[-1] for line in lines if line.startswith("vendor_id")), "unknown")


def measured(settings: list[str], kernel: str) -> dict[str, float | str]:
    config = load_config(
        preset="demo", settings=["run.rounds=10", f"machine.kernel={kernel.split()[0]}", *settings]
    )
    history = simulate(build_world(config), make_scheme(config)).history
    return {
        "weights_sha256": history.weights_sha256,
        "joules": history.final.total_joules,
        "virtual_seconds": history.final.virtual_seconds,
    }


# Each kernel rounds in its own way, and a few schemes show that; the best kernel does them all.
BEST = list(kernels())[-1] if len(kernels()) == 1 else f"native {native.instruction_set()}"
SLOW = ("adaptive-tau", "camu, epoch")
CASES = [
    pytest.param(
        case,
        kernel,
        marks=[pytest.mark.slow] if case in SLOW or (kernel == "torch" != BEST) else [],
    )
    for kernel in kernels()
    for case in KEPT["cases"]
    if kernel == BEST or case in ("fedavg", "camu", "fedavg, group norm, l2, digital")
]


@pytest.mark.parametrize(("case", "kernel"), CASES)
def test_a_scheme_gives_the_bits_it_gave_before(
    case: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel != "torch":
        monkeypatch.setenv(native.LIMIT, kernel.split()[1])
    kept = KEPT["cases"][case]
    now = measured(kept["settings"], kernel)
    assert now["joules"] == pytest.approx(kept["joules"], rel=1e-12)
    assert now["virtual_seconds"] == pytest.approx(kept["virtual_seconds"], rel=1e-12)
    here, there = kernels()[kernel], KEPT["rounding"].get(kernel)
    if here != there:
        pytest.skip(f"joules and seconds agree; the bits are kept for {there}, not for {here}")
    assert now["weights_sha256"] == kept["weights_sha256"][kernel]


if __name__ == "__main__":
    cases = {}
    for name, kept in KEPT["cases"].items():
        fingerprints = {}
        for kernel in kernels():
            os.environ[native.LIMIT] = kernel.removeprefix("native ").replace("torch", "")
            result = measured(kept["settings"], kernel)
            fingerprints[kernel] = result["weights_sha256"]
        cases[name] = {
            "settings": kept["settings"],
            **result,
            "weights_sha256": fingerprints,
        }
    document = {"rounding": kernels(), "cases": cases}
    FILE.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
