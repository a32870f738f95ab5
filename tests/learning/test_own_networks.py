"""Dropout, embeddings, recurrent state, tied weights, frozen parts and LoRA adapters."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import camu as package
from camu.config import Config, load_config
from camu.errors import InputError
from camu.learning.configured import model_layout
from camu.planning.codecs import parameter_count
from camu.schemes import FedAvg, LocalSgd
from camu.simulation import simulate
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.export import load_model
from camu.simulation.result import read_start
from camu.world import build_world

DATA = """
import numpy as np

from camu.data import load


def negatives():
    data = load("digits")
    train, test = 255 - data.train_inputs, 255 - data.test_inputs
    return (train, data.train_labels), (test, data.test_labels)


def series():
    draw = np.random.default_rng(0)
    labels = np.arange(240) % 4
    inputs = draw.normal(size=(240, 3, 12)) + labels[:, None, None] * [[[1.0], [-1.0], [0]]]
    return (inputs[:120], labels[:120]), (inputs[120:], labels[120:])


def text():
    starts = np.random.default_rng(0).integers(0, 8, (120, 1))
    tokens = (starts + np.arange(13)) % 8  # the next token is the one that follows
    return (tokens[:80], None), (tokens[80:], None)
"""
SETTINGS: dict[str, Any] = {
    "fleet.regions": [{"name": "A", "devices": 3, "x": [0, 9], "y": [0, 9]}],
    "data.partition": "iid",
    "data.samples_per_device": 20,
    "training.local_update": "epoch",
    "training.batch_samples": 5,
    "training.learning_rate": 0.3,
    "scheme.name": "local-sgd",
    "run.rounds": 15,
    "run.eval_every": 15,
    "machine.workers": 1,
}
# Data, parameters that are trained and sent, what a constant predictor has, and what is learned.
NETWORKS = {
    "Dropping": ("text", 8 * 6 + 7 * 8, 0.2, 0.5),
    "Recurrent": ("series", 4 * 5 * (3 + 5 + 2) + 4 * 5 * (5 + 5 + 2) + 6 * 4, 0.25, 0.4),
    "Tied": ("text", 8 * 7 + 8 * 7 + 8, 0.2, 0.5),
    "Frozen": ("series", 10 * 4, 0.25, 0.5),
}
LORA = Path(__file__).parents[2] / "docs" / "examples" / "adapters.py"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(DATA)
    shutil.copy(Path(__file__).parents[1] / "helpers" / "own_networks.py", tmp_path)
    shutil.copy(LORA, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own(network: str, data: str, **changes: Any) -> Config:
    """A configuration with a model of the user's; __ for dots."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    names = {"data.dataset": f"./mine.py:{data}", "training.model": f"./own_networks.py:{network}"}
    return load_config(preset="devices", overrides={**SETTINGS, **names, **dotted})


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_learns_sends_what_is_trained_and_is_read_back(
    network: str, folder: Path, camu: Callable[..., Any]
) -> None:
    data, parameters, constant, learned = NETWORKS[network]
    config = own(network, data)
    world = build_world(config)
    assert parameter_count(world) == parameters
    assert {unit.payload_bits for unit in LocalSgd().plan(world).units} == {32 * parameters}
    out = RunDirectory(folder / "run")
    result = run_in_directory(config, out)
    history = out.read_history()
    assert history.final_score is not None
    assert history.final_score > learned > 1.5 * constant
    assert result is not None

    module = load_model(out.path)  # as the file has it, by every name
    names = set(module.state_dict())
    assert set(load_file(out.model)) == names
    start = read_start(out.model, config)
    assert start.weights.sha256() == history.weights_sha256
    inputs = world.federation.dataset.test_inputs[:5]
    given = torch.from_numpy(inputs) if data == "text" else torch.from_numpy(inputs).float()
    assert camu("export", out.path, "--to", "model.pt2").code == 0
    program = torch.export.load(folder / "model.pt2").module()
    torch.testing.assert_close(program(given), module(given))


@pytest.mark.parametrize("network", NETWORKS)
def test_any_number_of_workers_gives_the_same_bits(network: str) -> None:
    data = NETWORKS[network][0]
    found = set()
    for workers in (1, 2, 3):
        config = own(network, data, run__rounds=3, machine__workers=workers)
        result = simulate(build_world(config), LocalSgd())
        found.add(result.weights.sha256())
        assert result.weights.parameters.any()
    assert len(found) == 1


def test_a_network_goes_on_from_its_own_model(folder: Path) -> None:
    """Tied and frozen parts, too: `--start` gives what the run ended with."""
    for network in ("Tied", "Frozen"):
        config = own(network, NETWORKS[network][0], run__rounds=1)
        first = RunDirectory(folder / network)
        run_in_directory(config, first)
        start = read_start(first.model, config)
        second = RunDirectory(folder / f"{network}-again")
        run_in_directory(config.replace({"run.seed": 1}), second, start=start)
        one, other = first.read_history(), second.read_history()
        assert other.records[0].loss == pytest.approx(one.final.loss, rel=1e-5)


