"""Whether the compiled kernels compute rightly on this machine: a comparison with torch.

Loading torch takes longer than a small run, so a comparison that went well is noted beside the
cached data sets, and not repeated for the same library on the same machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from functools import cache
from importlib.metadata import version

import numpy as np

from camu.data.store import cache_root
from camu.errors import CamuError
from camu.files import write_json
from camu.learning import native
from camu.learning.cnn import CNN
from camu.seeding import derive

# Larger differences than this are no rounding.
TOLERANCE = 1e-3
_SAMPLES = 16
_NOTES = "kernel-checks.json"
_MOST_NOTES = 100


@cache
def trouble(shape: native.Shape, instructions: str) -> str | None:
    """Why the kernels cannot be trusted on this machine; None if they can."""
    key = _key(shape, instructions)
    notes = _read_notes()
    if key in notes:
        return None
    error = _gradient_error(shape, instructions)
    if not error <= TOLERANCE:
        return f"their gradient differs from torch's by {error:.1g}"
    _write_notes([*notes, key])
    return None


def _key(shape: native.Shape, instructions: str) -> str:
    """Everything that a comparison depends on."""
    library = hashlib.sha256(native.LIBRARY.read_bytes()).hexdigest()
    machine = (platform.node(), platform.release(), version("torch"), version("numpy"))
    text = repr((library, shape, instructions, machine))
    return hashlib.sha256(text.encode()).hexdigest()


def _read_notes() -> list[str]:
    """The comparisons that went well; none if there is no such file, or if it is damaged."""
    try:
        found = json.loads((cache_root() / _NOTES).read_text())
    except (OSError, ValueError, RecursionError):
        return []
    return [note for note in found if isinstance(note, str)] if isinstance(found, list) else []


def _write_notes(notes: list[str]) -> None:
    with contextlib.suppress(CamuError):  # without a note it is compared again next time
        write_json(cache_root() / _NOTES, notes[-_MOST_NOTES:])


def _gradient_error(shape: native.Shape, instructions: str) -> float:
    """The largest difference to torch's gradient, relative to its largest entry."""
    import torch
    import torch.nn.functional as F

    from camu.learning.models import PaperCNN

    images_shape = (shape.channels, shape.side, shape.side)
    generator = derive(0, "kernel-check").numpy()
    images = generator.integers(0, 256, (_SAMPLES, *images_shape), dtype=np.uint8)
    labels = generator.integers(0, shape.classes, _SAMPLES)
    start = CNN(images_shape, shape.classes, shape.norm).initial_weights(derive(0, "kernel-check"))
    model = PaperCNN(images_shape, shape.classes, shape.norm)
    start.load_into(model)
    pictures = torch.from_numpy(images).float() / 255
    F.cross_entropy(model(pictures), torch.from_numpy(labels)).backward()  # type: ignore[no-untyped-call]
    expected = np.concatenate(
        [p.grad.numpy().reshape(-1) for p in model.parameters() if p.grad is not None]
    )
    worker = native.Worker(shape, instructions)
    samples, order = native.Samples(images, labels), np.arange(_SAMPLES)
    found, _ = worker.gradient(samples, start.parameters, [order], [1.0])
    return float(np.abs(found - expected).max() / np.abs(expected).max())
