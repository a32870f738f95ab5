"""The engine agrees with plain torch device by device, and never depends on its workers."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from camu.config import load_config
from camu.errors import CamuError, InputError, UserCodeError
from camu.learning.engine import Engine
from camu.learning.job import Job, LocalRule
from camu.learning.models import build_model
from camu.learning.native_kernel import provenance
from camu.learning.pool import BUNDLE_COST, BUNDLE_ITEMS, bundled, in_groups
from camu.learning.weights import Weights, weighted_mean
from camu.seeding import derive
from helpers import plain_torch
from helpers.toys import Toy

UNIT = Job((0, 1, 2, 3), (0.4, 0.1, 0.3, 0.2), 3)
# Few samples: in a million pooling cells there is one in which rounding decides about the winner,
# and then two right computations differ.
FEW = Job((1, 4), (0.7, 0.3), 2)


def assert_close(weights: Weights, expected, tolerance: float = 1e-5) -> None:
    parameters, buffers = expected
    np.testing.assert_allclose(weights.parameters, parameters.numpy(), atol=tolerance, rtol=0)
    np.testing.assert_allclose(weights.buffers, buffers.numpy(), atol=tolerance, rtol=1e-5)


class OwnModel(nn.Module):
    """A user's module: batch norm over maps and over features, a frozen and a shared layer."""

    def __init__(self, image_shape, classes):
        super().__init__()
        self.convolution = nn.Conv2d(image_shape[0], 6, 3, stride=2)
        self.norm = nn.BatchNorm2d(6, momentum=0.3)
        self.second = nn.Conv2d(6, 6, 3, stride=2)
        self.frozen = nn.Conv2d(6, 4, 1).requires_grad_(False)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.features = nn.BatchNorm1d(16, affine=False)
        self.output = nn.Linear(16, classes)

    def forward(self, images):
        maps = torch.relu(self.norm(self.convolution(images)))
        maps = torch.relu(self.norm(self.second(maps)))
        return self.output(self.features(self.pool(self.frozen(maps)).flatten(1)))


@pytest.mark.parametrize("mode", ["step", "epoch"])
@pytest.mark.parametrize("normalisation", ["batch", "group", "none"])
def test_a_unit_trains_as_its_devices_one_by_one(
    toy: Toy, kernel: str, mode: str, normalisation: str
) -> None:
    with toy.engine(
        normalisation=normalisation, local_update=mode, l2=0.01, learning_rate=0.03, kernel=kernel
    ) as engine:
        unit = UNIT if mode == "step" else FEW
        model = build_model("cnn", (28, 28), 10, normalisation, derive(3, "model"))
        (trained,) = engine.train(engine.initial, [unit], 4)
        assert_close(trained, plain_torch.train(model, toy, engine, unit, 4))


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_any_batch_size_is_right(small_toy: Toy, kernel: str, batch: int) -> None:
    with small_toy.engine(batch=batch, kernel=kernel) as engine:
        model = build_model("cnn", (8, 8), 10, "batch", derive(3, "model"))
        (trained,) = engine.train(engine.initial, [UNIT], 4)
        assert_close(trained, plain_torch.train(model, small_toy, engine, UNIT, 4))


