"""Parameters counted by formula equal those of the modules that are trained."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from camu.config import load_config
from camu.learning.layouts import built_in_layout
from camu.learning.models import build_model
from camu.learning.weights import Layout
from camu.planning.codecs import _count, parameter_count
from camu.seeding import derive
from camu.world import build_world

SHAPES = [(28, 28), (8, 8), (4, 4), (1, 15, 15), (3, 16, 16), (3, 32, 32), (2, 9, 31)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normalisation", ["batch", "group", "none"])
@pytest.mark.parametrize("name", ["cnn", "resnet8", "logistic", "mlp", "svm", "linear"])
def test_the_formula_counts_as_the_module_does(
    name: str, shape: tuple[int, ...], normalisation: str
) -> None:
    for classes in (2, 10):
        module = build_model(name, shape, classes, normalisation, derive(0, "own-count"))
        assert _count(name, shape, classes, normalisation) == sum(
            parameter.numel() for parameter in module.parameters()
        )
        assert built_in_layout(name, shape, classes, normalisation) == Layout.of(module)


@pytest.mark.parametrize("shape", [(6, 100), (1, 1), (30, 7)])
@pytest.mark.parametrize("name", ["mlp", "cnn1d", "gru", "linear", "svm"])
def test_the_layout_of_models_for_series_is_that_of_the_module(
    name: str, shape: tuple[int, ...]
) -> None:
    for outputs in (1, 4):
        module = build_model(name, shape, outputs, "batch", derive(0, "own-count"))
        assert built_in_layout(name, shape, outputs, "batch") == Layout.of(module)


def test_the_layout_of_a_gru_for_tokens_is_that_of_the_module() -> None:
    module = build_model("gru", (20,), 50, "batch", derive(0, "own-count"), vocabulary=50)
    assert built_in_layout("gru", (20,), 50, "batch", vocabulary=50) == Layout.of(module)
    assert _count("gru", (20,), 50, "batch", None, (("vocabulary", 50),)) == sum(
        parameter.numel() for parameter in module.parameters()
    )


def test_a_plan_without_clusters_loads_neither_torch_nor_a_clustering_library() -> None:
    code = (
        "import sys, camu\n"
        "world = camu.read_fleet(sys.argv[1])\n"
        "camu.schemes.FedAvg().plan(world)\n"
        "print(sorted({'torch', 'sklearn', 'pandas'} & set(sys.modules)))"
    )
    fleet = str(Path(__file__).parents[2] / "docs" / "examples" / "fleet.csv")
    done = subprocess.run(
        [sys.executable, "-c", code, fleet], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


MODEL = """
import torch


class Mine(torch.nn.Sequential):
    def __init__(self, shape, classes):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, {width}, bias=False))
"""


def test_a_model_that_was_changed_and_loaded_again_is_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "changing_model.py"
    config = load_config(preset="demo", overrides={"training.model": "changing_model:Mine"})
    for width in (10, 12):
        file.write_text(MODEL.format(width=width))
        sys.modules.pop("changing_model", None)
        importlib.invalidate_caches()
        assert parameter_count(build_world(config)) == 64 * width
    sys.modules.pop("changing_model", None)
