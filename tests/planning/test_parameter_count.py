"""Parameters counted by formula equal those of the modules that are trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from camu.learning.models import build_model
from camu.planning.parameters import _count
from camu.seeding import derive

SHAPES = [(28, 28), (8, 8), (4, 4), (1, 15, 15), (3, 16, 16), (3, 32, 32), (2, 9, 31)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normalisation", ["batch", "group", "none"])
@pytest.mark.parametrize("name", ["cnn", "resnet8", "logistic"])
def test_the_formula_counts_as_the_module_does(
    name: str, shape: tuple[int, ...], normalisation: str
) -> None:
    for classes in (2, 10):
        module = build_model(name, shape, classes, normalisation, derive(0, "own-count"))
        assert _count(name, shape, classes, normalisation) == sum(
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
