"""The roof for this machine: what a model asks for, and how fast large matrix products are."""

from __future__ import annotations

import copy
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from camu.bench.workloads import IMAGE
from camu.learning.pool import available_cores


def flops_per_sample(model: nn.Module, backward: bool = True) -> float:
    """Multiplications and additions that a model asks for, per sample, as torch counts them."""
    samples = 2  # batch norm needs more than one
    module = copy.deepcopy(model).train()
    with FlopCounterMode(display=False) as counter:
        logits = module(torch.zeros(samples, 1, *IMAGE))
        if backward:
            F.cross_entropy(logits, torch.zeros(samples, dtype=torch.int64)).backward()  # type: ignore[no-untyped-call]
    return float(counter.get_total_flops()) / samples


def sgemm_gflops(size: int = 1024, repetitions: int = 5) -> float:
    """The speed of a large float32 matrix product with all cores: the roof for this machine."""
    left = torch.ones(size, size)
    right = torch.ones(size, size)
    threads = torch.get_num_threads()
    torch.set_num_threads(available_cores())
    best = float("inf")
    for _ in range(repetitions):
        begin = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - begin)
    torch.set_num_threads(threads)
    return 2 * size**3 / best / 1e9
