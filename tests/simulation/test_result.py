"""A result's model is an ordinary torch module that predicts as the engine evaluates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import camu
from camu.learning.engine import Engine
from camu.learning.models import seeded_model
from camu.learning.weights import Weights

OWN = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, image_shape, classes):
        channels, height, width = image_shape
        super().__init__(
            nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(),
            nn.Linear(4 * (height - 2) * (width - 2), classes),
        )
"""


def trained(config: camu.Config, images: torch.Tensor, labels: torch.Tensor) -> Weights:
    """Weights after a few steps of plain torch, so that nothing is as at the start."""
    module = seeded_model(config)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(images), labels).backward()
        optimiser.step()
    return Weights.of(module)


@pytest.mark.parametrize(("dataset", "side"), [("digits", 8), ("mnist", 28)])
@pytest.mark.parametrize(
    ("model", "normalisation"),
    [("cnn", "batch"), ("cnn", "group"), ("cnn", "none"), ("logistic", "none"), ("own", "none")],
)
def test_the_model_predicts_as_the_engine_evaluates(
    dataset: str, side: int, model: str, normalisation: str, tmp_path: Path
) -> None:
    if model == "own":
        (tmp_path / "own.py").write_text(OWN)
        model = f"{tmp_path}/own.py:Net"
    changes = {"data.dataset": dataset, "training.model": model, "machine.workers": 1}
    changes["training.normalisation"] = normalisation
    config = camu.load_config(preset="demo", overrides=changes)
    numbers = np.random.default_rng(4)
    pixels = numbers.integers(0, 256, (200, side, side), dtype=np.uint8)
    labels = numbers.integers(0, 10, 200)
    images, answers = torch.from_numpy(pixels[:, None]).float() / 255, torch.from_numpy(labels)
    weights = trained(config, images, answers)
    nothing: Any = None
    result = camu.Result(nothing, nothing, config, weights)
    with Engine.from_config(config, test=(pixels, labels)) as engine:
        ours = engine.evaluate(weights)
        accuracy, loss = ours.accuracy, ours.loss
    module = result.model()
    assert not module.training
    with torch.no_grad():
        logits = module(images)
    assert int((logits.argmax(1) == answers).sum()) / len(labels) == accuracy
    assert float(nn.functional.cross_entropy(logits, answers)) == pytest.approx(loss, abs=1e-5)
    reference = seeded_model(config)
    weights.load_into(reference)
    with torch.no_grad():
        assert torch.allclose(logits, reference.eval()(images), atol=1e-5)
    state = result.state_dict()
    assert all(torch.equal(state[name], value) for name, value in module.state_dict().items())
    if model == "cnn":
        kinds = [type(layer) for layer in module.children()]
        assert kinds[:4] == [nn.Conv2d, nn.MaxPool2d, nn.Conv2d, nn.MaxPool2d]


def test_results_and_plans_show_tables_in_notebooks() -> None:
    class Mine(camu.schemes.FedAvg):
        name = "<b>mine</b>"

    overrides = {"run.rounds": 2, "machine.workers": 1, "data.samples_per_device": 30}
    world = camu.build_world(camu.load_config(preset="demo", overrides=overrides))
    result = camu.simulate(world, Mine())
    page = result.plan._repr_html_()
    assert page.count("<tr>") == 1 + len(result.plan.units)
    assert "&lt;b&gt;mine&lt;/b&gt;: 20 units, 20 devices" in page
    assert f"{result.plan.round_joules:.4g} J" in page
    assert "<b>" not in page
    assert result._repr_html_() == result.history._repr_html_() + page


def test_simulate_says_what_it_takes() -> None:
    config = camu.load_config(preset="demo")
    world = camu.build_world(config)
    with pytest.raises(camu.InputError, match="first argument is a world"):
        camu.simulate(config, camu.schemes.FedAvg())  # type: ignore[arg-type]
    for scheme in ("camu", camu.schemes.FedAvg):
        with pytest.raises(camu.InputError, match="second argument is a scheme"):
            camu.simulate(world, scheme)  # type: ignore[arg-type]
