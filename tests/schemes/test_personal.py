"""Devices with parameters or models of their own, and metrics of single devices."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu
from camu.errors import InputError
from camu.learning.metrics import compute_of_devices, find_metric
from camu.learning.task import task_of
from camu.schemes import SCHEMES
from camu.schemes.view import State, View
from camu.simulation.result import build_engine
from helpers.own_federation import Federation, Vector

HIDDEN = {"training.model": "helpers.own_models:Hidden"}
DEVICE_METRICS = ["mean-device-accuracy", "worst-device-accuracy", "spread-device-accuracy"]


def test_a_device_of_ditto_has_the_model_that_its_own_steps_give() -> None:
    """v moves by the gradient at v plus m (v - w), on the batches after those of the update."""
    kept: dict[int, Vector] = {}

    class Watched(SCHEMES["ditto"]):  # type: ignore[misc]
        name = "watched"

        def finished(self, view: View, state: State) -> bool:
            kept.update({unit: np.asarray(own, np.float64) for unit, own in view.kept.items()})
            return False

    fed = Federation(Watched(local_updates=2, pull=0.7), 3)
    fed.simulated()
    weights, own = fed.initial, dict.fromkeys(fed.devices, fed.initial)
    for round_ in range(3):
        for k in fed.devices:
            for step in (2, 3):
                rows = fed.draw(round_, k, step)
                _, gradient = fed.loss_and_gradient(own[k], rows)
                own[k] = own[k] - fed.rate * (gradient + 0.7 * (own[k] - weights))
        models = [fed.train(weights, round_, k, 2)[0] for k in fed.devices]
        weights = sum(share * model for share, model in zip(fed.shares, models, strict=True))
    assert sorted(kept) == list(fed.devices)
    assert max(np.abs(kept[k] - own[k]).max() for k in fed.devices) < 2e-6


def test_personal_parameters_are_not_sent_and_own_training_is_paid() -> None:
    plain = Federation(SCHEMES["local-sgd"](local_updates=2), 1, **HIDDEN)
    unit = plain.plan.units[0]
    last = math.prod(plain.layers[-1]) + plain.layers[-1][0]
    for name, factor in (("fedper", 1.0), ("fedrep", 2.5)):
        more = {"head_updates": 3} if name == "fedrep" else {}
        own = Federation(SCHEMES[name](local_updates=2, **more), 1, **HIDDEN).plan.units[0]
        sent = (len(plain.initial) - last) / len(plain.initial)
        assert own.uplink_seconds == pytest.approx(sent * unit.uplink_seconds, rel=1e-12)
        assert own.per_update.compute_joules == pytest.approx(
            factor * unit.per_update.compute_joules, rel=1e-12
        )
    ditto = Federation(SCHEMES["ditto"](local_updates=2), 1, **HIDDEN).plan.units[0]
    assert ditto.per_update.compute_seconds == pytest.approx(2 * unit.per_update.compute_seconds)
    assert ditto.uplink_seconds == unit.uplink_seconds


@pytest.mark.parametrize("name", ["fedper", "fedrep", "ditto"])
def test_devices_are_better_off_with_parameters_of_their_own(name: str) -> None:
    """Each device holds two labels of ten, and is tested on these."""
    keys = {
        "run.rounds": 10,
        "run.eval_every": 10,
        "data.noniid_devices": 20,
        "data.labels_per_device": 2,
        "training.metrics": DEVICE_METRICS,
    }
    scores = {}
    for one in ("local-sgd", name):
        config = camu.load_config(preset="demo", overrides={**keys, "scheme.name": one})
        history = camu.simulate(camu.build_world(config), camu.make_scheme(config)).history
        scores[one] = history.final_score
        assert set(history.final.metrics) == set(DEVICE_METRICS)
    assert scores[name] > scores["local-sgd"] + 0.05


def test_metrics_of_devices_are_those_of_the_predictions() -> None:
    """Against a pass of the module itself over each device's test samples."""
    import torch

    keys = {"run.rounds": 3, "training.metrics": [*DEVICE_METRICS, "mean-device-loss", "accuracy"]}
    config = camu.load_config(preset="demo", overrides=keys)
    world = camu.build_world(config)
    result = camu.simulate(world, SCHEMES["fedsgd"]())
    data, held = world.federation.dataset, world.federation.test_indices
    module = result.model().eval()
    images = torch.from_numpy(data.test_inputs[:, None]).float() / 255
    with torch.no_grad():
        logits = module(images)
    right = (logits.argmax(1).numpy() == data.test_targets).astype(float)
    losses = torch.nn.functional.cross_entropy(
        logits, torch.from_numpy(data.test_targets), reduction="none"
    ).numpy()
    shares = np.array([right[own].mean() for own in held])
    found = result.history.final.metrics
    assert found["mean-device-accuracy"] == pytest.approx(shares.mean())
    assert found["worst-device-accuracy"] == pytest.approx(np.sort(shares)[:2].mean())
    assert found["spread-device-accuracy"] == pytest.approx(shares.std())
    means = [losses[own].mean() for own in held]
    assert found["mean-device-loss"] == pytest.approx(np.mean(means), rel=1e-5)
    assert result.history.final.accuracy == pytest.approx(right.mean())


def test_the_worst_tenth_of_losses_are_the_largest() -> None:
    found = [(0.0, float(loss)) for loss in range(20)]
    assert compute_of_devices(find_metric("worst-device-loss"), found) == 18.5
    assert not find_metric("worst-device-loss").higher_is_better
    assert not find_metric("spread-device-accuracy").higher_is_better


def test_personal_models_are_the_same_for_any_number_of_workers_and_after_a_stop(
    tmp_path: Path,
) -> None:
    for name in ("fedrep", "ditto"):
        keys = {"run.rounds": 4, "scheme.name": name, "training.metrics": DEVICE_METRICS}
        digests = set()
        for workers in (1, 2, 3):
            more = {**keys, "machine.workers": workers}
            config = camu.load_config(preset="demo", overrides=more)
            history = camu.simulate(camu.build_world(config), camu.make_scheme(config)).history
            digests.add((history.weights_sha256, history.final_score))
        assert len(digests) == 1


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"scheme.parameters.personal": "outpt"}, "no parameters of the model; name some of conv1"),
        ({"scheme.parameters.personal": "conv,hidden,output,norm"}, "all parameters"),
        ({"training.momentum": 0.9}, "training.momentum = 0"),
    ],
)
def test_what_cannot_be_personal_is_refused(keys: dict[str, Any], words: str) -> None:
    overrides = {"scheme.name": "fedrep", "run.rounds": 1, **keys}
    config = camu.load_config(preset="demo", overrides=overrides)
    with pytest.raises(InputError, match=words):
        camu.simulate(camu.build_world(config), camu.make_scheme(config))


def test_an_engine_without_test_samples_of_devices_has_no_such_metric() -> None:
    config = camu.load_config(preset="demo")
    with build_engine(camu.build_world(config)) as engine:
        assert engine.evaluate_devices(engine.initial, {}) == []
    assert task_of(config).score.name == "accuracy"