def test_dropout_draws_by_device_and_round_and_is_off_when_tested() -> None:
    config = own("Dropping", "text", run__rounds=2)
    one = simulate(build_world(config), LocalSgd())
    other = simulate(build_world(config), LocalSgd())
    assert one.weights.sha256() == other.weights.sha256()
    module = one.model()
    tokens = torch.arange(8)[None]
    assert torch.equal(module(tokens), module(tokens))


def test_dropout_inside_a_recurrent_layer_is_refused_with_what_to_do() -> None:
    config = own("RecurrentWithDropout", "series")
    with pytest.raises(InputError, match=r"use nn\.Dropout.* dropout= of nn\.LSTM, nn\.GRU.* to 0"):
        simulate(build_world(config), LocalSgd())


def test_tied_weights_are_one_parameter_with_the_gradients_of_both_uses(folder: Path) -> None:
    config = own("Tied", "text", run__rounds=1, training__batch_samples=20)
    layout = model_layout(config)
    assert [entry.name for entry in layout.parameters] == [
        *("embedding.weight", "middle.weight", "middle.bias", "output.bias"),
    ]
    world = build_world(config)
    result = simulate(world, LocalSgd(1))
    module = result.model()
    assert module.output.weight is module.embedding.weight
    # The same epoch by torch's own optimiser; all samples of a device are one batch.
    federation = world.federation
    start = package.learning.models.seeded_model(config)
    models = []
    for indices in federation.indices:
        copy = package.learning.models.seeded_model(config)
        optimiser = torch.optim.SGD(copy.parameters(), lr=0.3)
        tokens = torch.from_numpy(federation.dataset.train_inputs[indices])
        targets = torch.from_numpy(federation.dataset.train_targets[indices])
        outputs = copy(tokens).transpose(1, 2)
        torch.nn.functional.cross_entropy(outputs, targets).backward()
        optimiser.step()
        models.append(copy.embedding.weight.detach())
    expected = torch.stack(models).mean(0)
    assert not torch.allclose(expected, start.embedding.weight)
    torch.testing.assert_close(module.embedding.weight.detach(), expected, rtol=1e-5, atol=1e-6)


def test_frozen_parts_stay_as_they_are_in_checkpoints_and_in_the_file(folder: Path) -> None:
    config = own("Frozen", "series", run__rounds=4)
    before = package.learning.models.seeded_model(config).state_dict()
    out = RunDirectory(folder / "run")
    run_in_directory(config, out)
    after = load_file(out.model)
    for name in ("body.weight", "body.bias", "norm.weight", "norm.bias"):
        np.testing.assert_array_equal(after[name], before[name].numpy())
    assert not np.array_equal(after["head.weight"], before["head.weight"].numpy())
    assert not np.array_equal(after["norm.running_mean"], before["norm.running_mean"].numpy())


@pytest.mark.slow
def test_lora_adapters_are_all_that_is_sent_and_help_a_model_that_was_trained_before(
    folder: Path,
) -> None:
    base = load_config(
        preset="devices",
        overrides={**SETTINGS, "data.samples_per_device": 60, "training.learning_rate": 0.1},
    ).replace({"training.model": "mlp", "run.rounds": 20})
    first = RunDirectory(folder / "base")
    run_in_directory(base, first)
    save_file(load_file(first.model), folder / "backbone.safetensors")
    changes = {"training.model": "./adapters.py:Net", "data.dataset": "./mine.py:negatives"}
    slower = {"run.rounds": 60, "training.learning_rate": 0.03}
    world = build_world(base.replace({**changes, **slower}))
    adapters = 4 * ((64 + 200) + (200 + 200) + (200 + 10))
    assert parameter_count(world) == adapters
    assert adapters < 0.07 * parameter_count(build_world(base))
    assert {unit.payload_bits for unit in LocalSgd().plan(world).units} == {32 * adapters}
    result = simulate(world, LocalSgd())
    accuracies = [record.accuracy for record in result.history.evaluated]
    assert accuracies[0] is not None
    assert accuracies[-1] is not None
    assert accuracies[0] < 0.3  # B is 0 at first, and the model knows no negatives
    assert accuracies[-1] > accuracies[0] + 0.3
    assert accuracies[-1] > 0.5
    assert math.prod(result.weights.parameters.shape) == adapters
    backbone = load_file(folder / "backbone.safetensors")
    state = {name: tensor.numpy() for name, tensor in result.state_dict().items()}
    for name, array in backbone.items():
        layer, _, kind = name.partition(".")
        np.testing.assert_array_equal(state[f"adapted.{layer}.layer.{kind}"], array)


def test_fedavg_takes_frozen_models_too() -> None:
    config = own("Frozen", "series", run__rounds=1, training__local_update="step")
    assert simulate(build_world(config), FedAvg()).history.final.loss is not None
