"""Compiles the kernels. It runs before camu is installed, so it imports nothing but the standard
library.

    python src/camu/learning/native/build.py [--out FILE] [--machine NAME] [FLAG ...]

Further flags go to the compiler, for example -fsanitize=address. CXX names the compiler; with
one for another processor, --machine is x86_64 or aarch64.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = HERE / "libcamu_kernels.so"

FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    # Neither changes a result: no error numbers for roots, no traps for comparisons.
    *("-fno-math-errno", "-fno-trapping-math"),
    *("-Wall", "-Wextra", "-Wno-psabi"),
    # gcc's own headers for AVX-512 leave values undefined on purpose.
    *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),
)
# The instruction sets of each kind of processor.
SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "avx2": ("-march=x86-64-v3",),
        "avx512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    },
    "aarch64": {"neon": ("-march=armv8-a",)},
}
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # as some systems call them

PLAIN = ("dispatch", "drawing", "sums")  # without special instructions
# They have numpy's bits, so a product and a sum are not joined where a processor could do that.
SEPARATE = "-ffp-contract=off"


class CannotCompile(Exception):
    """There is no usable compiler, or the processor is of another kind."""


def compile_library(
    target: Path = LIBRARY, flags: Sequence[str] = (), machine: str | None = None
) -> Path:
    """Compile the library to `target`, which appears only when it is complete."""
    target.unlink(missing_ok=True)
    machine = machine or platform.machine().lower()
    sets = SETS.get(_MACHINES.get(machine, machine))
    if sys.platform not in ("linux", "darwin") or sets is None:
        raise CannotCompile(
            f"the kernels are for Linux and macOS on x86-64 and aarch64, not {platform.platform()}"
        )
    compiler = _compiler()
    with tempfile.TemporaryDirectory() as directory:
        parts = Path(directory)
        for name, own in sets.items():
            _run(compiler, [*own, f"-DCAMU_SET={name}", *flags], "kernels.cc", parts / name)
        for name in PLAIN:
            _run(compiler, [SEPARATE, *flags], f"{name}.cc", parts / name)
        objects = [str(parts / name) for name in (*sets, *PLAIN)]
        whole = parts / "whole.so"
        needed = ["-Wl,--as-needed", "-lm"] if sys.platform == "linux" else []
        _call([compiler, "-shared", *flags, *objects, *needed, "-o", str(whole)])
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(whole, beside)
        beside.replace(target)
    return target


def _compiler() -> str:
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return found
    raise CannotCompile(f"no C++ compiler was found ({wanted or 'c++, g++ or clang++'})")


def _run(compiler: str, flags: Sequence[str], source: str, target: Path) -> None:
    _call([compiler, *FLAGS, *flags, "-c", str(HERE / source), "-o", str(target)])


def _call(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotCompile(f"{command[0]}: {error}") from error
    if done.returncode:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
        raise CannotCompile(f"{command[0]} failed: {said[0]}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    named = {"--out": str(LIBRARY), "--machine": ""}
    while arguments[:1] and arguments[0] in named:
        named[arguments[0]] = arguments[1]
        arguments = arguments[2:]
    try:
        print(compile_library(Path(named["--out"]), arguments, named["--machine"] or None))
    except CannotCompile as error:
        sys.exit(f"build.py: {error}")
