"""The paper's CNN as numbers, without torch: its sizes, its layout, and its initial weights.

Training on compiled kernels needs no torch, which takes longer to load than a small run takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from camu.arrays import Float32
from camu.config import Config
from camu.data import DatasetSpec, dataset_spec
from camu.errors import InputError
from camu.learning.task import task_of
from camu.learning.weights import Entry, Layout, Weights
from camu.seeding import Stream, derive

Normalisation = Literal["batch", "group", "none"]
ImageShape = tuple[int, int, int]

NORMALISATIONS = ("batch", "group", "none")
# Below this many pixels a side, two 5x5 convolutions with pooling would leave nothing over.
SMALL_IMAGE_PIXELS = 16
FIRST_CHANNELS, CHANNELS, HIDDEN = 10, 20, 50


@dataclass(frozen=True)
class CNN:
    """Convolution 10, pool, convolution 20, pool, normalisation, 50 hidden units, classes.

    On 28x28 images the kernels are 5x5 without padding: 21 880 parameters with batch norm. Images
    of less than 16 pixels a side get 3x3 kernels with padding, so that only pooling shrinks them.
    """

    image_shape: ImageShape
    classes: int
    normalisation: Normalisation = "batch"

    def __post_init__(self) -> None:
        _, height, width = self.image_shape
        if min(height, width) < 4:
            raise InputError(
                f"model: the CNN needs images of at least 4x4 pixels, these have {height}x{width}; "
                'use model "logistic".'
            )
        if self.normalisation not in NORMALISATIONS:
            raise InputError(
                f'normalisation: {self.normalisation!r} is unknown; use "batch", "group" or "none".'
            )

    @property
    def kernel(self) -> int:
        """Pixels of a side of the kernels."""
        return 3 if min(self.image_shape[1:]) < SMALL_IMAGE_PIXELS else 5

    @property
    def padding(self) -> int:
        """Pixels that are added to each side before a convolution."""
        return 1 if self.kernel == 3 else 0

    @property
    def features(self) -> int:
        """How many numbers the second pooling leaves."""
        sides: tuple[int, ...] = self.image_shape[1:]
        for _ in range(2):
            sides = tuple((side + 2 * self.padding - self.kernel + 1) // 2 for side in sides)
        return CHANNELS * math.prod(sides)

    @cached_property
    def layout(self) -> Layout:
        """Names and shapes of its state, as torch's layers have them."""
        norm = () if self.normalisation == "none" else ("norm.weight", "norm.bias")
        carried = ("norm.running_mean", "norm.running_var") if self.normalisation == "batch" else ()
        first, second, hidden, output = self._weighted()
        norms = [Entry(name, (CHANNELS,)) for name in norm]
        return Layout(
            (*first, *second, *norms, *hidden, *output),
            tuple(Entry(name, (CHANNELS,)) for name in carried),
        )

    def _weighted(self) -> Iterator[tuple[Entry, Entry]]:
        """Weights and biases of the layers that have them, in order."""
        square = (self.kernel, self.kernel)
        shapes: dict[str, tuple[int, ...]] = {
            "conv1": (FIRST_CHANNELS, self.image_shape[0], *square),
            "conv2": (CHANNELS, FIRST_CHANNELS, *square),
            "hidden": (HIDDEN, self.features),
            "output": (self.classes, HIDDEN),
        }
        for name, shape in shapes.items():
            yield Entry(f"{name}.weight", shape), Entry(f"{name}.bias", shape[:1])

    def initial_weights(self, stream: Stream) -> Weights:
        """The weights that torch's layers would start with, bit by bit."""
        state = stream.mersenne_twister()
        drawn: dict[str, Float32] = {}
        for weight, bias in self._weighted():
            inputs = weight.size // weight.shape[0]
            # As torch computes both bounds; they may differ in the last place.
            bound = math.sqrt(3.0) * (math.sqrt(2.0 / 6.0) / math.sqrt(inputs))
            drawn[weight.name] = _torch_uniform(state, weight, bound)
            drawn[bias.name] = _torch_uniform(state, bias, 1 / math.sqrt(inputs))
        ones, zeros = np.ones(CHANNELS, np.float32), np.zeros(CHANNELS, np.float32)
        drawn |= {"norm.weight": ones, "norm.bias": zeros}
        drawn |= {"norm.running_mean": zeros, "norm.running_var": ones}
        return Weights.from_tensors(drawn, self.layout)


def _torch_uniform(state: np.random.RandomState, entry: Entry, bound: float) -> Float32:
    """The numbers from -bound to bound that torch draws from a Mersenne twister on the CPU.

    Each takes 24 random bits, scaled in double precision.
    """
    words = np.frombuffer(state.bytes(4 * entry.size), dtype="<u4")
    low, high = float(np.float32(-bound)), float(np.float32(bound))
    numbers = (words & 0xFFFFFF) * 2.0**-24 * (high - low) + low
    return numbers.astype(np.float32).reshape(entry.shape)


@dataclass(frozen=True)
class SeededCNN:
    """The paper's CNN with the weights of a stream."""

    cnn: CNN
    stream: Stream

    def weights(self) -> Weights:
        """Its initial weights."""
        return self.cnn.initial_weights(self.stream)


def seeded_cnn(config: Config) -> SeededCNN | None:
    """The configured model with its initial weights; None if it is not the paper's CNN."""
    if config.training.model != "cnn":
        return None
    spec, task = dataset_spec(config.data), task_of(config)
    cnn = CNN(full_shape(spec.shape), task.outputs, config.training.normalisation)
    return SeededCNN(cnn, model_stream(config))


def model_stream(config: Config) -> Stream:
    """Where the initial weights of the configured model come from, whichever it is."""
    return derive(config.run.seed, "model")


def sample_shape(spec: DatasetSpec) -> tuple[int, ...]:
    """The shape of one sample as models get it: of images always with channels."""
    return full_shape(spec.shape) if spec.inputs == "images" else spec.shape


def full_shape(image_shape: tuple[int, ...]) -> ImageShape:
    """(channels, height, width) of images that may be given without channels."""
    if len(image_shape) == 2:
        return (1, int(image_shape[0]), int(image_shape[1]))
    if len(image_shape) == 3:
        return (int(image_shape[0]), int(image_shape[1]), int(image_shape[2]))
    raise InputError(
        f"image_shape: {image_shape} is neither (height, width) nor (channels, height, width)."
    )
