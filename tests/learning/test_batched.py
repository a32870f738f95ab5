"""Units that train as one batched program: as one by one, for any number of workers."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from camu.errors import CamuError, InputError
from camu.learning import batched_kernel
from camu.learning.batched_kernel import BatchedKernel
from camu.learning.engine import Engine, Job
from camu.learning.job import LocalRule
from camu.learning.method import Method
from camu.learning.weights import Weights
from camu.seeding import derive
from helpers.toys import Toy


class Convolutions(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride=2)
        self.norm = norm
        self.second = nn.Conv2d(4, 6, 2)
        self.output = nn.Linear(24, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = nn.functional.max_pool2d(self.norm(self.first(images)).relu(), 1)
        return self.output(self.second(features).relu().flatten(1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(8, 5, batch_first=True)
        self.output = nn.Linear(5, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.output(self.layer(images[:, 0])[0][:, -1])


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 6)
        self.output = nn.Linear(6, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.output(self.table((images * 255).long().flatten(1)).mean(1))


class Kinds(nn.Module):
    """Convolutions and norms of many kinds, a frozen one, and a parameter without a part."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride=(2, 1), padding=1, bias=False)
        self.free = nn.GroupNorm(4, 4, affine=False)
        self.own = nn.Conv2d(4, 4, 3, padding="same", groups=2)
        self.wide = nn.Conv2d(4, 6, 2, dilation=2, groups=2)
        self.frozen = nn.Conv2d(6, 6, 1).requires_grad_(False)
        self.line = nn.Conv1d(6, 4, 3, padding=1, padding_mode="circular")
        self.norm = nn.GroupNorm(2, 4)
        self.output = nn.Linear(4, 10)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.own(self.free(self.first(images)).relu())
        features = self.frozen(self.wide(features).tanh()).flatten(2)
        return self.output(self.norm(self.line(features)).mean(2))


def seeded(make: Any, *arguments: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return make(*arguments)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 10))


MODELS = {
    "convolutions": lambda: Convolutions(nn.Identity()),
    "group norm": lambda: Convolutions(nn.GroupNorm(2, 4)),
    "batch norm": lambda: Convolutions(nn.BatchNorm2d(4)),
    "kinds of layers": Kinds,
    "perceptron": perceptron,
    "logistic": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
    "gru": lambda: Recurrent(nn.GRU),
    "rnn": lambda: Recurrent(nn.RNN),
    "embedding": Embedding,
}
SINGLE = [Job((device,), (1.0,)) for device in range(5)]
PAIRS = [Job((0, 1), (3.0, 1.0), 2), Job((2, 3), (1.0, 1.0), 2), Job((4, 0), (1.0, 2.0), 2)]


def trained(toy: Toy, model: nn.Module, jobs: list[Job], **options: Any) -> tuple[Any, Engine]:
    with toy.engine(model, **{"batch": 4, **options}) as engine:
        return list(engine.iterate(engine.initial, jobs, 0)), engine


