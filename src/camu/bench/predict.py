"""Seconds of a step from what it does: FLOPs, numbers that are moved, and a constant.

The three speeds are fitted to steps that were timed, with equal weight to relative errors, and none
is negative. A step is predicted by the speeds of all the others, so that no time predicts itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from camu.arrays import Float64
from camu.bench.measure import Step
from camu.config import Config
from camu.data import dataset_spec
from camu.learning.flops import watch_pass

FEWEST = 6  # steps of which one is predicted by the others


class _Moved(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the numbers that operations read and write; views move none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        aliases = [value.alias_info for value in func._schema.returns]
        if not any(alias is not None and not alias.is_write for alias in aliases):
            found = [part for part in tree_leaves((args, result)) if isinstance(part, torch.Tensor)]
            self.numbers += sum(tensor.numel() for tensor in found)
        return result


def moved_numbers(config: Config, samples: int) -> int:
    """Numbers that a step of the configured model reads and writes, forward and backward."""
    watcher = _Moved()
    watch_pass(config, dataset_spec(config.data), samples, watcher)
    return watcher.numbers


def leave_one_out(steps: Sequence[Step], moved: Sequence[int]) -> list[float]:
    """The seconds of each step by the speeds of the other ones."""
    work = np.array([[s.flops * s.samples, m, 1.0] for s, m in zip(steps, moved, strict=True)])
    seconds = np.array([step.seconds for step in steps])
    return [
        float(work[k] @ _speeds(np.delete(work, k, 0), np.delete(seconds, k)))
        for k in range(len(steps))
    ]


def _speeds(work: Float64, seconds: Float64) -> Float64:
    """Seconds per FLOP, per number, and per step."""
    rows = work / seconds[:, None]
    scale = rows.max(axis=0)
    found, _ = nnls(rows / scale, np.ones(len(rows)))
    return np.asarray(found / scale)
