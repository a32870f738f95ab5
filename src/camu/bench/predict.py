"""Seconds of a step from the operations that it consists of, at what operations cost here.

Costs are fitted to small networks that are timed for it (`camu.bench.probes`), with equal weight to
relative errors, and none is negative. The models whose steps are predicted are not among them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, shape_wrapper

from camu.arrays import Float64
from camu.bench.measure import time_step
from camu.bench.probes import PROBES
from camu.config import Config, load_config
from camu.data import dataset_spec
from camu.learning.configured import model_layout
from camu.learning.flops import convolution_backward_flops, watch_pass

# What an operation is made of; each has a cost of its own.
PARTS = (
    "steps",  # what happens once
    "operations",  # that are begun
    "convolutions",  # that are begun: they bring numbers into an order of their own
    "products",  # FLOPs in products of matrices
    "convolved",  # FLOPs in convolutions, with channels filled up to whole vectors
    "alone",  # FLOPs in convolutions of groups of channels
    "attended",  # products in attention
    "moved",  # numbers that are read and written
    "pooled",  # the same, by pooling
)
VECTOR = 16  # channels that convolutions compute together; a few inputs are not filled up
_FEW_CHANNELS = 4
_aten: Any = torch.ops.aten
_FLOPS: Any = {
    **flop_registry,
    _aten.convolution_backward: shape_wrapper(convolution_backward_flops),  # type: ignore[no-untyped-call]
}


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what operations are made of; views are none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parts = dict.fromkeys(PARTS, 0.0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        result = func(*args, **given)
        aliases = [value.alias_info for value in func._schema.returns]
        if any(alias is not None and not alias.is_write for alias in aliases):
            return result
        packet, parts = func._overloadpacket, self.parts
        parts["operations"] += 1
        found = [part for part in tree_leaves((args, result)) if isinstance(part, torch.Tensor)]
        moved = sum(tensor.numel() for tensor in found)
        parts["pooled" if "pool" in func.__name__ else "moved"] += moved
        if "attention" in func.__name__:
            parts["attended"] += args[0].numel() * args[1].shape[-2]
        elif packet in (_aten.convolution, _aten.convolution_backward):
            parts["convolutions"] += 1
            back = packet is _aten.convolution_backward
            weight, groups = (args[2], args[9]) if back else (args[1], args[8])
            flops = _FLOPS[packet](*args, **given, out_val=result)
            if groups == 1:
                parts["convolved"] += flops * _filled_up(weight)
            else:
                parts["alone"] += flops
        elif packet in _FLOPS:
            parts["products"] += _FLOPS[packet](*args, **given, out_val=result)
        return result


def _filled_up(weight: torch.Tensor) -> float:
    """By how much whole vectors of channels are more than the channels of a convolution."""
    after, before = weight.shape[:2]
    channels = [after] if before <= _FEW_CHANNELS else [after, before]
    return math.prod(math.ceil(own / VECTOR) * VECTOR / own for own in channels)


def parts_of_step(config: Config, samples: int) -> Float64:
    """What a step of the configured model is made of, in the order of `PARTS`."""
    spec, watcher = dataset_spec(config.data), _Operations()
    watch_pass(config, spec, samples, watcher)
    parts = watcher.parts
    parts["steps"] = 1.0
    # Inputs are gathered and scaled; gradients are cleared, added up, and added to parameters.
    parts["moved"] += 4 * samples * math.prod(spec.shape)
    parts["moved"] += 6 * model_layout(config).parameter_count
    return np.array(list(parts.values()))


def costs_of_parts(samples: int) -> Float64:
    """Seconds of each part here, by steps of networks that are timed for it, small and large."""
    work, seconds = [], []
    for name in PROBES:
        own = {"training.model": f"camu.bench.probes:{name}", "data.dataset": "mnist"}
        config = load_config(overrides={**own, "machine.kernel": "torch"})
        for count in (max(2, samples // 4), samples):
            seconds.append(time_step(config, count, repetitions=5).seconds)
            work.append(parts_of_step(config, count))
    return fitted(np.array(work), np.array(seconds))


def fitted(work: Float64, seconds: Float64) -> Float64:
    """The costs of parts, one to a column, whose sums are nearest to the seconds."""
    rows = work / seconds[:, None]
    scale = np.maximum(rows.max(axis=0), np.finfo(float).tiny)
    found, _ = nnls(rows / scale, np.ones(len(rows)))
    return np.asarray(found / scale)
