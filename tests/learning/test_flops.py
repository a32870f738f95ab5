"""FLOPs of a step: formulas against torch's counter, the counter against sums by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import camu
from camu.config import Config, load_config
from camu.data import dataset_spec
from camu.data.catalog import CATALOG
from camu.learning.cnn import full_shape
from camu.learning.flops import _counted, _of_products, _products, training_flops
from camu.learning.models import build_model
from camu.planning.codecs import parameter_count
from camu.schemes import FedAvg
from camu.seeding import derive
from camu.world import build_world

SHAPES = [(28, 28), (8, 8), (4, 4), (1, 15, 15), (3, 16, 16), (3, 32, 32), (2, 9, 31)]
MODELS = """
import torch
from torch import nn


class Frozen(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.body = nn.Linear(64, 30).requires_grad_(False)
        self.head = nn.Linear(30, outputs)

    def forward(self, images):
        return self.head(torch.relu(self.body(images.flatten(1))))


class Recurrent(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.cell, self.output = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, outputs)

    def forward(self, images):
        return self.output(self.cell(images.flatten(1, 2))[0][:, -1])


class Grouped(nn.Sequential):
    def __init__(self, shape, outputs):
        super().__init__(
            *(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3, groups=4), nn.ConvTranspose2d(16, 4, 2)),
            *(nn.Flatten(), nn.Linear(4 * 25, outputs)),
        )


class Scale(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(outputs))

    def forward(self, images):
        return self.scale * images.mean((1, 2, 3))[:, None]
"""


def own(name: str, folder: Path) -> Config:
    (folder / "mine.py").write_text(MODELS)
    return load_config(overrides={"training.model": f"{folder}/mine.py:{name}"})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normalisation", ["batch", "group", "none"])
@pytest.mark.parametrize("name", ["cnn", "resnet8", "logistic"])
def test_the_formula_counts_as_torch_does(
    name: str, shape: tuple[int, ...], normalisation: str
) -> None:
    for classes in (2, 10):
        products = _products(name, shape, classes, normalisation)
        assert products is not None
        module = build_model(name, shape, classes, normalisation, derive(0, "own-count"))
        with FlopCounterMode(display=False) as counter:
            module(torch.ones((3, *full_shape(shape)))).sum().backward()
        assert 3 * _of_products(products) == counter.get_total_flops()


@pytest.mark.parametrize("shape", [(6, 100), (1, 7), (12, 2)])
@pytest.mark.parametrize("name", ["mlp", "cnn1d", "svm", "linear"])
def test_the_formula_counts_series_as_torch_does(name: str, shape: tuple[int, ...]) -> None:
    for outputs in (1, 4):
        products = _products(name, shape, outputs, "batch")
        assert products is not None
        module = build_model(name, shape, outputs, "batch", derive(0, "own-count"))
        with FlopCounterMode(display=False) as counter:
            module(torch.ones((3, *shape))).sum().backward()
        assert 3 * _of_products(products) == counter.get_total_flops()


def test_the_paper_s_network_by_hand() -> None:
    """5x5 convolutions of 28x28 and 12x12 pixels to 10 and 20 channels, 320 to 50 to 10 numbers."""
    layers = [24 * 24 * 10 * 25, 8 * 8 * 20 * 10 * 25, 320 * 50, 50 * 10]
    forward, backward = 2 * sum(layers), 4 * sum(layers) - 2 * layers[0]
    paper = load_config(preset="paper")
    assert training_flops(paper) == forward + backward == 2_595_000
    logistic = paper.replace({"training.model": "logistic"})
    assert training_flops(logistic) == 2 * 2 * 784 * 10
    assert 2_595_000 / training_flops(logistic) == pytest.approx(83, abs=0.5)


def test_frozen_parts_are_neither_sent_nor_have_gradients(tmp_path: Path) -> None:
    config = own("Frozen", tmp_path).replace({"run.rounds": 1})
    # Forward twice; backward only the weights of the head: nothing flows further down.
    assert training_flops(config) == 2 * (64 * 30 + 30 * 10) + 2 * 30 * 10
    world = build_world(config)
    assert parameter_count(world) == 31 * 10
    assert {unit.payload_bits for unit in camu.plan(FedAvg(), world).units} == {32 * 310}
    result = camu.simulate(world, FedAvg())
    assert result.history.uplink_bits == 32 * 310 * world.devices.count


def test_recurrent_layers_are_counted_step_by_step(tmp_path: Path) -> None:
    """Four gates; the first state is known and needs no gradient."""
    inputs, hidden, steps = 8 * 64, 16 * 64, 8
    expected = 2 * (2 * steps * inputs + (3 * steps - 1) * hidden + 3 * 16 * 10)
    assert training_flops(own("Recurrent", tmp_path)) == expected
    assert torch.backends.mkldnn.enabled


def test_groups_of_channels_count_as_what_they_are(tmp_path: Path) -> None:
    """Torch's counter takes the gradient of weights for 4 times as large as it is here."""
    first, grouped = 36 * 9 * 8, 16 * 9 * 2 * 16
    transposed, linear = 16 * 4 * 16 * 4, 4 * 25 * 10
    expected = 2 * (2 * first + 3 * (grouped + transposed + linear))
    assert training_flops(own("Grouped", tmp_path)) == expected


