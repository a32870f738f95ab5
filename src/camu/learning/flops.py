"""What a training step computes: floating-point operations per sample, forward and backward.

Products of matrices, convolutions and attention count, a multiplication and an addition as two, as
torch's counter has it; what is done once per number (activations, normalisation, the loss, the
step of the optimiser) is left out. A layer's backward pass is two products as large as its forward
pass, one for its weights and one for its inputs; the first layer needs none for the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from camu.config import Config
from camu.data import DatasetSpec, dataset_spec
from camu.errors import InputError
from camu.learning.cnn import (
    CHANNELS,
    CNN,
    FIRST_CHANNELS,
    HIDDEN,
    ImageShape,
    Normalisation,
    full_shape,
    sample_shape,
)
from camu.learning.layouts import EMBEDDED, KERNEL_1D, MLP_HIDDEN, SERIES_CHANNELS, STATE
from camu.learning.task import Task, task_of
from camu.plugins import import_object, is_plugin, user_code

_COUNTED_SAMPLES = 2  # batch norm in training needs more than one
_known: dict[tuple[Any, ...], float] = {}


def training_flops(config: Config) -> float:
    """FLOPs of one step of the configured model per sample: by formula, or by torch's counter."""
    name, spec, task = config.training.model, dataset_spec(config.data), task_of(config)
    # A class that was changed and loaded again has the same name and other layers.
    kind = import_object(name, "training.model") if is_plugin(name) else None
    normalisation = config.training.normalisation
    shape = sample_shape(spec)
    given = shape, task.outputs, task.target, spec.vocabulary, spec.inputs
    key = name, kind, *given, normalisation
    if key not in _known:
        products = _products(name, shape, task.outputs, normalisation)
        if name == "gru":
            _known[key] = _of_gru(shape, task)
        else:
            _known[key] = _counted(config, spec) if products is None else _of_products(products)
    return _known[key]


def _products(
    name: str, shape: tuple[int, ...], outputs: int, normalisation: str
) -> Sequence[int] | None:
    """Multiplications of the layers of a built-in model, the first one first; None: not known."""
    if name in ("logistic", "linear", "svm"):
        return [math.prod(shape) * outputs]
    if name == "mlp":
        return [math.prod(shape) * MLP_HIDDEN, MLP_HIDDEN**2, MLP_HIDDEN * outputs]
    if name == "cnn1d":
        first, second = SERIES_CHANNELS
        channels, length = shape
        halved = -(-length // 2)
        convolutions = length * channels * first, halved * first * second
        return [*(KERNEL_1D * numbers for numbers in convolutions), second * outputs]
    if name == "cnn":
        cnn = CNN(full_shape(shape), outputs, cast(Normalisation, normalisation))
        return list(_cnn_products(cnn))
    if name == "resnet8":
        return list(_resnet8_products(full_shape(shape), outputs))
    return None


def _cnn_products(cnn: CNN) -> Iterator[int]:
    sides: Sequence[int] = cnn.image_shape[1:]
    before = cnn.image_shape[0]
    for after in (FIRST_CHANNELS, CHANNELS):
        sides = [side + 2 * cnn.padding - cnn.kernel + 1 for side in sides]
        yield math.prod(sides) * before * after * cnn.kernel**2
        sides, before = [side // 2 for side in sides], after
    yield cnn.features * HIDDEN
    yield HIDDEN * cnn.classes


def _resnet8_products(shape: ImageShape, classes: int) -> Iterator[int]:
    """A convolution, three blocks of two and a shortcut where channels change, the classes."""
    sides, before = shape[1:], 16
    yield math.prod(sides) * 9 * shape[0] * before
    for after in (16, 32, 64):
        if before != after:
            sides = ((sides[0] + 1) // 2, (sides[1] + 1) // 2)
            yield math.prod(sides) * before * after
        yield math.prod(sides) * 9 * (before + after) * after
        before = after
    yield before * classes


def _of_products(products: Sequence[int]) -> float:
    first, *others = products
    return float(2 * (2 * first + 3 * sum(others)))


def _of_gru(shape: tuple[int, ...], task: Task) -> float:
    """Three gates of the input and of the state at each place; the first state is known."""
    tokens, everywhere = task.inputs == "tokens", task.target == "next-token"
    inputs, places = (EMBEDDED, shape[0]) if tokens else shape
    gates = 3 * STATE
    of_inputs = (3 if tokens else 2) * places * inputs * gates  # embeddings need a gradient
    of_states = (3 * places - 1) * STATE * gates
    return float(
        2 * (of_inputs + of_states + 3 * (places if everywhere else 1) * STATE * task.outputs)
    )


def _counted(config: Config, spec: DatasetSpec) -> float:
    """FLOPs of one step per sample by torch's counter."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    mapping = {torch.ops.aten.convolution_backward: convolution_backward_flops}
    counter = FlopCounterMode(display=False, custom_mapping=mapping)
    watch_pass(config, spec, _COUNTED_SAMPLES, counter)
    total = counter.get_total_flops()
    if not total:
        raise InputError(
            f"training.model = {config.training.model}: it has no products of matrices that could "
            "be counted; set fleet.cycles_per_sample to the cycles that a sample takes"
        )
    return total / _COUNTED_SAMPLES


def watch_pass(
    config: Config, spec: DatasetSpec, samples: int, watcher: AbstractContextManager[Any]
) -> None:
    """Send samples forward and backward through the configured model inside a context manager.

    No random number of the user's is drawn.
    """
    import torch

    from camu.learning.models import made_up_inputs, one_tensor, seeded_model

    model, inputs = seeded_model(config).train(), made_up_inputs(spec, samples)
    before = torch.backends.mkldnn.enabled
    if any(isinstance(part, torch.nn.RNNBase) for part in model.modules()):
        # oneDNN runs some of them as a whole, so that their operations are not seen.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        own = user_code(f"training.model = {config.training.model}", model)
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), own, watcher:
            one_tensor(model(inputs)).sum().backward()  # type: ignore[no-untyped-call]
    finally:
        torch.backends.mkldnn.enabled = before


def convolution_backward_flops(
    grad_shape: Sequence[int],
    x_shape: Sequence[int],
    weight_shape: Sequence[int],
    bias: object,
    stride: object,
    padding: object,
    dilation: object,
    transposed: bool,
    output_padding: object,
    groups: int,
    output_mask: Sequence[bool],
    out_shape: object = None,
) -> int:
    """FLOPs of the gradients of inputs and weights, each as many as forward.

    Torch's own count takes every group of channels as large as all of them.
    """
    from torch.utils.flop_counter import conv_flop_count

    inputs, weights, outputs = (list(one) for one in (x_shape, weight_shape, grad_shape))
    forward = conv_flop_count(inputs, weights, outputs, transposed=transposed)
    return forward * sum(output_mask[:2])