def test_a_large_unit_is_split_into_passes_without_a_trace(
    small_toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for normalisation in ("batch", "none"):
        options = {"normalisation": normalisation, "batch": 1, "kernel": "torch"}
        with small_toy.engine(**options) as engine:
            monkeypatch.setattr("camu.learning.kernel.MICRO_BATCH_SAMPLES", 10**6)
            (whole,) = engine.train(engine.initial, [UNIT], 0)
            monkeypatch.setattr("camu.learning.kernel.MICRO_BATCH_SAMPLES", 40)
            (split,) = engine.train(engine.initial, [UNIT], 0)
        assert_close(split, (torch.tensor(whole.parameters), torch.tensor(whole.buffers)))


@pytest.mark.parametrize("mode", ["step", "epoch"])
def test_an_own_module_with_batch_norm_is_right(toy: Toy, mode: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = OwnModel((1, 28, 28), 10)
    with toy.engine(model, local_update=mode) as engine:
        assert engine.fused
        (trained,) = engine.train(engine.initial, [UNIT], 2)
        parameters, buffers = plain_torch.train(model, toy, engine, UNIT, 2)
    trainable = [p.requires_grad for p in model.parameters() for _ in range(p.numel())]
    chosen = torch.tensor(trainable)
    assert_close(trained, (parameters[chosen], torch.cat([parameters[~chosen], buffers])))


def test_results_are_bitwise_the_same_for_any_number_of_workers(toy: Toy, kernel: str) -> None:
    jobs = [Job((k,), (1.0,), 1 + k % 2) for k in range(5)] + [UNIT]
    hashes = set()
    for workers in (1, 2, 3):
        with toy.engine(workers=workers, kernel=kernel) as engine:
            trained = engine.train(engine.initial, jobs, 7)
            mean = weighted_mean((1.0, weights) for weights in trained)
            hashes.add((mean.sha256(), engine.evaluate(mean), engine.loss(mean)))
            hashes.add((mean.sha256(), engine.evaluate(mean), engine.loss(mean)))
    assert len(hashes) == 1


def test_one_update_on_all_devices_is_centralised_sgd_without_batch_norm(
    toy: Toy, kernel: str
) -> None:
    sizes = [len(held) for held in toy.devices]
    everything = Job(tuple(range(len(sizes))), tuple(float(size) for size in sizes))
    with toy.engine(normalisation="none", batch=1.0, kernel=kernel) as engine:
        (trained,) = engine.train(engine.initial, [everything], 0)
        gradient = engine.gradient(engine.initial)
        step = engine.initial.parameters - engine.learning_rate * gradient
    np.testing.assert_allclose(trained.parameters, step, atol=1e-6)


def test_gradient_and_loss_match_plain_autograd(small_toy: Toy) -> None:
    model = build_model("logistic", (8, 8), 10, "none", derive(3, "model"))
    images = torch.from_numpy(small_toy.images).double().flatten(1) / 255
    labels = torch.from_numpy(small_toy.labels)
    weight = model.linear.weight.detach().double().requires_grad_()
    bias = model.linear.bias.detach().double().requires_grad_()
    losses = nn.functional.cross_entropy(images @ weight.T + bias, labels, reduction="none")
    parts = [losses[small_toy.devices[1]].mean() * 0.25, losses[small_toy.devices[2]].mean() * 0.75]
    loss = sum(parts) + 0.05 * (weight.square().sum() + bias.square().sum())
    loss.backward()
    expected = torch.cat([weight.grad.reshape(-1), bias.grad]).numpy()
    with small_toy.engine("logistic", l2=0.1) as engine:
        assert engine.loss(engine.initial, [1, 2], [1, 3]) == pytest.approx(loss.item(), abs=1e-6)
        found = engine.gradient(engine.initial, [1, 2], [1, 3])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_training_learns_and_evaluation_counts_right(small_toy: Toy, kernel: str) -> None:
    with small_toy.engine(batch=1.0, learning_rate=0.3, kernel=kernel) as engine:
        weights = engine.initial
        before = engine.evaluate(weights)
        (weights,) = engine.train(weights, [Job((0, 1, 2, 3), (1, 1, 1, 1), 60)], 0)
        after = engine.evaluate(weights)
    assert before.accuracy < 0.4 < 0.8 < after.accuracy
    assert after.loss < before.loss


@pytest.mark.slow
def test_results_come_in_the_order_of_jobs_and_may_be_taken_one_by_one(
    small_toy: Toy, kernel: str
) -> None:
    jobs = [Job((k % 5,), (1.0,), 1 + k % 4) for k in range(150)]
    with small_toy.engine(kernel=kernel) as engine:
        stream = engine.iterate(engine.initial, jobs, 0)
        first = next(stream).weights
        stream.close()
        everything = engine.train(engine.initial, jobs, 0)
        assert first.sha256() == everything[0].sha256()
        for number in (3, 70, 149):
            (alone,) = engine.train(engine.initial, [jobs[number]], 0)
            assert alone.sha256() == everything[number].sha256()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_units_that_share_a_task_are_trained_as_if_alone(
    small_toy: Toy, kernel: str, workers: int
) -> None:
    """Units of all kinds, so that one that leaves a trace changes the next."""
    rules = [LocalRule(), LocalRule(proximal=0.5), LocalRule(steps=2), LocalRule(batch=1.0)]
    with small_toy.engine(batch=3, workers=workers, kernel=kernel) as engine:
        (other,) = engine.train(engine.initial, [UNIT], 0)
        change = np.linspace(-0.1, 0.1, len(other.parameters), dtype=np.float32)
        jobs = [
            Job(
                (k % 5, (k + 1) % 5)[: 1 + k % 2],
                (1.0, 2.0)[: 1 + k % 2],
                1 + k % 3,
                rule=rules[k % 4],
                correction=change if k % 5 == 0 else None,
                anchor=other.parameters if k % 7 == 0 else None,
            )
            for k in range(60)
        ]
        starts = [other if k % 3 == 0 else engine.initial for k in range(60)]
        together = list(engine.iterate(starts, jobs, 2))
        for number in (0, 5, 21, 22, 42, 58, 59):
            (alone,) = engine.iterate(starts[number], [jobs[number]], 2)
            assert alone.weights.sha256() == together[number].weights.sha256()
            assert alone.loss == together[number].loss


def test_few_items_are_spread_and_many_small_ones_share_a_task() -> None:
    few = [bundle for bundle, _ in bundled(range(13), lambda item: 1.0, workers=2)]
    assert few == [[0], [1], [2], [3], [4], [5], [6], [7], [8, 9], [10, 11], [12]]
    known = [len(bundle) for bundle, _ in bundled(range(30), lambda item: 1.0, 2, expected=30)]
    assert known == [8, 6, 5, 3, 3, 2, 1, 1, 1]
    assert max(map(len, (bundle for bundle, _ in bundled(range(9), lambda _: 1.0, 2, 4)))) == 2
    many = list(bundled(range(1000), lambda item: 12.0, workers=2))
    assert [item for bundle, _ in many for item in bundle] == list(range(1000))
    assert all(cost == 12.0 * len(bundle) for bundle, cost in many)
    assert max(len(bundle) for bundle, _ in many) == BUNDLE_ITEMS
    assert len(many) < 60
    sizes = np.array([len(bundle) for bundle, _ in many])
    before = np.cumsum(sizes) - sizes
    assert np.all(sizes <= 1 + before / 8)
    costs = [1.0, BUNDLE_COST, 1.0, 1.0, 2 * BUNDLE_COST, 1.0]
    large = [bundle for bundle, _ in bundled(range(6), costs.__getitem__, workers=1)]
    assert large == [[0], [1], [2], [3], [4], [5]]


def test_groups_are_of_like_items_and_of_one_size() -> None:
    def groups(costs: list[float], most: int, expected: int = 0) -> list[list[int]]:
        found = list(in_groups(range(len(costs)), costs.__getitem__, most, expected))
        assert all(total == sum(costs[item] for item in group) for group, total in found)
        assert [item for group, _ in found for item in group] == list(range(len(costs)))
        return [group for group, _ in found]

    assert list(map(len, groups([1.0] * 70, 32))) == [32, 32, 6]
    assert list(map(len, groups([1.0] * 1000, 32, 1000))) == [32] * 31 + [8]
    assert list(map(len, groups([1.0] * 100, 32, 100))) == [12] * 8 + [4]
    assert list(map(len, groups([1.0] * 9, 32, 9))) == [3, 3, 3]
    assert groups([1.0, 4.0, 5.0, 1.0, 0.2], 32) == [[0, 1], [2], [3], [4]]
    assert groups([], 32) == []


def test_units_may_start_from_different_models(small_toy: Toy, kernel: str) -> None:
    with small_toy.engine(kernel=kernel) as engine:
        (other,) = engine.train(engine.initial, [UNIT], 0)
        job = Job((0,), (1.0,))
        pair = [t.weights for t in engine.iterate([engine.initial, other], [job, job], 1)]
        assert pair[1].sha256() == engine.train(other, [job], 1)[0].sha256()
        assert pair[0].sha256() == engine.train(engine.initial, [job], 1)[0].sha256()


class Fragile(nn.Module):
    """Fails in training as soon as a batch is as large as a device's."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, images):
        if len(images) > 14:
            raise ArithmeticError("the batch is too hot")
        return self.linear(images.flatten(1))


def test_a_failing_worker_is_one_clear_error_and_the_engine_goes_on(small_toy: Toy) -> None:
    with small_toy.engine(Fragile(), batch=20) as engine:
        with pytest.raises(CamuError, match=r"devices 0, 1.*round 3.*the batch is too hot"):
            engine.train(engine.initial, [Job((0, 1), (1.0, 1.0))], 3)
        assert len(engine.train(engine.initial, [Job((4,), (1.0,))], 3)) == 1


class Slow(nn.Module):
    passes = 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, images):
        Slow.passes += 1
        time.sleep(0.02)
        return self.linear(images.flatten(1))


def test_closing_ends_running_jobs_and_leaves_no_thread(small_toy: Toy) -> None:
    Slow.passes = 0
    engine = small_toy.engine(Slow())
    stream = engine.iterate(engine.initial, [Job((0,), (1.0,), 2), Job((1,), (1.0,), 5000)], 0)
    next(stream)
    engine.close()
    assert 2 <= Slow.passes < 5000
    with pytest.raises(CamuError, match="closed"):
        next(stream)
    assert not [t for t in threading.enumerate() if t.name.startswith("camu-worker")]


def test_a_closed_engine_leaves_memory_at_once(small_toy: Toy, kernel: str) -> None:
    """Without waiting for Python's collector: a study would hold the data of many runs."""
    gc.collect()
    gc.disable()
    try:
        with small_toy.engine(kernel=kernel, workers=2) as engine:
            engine.evaluate(engine.train(engine.initial, [Job((0,), (1.0,))], 0)[0])
            data = weakref.ref(engine.train_data)
        del engine
        assert data() is None
    finally:
        gc.enable()


def test_the_callers_torch_settings_come_back(small_toy: Toy) -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    with small_toy.engine() as engine:
        engine.evaluate(engine.initial)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


class WithDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5))
        self.output = nn.Linear(32, 10)

    def forward(self, images):
        return self.output(self.layers(images))


