"""What is trained on: checked samples, and the samples of devices, cut into passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.arrays import Int64
from camu.errors import InputError

# A fused pass takes devices until it holds this many samples; one device is never divided, unless
# the model's samples do not see each other.
MICRO_BATCH_SAMPLES = 512


@dataclass(frozen=True, eq=False)
class Data:
    """Contiguous images, uint8 ``(n, channels, height, width)``, and their labels."""

    images: npt.NDArray[np.uint8]
    labels: Int64

    @classmethod
    def of(
        cls, what: str, images: npt.NDArray[np.uint8] | None, labels: npt.ArrayLike | None
    ) -> Data | None:
        """Checked images and labels; None if there are none."""
        if images is None or labels is None:
            return None
        pictures = np.ascontiguousarray(images)
        if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4):
            raise InputError(
                f"{what}_images: {pictures.dtype} of shape {pictures.shape} was given; they must "
                "be uint8 (n, height, width) or (n, channels, height, width)."
            )
        numbers = np.ascontiguousarray(labels, dtype=np.int64)
        if numbers.shape != (len(pictures),) or not len(pictures) or numbers.min() < 0:
            raise InputError(
                f"{what}_labels: {numbers.shape} labels were given for {len(pictures)} images; "
                "give one label from 0 upwards per image, and at least one image."
            )
        return cls(pictures[:, None] if pictures.ndim == 3 else pictures, numbers)


@dataclass(frozen=True)
class DeviceBatch:
    """One device's samples in a step, and the weight of their mean in the step's gradient."""

    device: int
    indices: Int64
    weight: float


def micro_batches(
    parts: Sequence[DeviceBatch], fused: bool, mixes_samples: bool
) -> list[list[DeviceBatch]]:
    """Cut the parts of a step into passes of bounded size, devices whole where that matters."""
    if not fused:
        return [[part] for part in parts]
    if not mixes_samples:
        parts = [piece for part in parts for piece in _pieces(part)]
    else:
        # Batch norm is quickest where devices with equally many samples are neighbours.
        parts = sorted(parts, key=lambda part: -len(part.indices))
    groups: list[list[DeviceBatch]] = []
    room = 0
    for part in parts:
        if not groups or len(part.indices) > room:
            groups.append([])
            room = MICRO_BATCH_SAMPLES
        groups[-1].append(part)
        room -= len(part.indices)
    return groups


def _pieces(part: DeviceBatch) -> list[DeviceBatch]:
    """Cut one device's samples into pieces whose weighted means add up to its own."""
    count = len(part.indices)
    return [
        DeviceBatch(part.device, piece, part.weight * len(piece) / count)
        for start in range(0, count, MICRO_BATCH_SAMPLES)
        for piece in [part.indices[start : start + MICRO_BATCH_SAMPLES]]
    ]
