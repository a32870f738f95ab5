"""Compiles the kernels when a wheel is built or camu is installed for development.

Without a compiler, or with CAMU_PURE=1, the wheel is a pure one, and camu trains on torch's layers.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface[Any]):
    """Puts the compiled library into the wheel and names the platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds a wheel; `version` may be "editable"."""
        build = _module(Path(self.root) / "src/camu/learning/native/build.py")
        try:
            if os.environ.get("CAMU_PURE"):
                build.LIBRARY.unlink(missing_ok=True)
                raise build.CannotCompile("CAMU_PURE is set")
            build.compile_library(machine=_machine())
        except build.CannotCompile as error:
            print(f"camu: no compiled kernels, so torch's layers train: {error}", file=sys.stderr)
            return
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["artifacts"].append("src/camu/learning/native/*.so")


def _machine() -> str | None:
    """The processor that the wheel is for; a compiler for another one may be in use."""
    machine = sysconfig.get_platform().rpartition("-")[2]
    return None if machine == "universal2" else machine


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("camu_native_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
