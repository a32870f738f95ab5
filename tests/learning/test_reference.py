"""The gradient in plain numpy is that of torch's layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from camu.learning.cnn import CNN, NORMALISATIONS, ImageShape
from camu.learning.networks import PaperCNN
from camu.learning.reference import reference_gradient
from camu.seeding import derive


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 8, 8), (3, 32, 32), (2, 7, 9)])
def test_the_reference_agrees_with_torch_in_double_precision(
    shape: ImageShape, normalisation: str
) -> None:
    cnn = CNN(shape, 7, normalisation)  # type: ignore[arg-type]
    draw = derive(3, "kernel-check").numpy()
    images = draw.integers(0, 256, (9, *shape), dtype=np.uint8)
    labels = draw.integers(0, 7, 9)
    weights = cnn.initial_weights(derive(1, "kernel-check"))
    model = PaperCNN(shape, 7, cnn.normalisation)
    weights.load_into(model)
    model = model.double()
    loss = F.cross_entropy(model(torch.from_numpy(images).double() / 255), torch.from_numpy(labels))
    loss.backward()  # type: ignore[no-untyped-call]
    expected = np.concatenate(
        [part.grad.numpy().reshape(-1) for part in model.parameters() if part.grad is not None]
    )
    found = reference_gradient(cnn, weights, images, labels)
    assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()
