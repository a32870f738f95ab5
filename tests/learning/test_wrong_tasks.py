"""What does not fit together is one sentence with key and fix, before the first round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from camu.config import load_config
from camu.errors import CamuError
from camu.schemes import FedAvg
from camu.simulation import Callback, simulate
from camu.world import build_world

MINE = """
import numpy as np
import torch
from torch import nn

draw = lambda shape: np.random.default_rng(0).normal(size=shape)


def series():
    inputs, labels = draw((60, 3, 8)), np.arange(60) % 3
    return (inputs[:40], labels[:40]), (inputs[40:], labels[40:])


def pairs():
    inputs, labels = draw((60, 3, 8)), np.arange(60) % 2
    return (inputs[:40], labels[:40]), (inputs[40:], labels[40:])


def numbers():
    inputs = draw((60, 3, 8))
    return (inputs[:40], inputs[:40, 0, :2]), (inputs[40:], inputs[40:, 0, :2])


def text():
    tokens = np.arange(540).reshape(60, 9) % 5
    return (tokens[:40], None), (tokens[40:], None)


def ragged():
    lines = [[1, 2, 3], [1, 2]] * 20
    return (lines, None), (lines, None)


class Flat(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.layer = nn.Linear(24, self.width(outputs))

    def width(self, outputs):
        return outputs

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


class Wider(Flat):
    def width(self, outputs):
        return outputs + 1


class Pair(Flat):
    def forward(self, inputs):
        return super().forward(inputs), None


class Halved(Flat):
    def forward(self, inputs):
        return super().forward(inputs).half()


class Misfit(Flat):
    def forward(self, inputs):
        return self.layer(inputs)


class LastOnly(nn.Module):
    def __init__(self, shape, outputs, vocabulary):
        super().__init__()
        self.embedding, self.output = nn.Embedding(vocabulary, 4), nn.Linear(4, outputs)

    def forward(self, tokens):
        return self.output(self.embedding(tokens).mean(1))


def mean_loss(outputs, targets):
    return outputs.mean()


def wrong_loss(outputs, targets):
    return (outputs - targets).abs().sum(1)


def no_slope(outputs, targets):
    return (outputs.argmax(1) - targets).float()


def doubled(outputs, targets):
    return outputs.double().sum(1)


def failing(outputs, targets):
    raise ValueError("no reference")


def word(outputs, targets):
    return "good"
"""
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("series", {"model": "Wider"}, "training.model: for 12 samples it gives an array of shape (12,"
     " 4); it must be (samples, 3)"),
    ("pairs", {"model": "Wider", "loss": "binary"}, "of shape (12, 2); it must be (samples, 1)"),
    ("numbers", {"model": "Wider"}, "of shape (12, 3); it must be (samples, 2)"),
    ("text", {"model": "LastOnly"}, "of shape (12, 5); it must be (samples, 8, 5)"),
    ("series", {"model": "Pair"}, "training.model: its forward returns tuple; return a tensor"),
    ("series", {"model": "Misfit"}, "Misfit: mine.py, line"),
    ("text", {"model": "Flat"}, "Flat.__init__() got an unexpected keyword argument 'vocabulary'; "
     "its arguments must be (self, shape, outputs, vocabulary)"),
    ("ragged", {"model": "gru"}, "give all samples the same shape, and pad sequences to one"),
    ("series", {"model": "mlp", "loss": "squared"}, "training.loss = squared: the targets of"),
    ("numbers", {"model": "mlp", "loss": "cross-entropy"}, "use squared or huber, or leave it out"),
    ("series", {"model": "mlp", "loss": "binary"}, "3 classes, and it is for 2; use cross-entropy"),
    ("series", {"model": "mlp", "loss": "mean_loss"}, "mean_loss: for 8 samples it returned (); re"
     "turn a tensor with one loss per sample"),
    ("series", {"model": "mlp", "loss": "wrong_loss"}, "training.loss = ./mine.py:wrong_loss: min"),
    ("series", {"model": "mlp", "loss": "no_slope"}, "no_slope: what it returns does not have a gr"
     "adient; compute it from the outputs"),
    ("series", {"model": "mlp", "loss": "doubled"}, "doubled: it returned float64; return float32"),
    ("series", {"model": "Halved"}, "training.model: its outputs are float16; return float32"),
    ("series", {"model": "mlp", "metrics": "failing"}, "failing: mine.py, line"),
    ("series", {"model": "mlp", "metrics": "word"}, "word: it returned str; return a number"),
]  # fmt: skip


class NoRound(Callback):
    """Fails if a round ends."""

    def on_round(self, run: Any, record: Any) -> None:
        assert record.round == 0


@pytest.mark.parametrize(("data", "training", "words"), CASES)
def test_it_is_one_sentence_before_the_first_round(
    data: str, training: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)

    def named(value: str) -> str:
        own = f"def {value}(" in MINE or f"class {value}(" in MINE
        return f"./mine.py:{value}" if own else value

    changes: dict[str, Any] = {f"training.{k}": named(value) for k, value in training.items()}
    if "metrics" in training:
        changes["training.metrics"] = [named(training["metrics"])]
    config = load_config(
        preset="devices",
        overrides={
            "fleet.regions": [{"name": "A", "devices": 2, "x": [0, 9], "y": [0, 9]}],
            "data.partition": "iid",
            "data.samples_per_device": 15,
            "data.dataset": f"./mine.py:{data}",
            "machine.workers": 1,
            **changes,
        },
    )
    with pytest.raises(CamuError) as refused:
        simulate(build_world(config), FedAvg(), [NoRound()])
    message = str(refused.value)
    assert words in message
    assert "\n" not in message
    assert message.startswith(("training.", "data.dataset"))
