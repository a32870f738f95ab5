"""A configuration that runs in a second or two."""

from __future__ import annotations

from typing import Any

from camu.config import Config, load_config


def small(**changes: Any) -> Config:
    """Preset `demo` on two rounds and one worker; ``run__seed=3`` sets ``run.seed``."""
    base = {"run.rounds": 2, "run.eval_every": 1, "machine.workers": 1}
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return load_config(preset="demo").replace({**base, **dotted})