def test_dropout_draws_from_derived_streams_device_by_device(small_toy: Toy) -> None:
    state = torch.random.get_rng_state()
    hashes = set()
    for workers in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = WithDropout()
        with small_toy.engine(model, workers=workers) as engine:
            assert not engine.fused
            hashes.update(w.sha256() for w in engine.train(engine.initial, [UNIT], 0))
    assert len(hashes) == 1
    assert torch.equal(torch.random.get_rng_state(), state)


class BatchMixer(nn.Module):
    """Centres features over the batch by hand, which no layer type gives away."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, images):
        logits = self.linear(images.flatten(1))
        return logits - logits.mean(dim=0)


def test_a_module_that_mixes_samples_by_hand_is_computed_device_by_device(small_toy: Toy) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BatchMixer()
    with small_toy.engine(model) as engine:
        assert not engine.fused
        (trained,) = engine.train(engine.initial, [UNIT], 2)
        assert_close(trained, plain_torch.train(model, small_toy, engine, UNIT, 2))


class GlobalNoise(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, images):
        return self.linear(images.flatten(1)) + torch.randn(10)


def test_a_module_that_draws_from_the_global_generator_is_refused(small_toy: Toy) -> None:
    with pytest.raises(InputError, match="global generator"):
        small_toy.engine(GlobalNoise())


class Unfinished(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, images):
        return self.liner(images.flatten(1))


class UnfinishedEvaluation(Unfinished):
    def forward(self, images):
        return self.linear(images.flatten(1)) if self.training else self.liner(images)


def test_an_error_in_forward_names_its_line(small_toy: Toy) -> None:
    """The error is raised inside torch, which looks the attribute up."""
    line = Unfinished.forward.__code__.co_firstlineno + 1
    with pytest.raises(UserCodeError) as raised:
        small_toy.engine(Unfinished())
    assert re.fullmatch(
        rf"the model's forward: \S*test_engine\.py, line {line}, in forward: "
        "AttributeError: 'Unfinished' object has no attribute 'liner'.*",
        str(raised.value),
    )
    line = UnfinishedEvaluation.forward.__code__.co_firstlineno + 1
    with (
        small_toy.engine(UnfinishedEvaluation()) as engine,
        pytest.raises(UserCodeError, match=rf"in evaluation: \S*test_engine\.py, line {line}, in"),
    ):
        engine.evaluate(engine.initial)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"local_update": "often"}, "local_update"),
        ({"device": "tpu"}, "device"),
        ({"batch": 0}, "batch"),
        ({"workers": -1}, "workers"),
    ],
)
def test_bad_settings_name_the_key(small_toy: Toy, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small_toy.engine(**change)


@pytest.mark.parametrize(
    "job", [Job((), ()), Job((9,), (1.0,)), Job((0,), (0.0,)), Job((0,), (1.0,), 0)]
)
def test_bad_jobs_are_refused(small_toy: Toy, job: Job) -> None:
    with small_toy.engine() as engine, pytest.raises(InputError, match="job"):
        engine.train(engine.initial, [job], 0)


def test_bad_data_is_refused(small_toy: Toy) -> None:
    model = build_model("logistic", (8, 8), 10, "none", derive(0, "model"))
    images, labels = small_toy.images, small_toy.labels
    with pytest.raises(InputError, match="uint8"):
        Engine(model, images / 255, labels, [], images, labels, learning_rate=0.1)
    with pytest.raises(InputError, match="device 0"):
        Engine(model, images, labels, [[10**6]], images, labels, learning_rate=0.1)
    with pytest.raises(InputError, match="targets"):
        Engine(model, images, labels[:3], [], images, labels, learning_rate=0.1)
    with pytest.raises(InputError, match="classes"):
        Engine(model, images, labels + 5, [], images, labels, learning_rate=0.1)


def test_each_label_is_evaluated(small_toy: Toy, kernel: str) -> None:
    """Against the predictions of the module itself, sample by sample."""
    with small_toy.engine(batch=1.0, learning_rate=0.3, kernel=kernel) as engine:
        (weights,) = engine.train(engine.initial, [Job((0, 1, 2, 3), (1, 1, 1, 1), 6)], 0)
        found = engine.evaluate(weights)
        data = engine.tests.data
    module = build_model("cnn", small_toy.images.shape[1:], 10, "batch", derive(3, "model"))
    weights.load_into(module)
    with torch.no_grad():
        said = module.eval()(torch.from_numpy(data.inputs) / 255).argmax(1).numpy()
    truth = data.targets
    expected = [float((said[truth == k] == k).mean()) for k in range(int(truth.max()) + 1)]
    assert found.label_accuracy == pytest.approx(expected)
    assert found.accuracy == pytest.approx(float((said == truth).mean()))
    assert 0 < found.accuracy < 1


def test_what_decides_the_bits_is_told(small_toy: Toy, kernel: str) -> None:
    """An engine names it, and so does its configuration without an engine."""
    config = load_config(preset="demo", settings=[f"machine.kernel={kernel}"])
    with small_toy.engine(kernel=kernel) as engine:
        found = engine.provenance
    assert found == provenance(config)
    assert found.kernel == engine.kernel
    assert found.device == "cpu"
    assert found.instructions
    assert bool(found.compiler) == (kernel == "native")
    assert found.torch == ("" if kernel == "native" else torch.__version__)
    assert json.loads(json.dumps(asdict(found))) == asdict(found)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no process")
def test_a_process_that_may_use_one_core_has_one_worker() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from camu.learning.pool import available_cores; print(available_cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