def compare(toy: Toy, model: nn.Module, jobs: list[Job], monkeypatch: Any, **options: Any) -> None:
    """Batched and one by one: the same weights, buffers and losses; and it was batched."""
    wanted, _ = trained(toy, model, jobs, kernel="torch", **options)
    monkeypatch.setattr(BatchedKernel, "train_one", None)  # nothing is trained one by one
    found, engine = trained(toy, model, jobs, kernel="batched", **options)
    assert engine.kernel == "torch batched"
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.weights.parameters, other.weights.parameters, 1e-4, 1e-5)
        np.testing.assert_allclose(one.weights.buffers, other.weights.buffers, 1e-4, 1e-5)
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        for state, its in zip(one.states, other.states, strict=True):
            np.testing.assert_allclose(state, its, 1e-4, 1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_batched_units_train_as_one_by_one(small_toy: Toy, name: str, monkeypatch: Any) -> None:
    compare(small_toy, seeded(MODELS[name]), SINGLE, monkeypatch)


@pytest.mark.parametrize(
    ("jobs", "options"),
    [
        pytest.param(PAIRS, {}, id="members on their mean loss"),
        pytest.param(PAIRS, {"local_update": "epoch", "batch": 7}, id="members for an epoch"),
        pytest.param(PAIRS[:1], {"local_update": "epoch", "batch": 7}, id="members of one unit"),
        pytest.param(
            [replace(job, updates=3, rule=LocalRule(0.5, steps=2, proximal=0.3)) for job in SINGLE],
            {"l2": 0.01},
            id="steps, proximal term and l2",
        ),
        pytest.param(
            SINGLE[:4],
            {
                "method": Method(momentum=0.9, nesterov=True, weight_decay=0.1, schedule="cosine"),
                "local_update": "epoch",
                "batch": 7,
            },
            id="momentum, decay and a schedule",
        ),
        pytest.param(
            [replace(job, updates=2, states=(None,)) for job in SINGLE],
            {"method": Method(momentum=0.5, schedule="step", schedule_by="step")},
            id="a velocity that is kept, a schedule by step",
        ),
    ],
)
def test_every_kind_of_step_is_batched(
    small_toy: Toy, jobs: list[Job], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(small_toy, seeded(perceptron), jobs, monkeypatch, **options)


def test_units_that_hold_different_models_and_terms(
    small_toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = derive(2, "own-batched-terms").numpy()
    model = seeded(MODELS["batch norm"])

    def own(size: int) -> Any:
        return generator.normal(0, 0.1, size).astype(np.float32)

    first = Weights.of(model)
    q, b = first.parameters.size, first.buffers.size
    rule = LocalRule(proximal=0.5, steps=2)
    jobs = [Job((n,), (1.0,), 2, rule=rule, correction=own(q), anchor=own(q)) for n in range(4)]
    starts = [Weights(own(q), own(b) ** 2 + 1, first.layout) for _ in jobs]
    results = []
    for kernel in ("torch", "batched"):
        with small_toy.engine(model, batch=4, kernel=kernel) as engine:
            results.append([t.weights for t in engine.iterate(starts, jobs, 0)])
            monkeypatch.setattr(BatchedKernel, "train_one", None)
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one.parameters, other.parameters, 1e-4, 1e-5)
        np.testing.assert_allclose(one.buffers, other.buffers, 1e-4, 1e-5)


@pytest.mark.parametrize("name", ["batch norm", "group norm", "gru", "perceptron"])
def test_bits_do_not_depend_on_the_number_of_workers(small_toy: Toy, name: str) -> None:
    model = seeded(MODELS[name])
    jobs = [Job((n % 5,), (1.0,), 1 + n % 2) for n in range(37)]
    prints = [
        [t.weights.sha256() for t in trained(small_toy, model, jobs, workers=workers)[0]]
        for workers in (1, 2, 3, 1)
    ]
    assert prints[0] == prints[1] == prints[2] == prints[3]


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(images.flatten(1))
        return outputs if float(outputs.detach().sum()) < 1e9 else outputs * 2


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Deciding, r"calling \.item\(\) on a Tensor"),
        (lambda: nn.Sequential(perceptron(), nn.Dropout(0.1)), "dropout draws for each device"),
        (lambda: Recurrent(nn.LSTM), "mkldnn_rnn_layer"),
    ],
)
def test_a_model_that_cannot_be_batched_trains_as_before_and_it_is_said(
    small_toy: Toy, make: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = seeded(make)
    batched_kernel._mention.cache_clear()
    with caplog.at_level(logging.WARNING):
        found, _ = trained(small_toy, model, SINGLE)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("units train one after another, not batched: ")
    wanted, _ = trained(small_toy, model, SINGLE, kernel="torch")
    assert [t.weights.sha256() for t in found] == [t.weights.sha256() for t in wanted]
    with pytest.raises(InputError, match=rf'machine\.kernel = "batched": .*{reason}'):
        small_toy.engine(model, kernel="batched")


def test_large_steps_and_other_optimisers_are_taken_one_by_one(
    small_toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unused(*_: Any) -> None:
        raise AssertionError("batched")

    monkeypatch.setattr(BatchedKernel, "_train_stack", unused)
    model = seeded(perceptron)
    flops = 2 * (2 * 64 * 9 + 3 * 9 * 10)  # of a sample
    monkeypatch.setattr(batched_kernel, "MOST_FLOPS", 3.5 * flops)
    trained(small_toy, model, SINGLE, batch=4)
    monkeypatch.setattr(batched_kernel, "MOST_FLOPS", 4.5 * flops)
    trained(small_toy, model, SINGLE, method=Method(optimiser="adam"))
    trained(small_toy, model, SINGLE, method=Method(clip_norm=1.0))
    trained(small_toy, model, SINGLE, batch=5)
    trained(small_toy, model, SINGLE[:1])
    with pytest.raises(CamuError, match="AssertionError: batched"):
        trained(small_toy, model, SINGLE)