def test_counting_draws_nothing_from_torch(tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    training_flops(own("Frozen", tmp_path))
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_model_without_products_needs_a_number(tmp_path: Path) -> None:
    with pytest.raises(camu.InputError, match=r"no products of matrices.*fleet\.cycles"):
        training_flops(own("Scale", tmp_path))


@pytest.mark.parametrize("model", ["logistic", "cnn", "resnet8"])
@pytest.mark.parametrize("per_cycle", [2.0, 0.25])
def test_auto_makes_cycles_of_flops(model: str, per_cycle: float) -> None:
    changes = {"training.model": model, "fleet.flops_per_cycle": per_cycle}
    config = load_config(overrides={"fleet.cycles_per_sample": "auto", **changes})
    world = build_world(config)
    assert set(world.devices.cycles_per_sample) == {training_flops(config) / per_cycle}
    assert not [words for words in world.warnings() if "cycles_per_sample" in words]


def test_a_number_that_is_far_off_is_told() -> None:
    counts = np.full((30, 10), 9)
    paper = load_config(preset="paper")
    assert build_world(paper, label_counts=counts).warnings() == []
    cheap = paper.replace({"training.model": "logistic"})
    (words,) = build_world(cheap, label_counts=counts).warnings()
    assert words.startswith(
        "fleet.cycles_per_sample = 2e+06 is 128 times what logistic needs on mnist (3.136e+04 "
    )
    assert words.endswith('set it to "auto"')
    deep = paper.replace({"training.model": "resnet8", "data.dataset": "cifar-10"})
    (words,) = build_world(deep, label_counts=counts).warnings()
    assert "is 0.054 times what resnet8 needs on cifar-10" in words


def test_auto_loads_no_torch() -> None:
    code = (
        "import sys, camu\n"
        "for model in ('cnn', 'logistic', 'resnet8', 'mlp'):\n"
        "    changes = {'training.model': model, 'fleet.cycles_per_sample': 'auto'}\n"
        "    config = camu.load_config(overrides=changes)\n"
        "    world = camu.build_world(config)\n"
        "    world.warnings()\n"
        "    camu.schemes.FedAvg().plan(world)\n"
        "from camu.learning.flops import training_flops\n"
        "text = {'training.model': 'gru', 'data.dataset': 'shakespeare'}\n"
        "training_flops(camu.load_config(overrides=text))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("dataset", ["basic-motions", "japanese-vowels", "shakespeare"])
def test_the_formula_of_a_gru_counts_as_torch_does(dataset: str) -> None:
    overrides = {"training.model": "gru", "data.dataset": dataset}
    config = load_config(overrides=overrides)
    assert training_flops(config) == _counted(config, dataset_spec(config.data))


def test_every_data_set_of_images_can_be_counted() -> None:
    for name in (spec.name for spec in CATALOG.values() if spec.inputs == "images"):
        assert training_flops(load_config(overrides={"data.dataset": name})) > 0
