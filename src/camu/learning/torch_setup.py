"""What torch's kernels need: samples as tensors, checks of a model, and what decides the bits."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from camu.errors import CamuError, InputError
from camu.learning.kernel import BATCHED, Data, Provenance
from camu.learning.losses import Loss
from camu.learning.task import Task

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
Tensors = tuple[Tensor, Tensor]  # inputs and targets on the training device


def channels_last(images: Tensor) -> Tensor:
    """The images with channels as the last index in memory, which is quicker to convolve."""
    _, channels, height, width = images.shape
    if channels > 1:
        return images.contiguous(memory_format=torch.channels_last)
    # With one channel both orders are the same in memory, and torch goes by the strides.
    return images.as_strided(images.shape, (height * width, 1, width, 1))


def as_tensors(data: Data | None, device: torch.device) -> Tensors | None:
    """Inputs and targets on a device."""
    if data is None:
        return None
    # torch warns about read-only memory such as memory maps, so it is copied.
    arrays = [own if own.flags.writeable else own.copy() for own in (data.inputs, data.targets)]
    inputs, targets = (torch.from_numpy(own).to(device) for own in arrays)
    return inputs, targets


def check_outputs(task: Task, shape: tuple[int, ...], targets: Tensor, samples: int) -> None:
    """Refuse a model whose outputs do not fit the targets."""
    if task.target == "numbers":
        wanted: tuple[int, ...] = (samples, targets.shape[1])
        fits, words = shape == wanted, f"(samples, {targets.shape[1]})"
    else:
        classes, places = int(targets.max()) + 1, tuple(targets.shape[1:])
        width = shape[-1] if shape else 0
        enough = width == task.outputs if task.outputs else width >= classes
        fits = enough and shape[:-1] == (samples, *places)
        last = str(task.outputs or "classes")
        words = f"({', '.join(map(str, ('samples', *places, last)))})"
        words += "" if task.outputs else f" with {classes} classes"
    if not fits:
        raise InputError(
            f"training.model: for {samples} samples it gives an array of shape {shape}; it must be "
            f"{words}"
        )


def check_loss(name: str, loss: Loss, outputs: Tensor, targets: Tensor) -> None:
    """Refuse outputs and losses that no gradient can be taken of in single precision."""
    if outputs.dtype != torch.float32:
        kind = str(outputs.dtype)[6:]
        raise InputError(f"training.model: its outputs are {kind}; return float32: .float()")
    with torch.enable_grad():
        losses = loss(outputs.clone().requires_grad_(), targets)
    if losses.dtype != torch.float32:
        kind = str(losses.dtype)[6:]
        raise InputError(f"training.loss = {name}: it returned {kind}; return float32: .float()")
    if not losses.requires_grad:
        raise InputError(
            f"training.loss = {name}: what it returns does not have a gradient; compute it from "
            "the outputs by torch's operations, and by none that has no gradient, such as argmax"
        )


@contextlib.contextmanager
def unchanged_global_generators(device: torch.device) -> Iterator[None]:
    """Refuse draws from torch's global generators inside the block, and undo them."""
    cards = [device] if device.type == "cuda" else []

    def states() -> list[Tensor]:
        return [torch.random.get_rng_state(), *map(torch.cuda.get_rng_state, cards)]

    with torch.random.fork_rng(devices=cards):
        before = states()
        try:
            yield
        except CamuError:
            raise
        except Exception as error:
            raise CamuError(
                f"model: a pass over a few training images failed: {type(error).__name__}: {error}"
            ) from error
        if not all(map(torch.equal, before, states())):
            raise InputError(
                "model: it draws from torch's global generator in training, so its runs could not "
                "be repeated; use nn.Dropout layers, which are given a derived generator, and set "
                "dropout= of nn.LSTM, nn.GRU and attention to 0."
            )


def torch_provenance(device: str, wanted: str) -> Provenance:
    """What decides the bits of torch's layers on a device, for a value of `machine.kernel`."""
    where, instructions = device, ""
    if device == "cuda":
        where = f"cuda, {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    else:
        instructions = f"{torch.backends.cpu.get_cpu_capability()} {_processor_maker()}"
    kernel = "torch" if wanted == "torch" else BATCHED
    return Provenance(kernel, where, instructions, torch=str(torch.__version__))


def _processor_maker() -> str:
    """The maker of the processor: torch's matrix products differ with it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("vendor_id"):
                return line.split()[-1]
    return platform.machine()


def make_repeatable() -> None:
    """Let CUDA give the same bits in every run, and single precision: no TF32.

    These are settings of the whole process. An operation that has no repeatable form on a graphics
    card then fails with torch's error.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


@cache
def keep_memory() -> None:
    """Let glibc keep up to 256 MiB that are free, for all of this process.

    The tensors of a batched program come and go with each step. Memory that is given back between
    is taken again page by page, which is a tenth of a round of small units.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        limit = ctypes.CDLL(None).mallopt
        limit(_MMAP_THRESHOLD, 32 << 20)
        limit(_TRIM_THRESHOLD, 256 << 20)
