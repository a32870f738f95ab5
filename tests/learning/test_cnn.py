"""The paper's CNN without torch: equal to torch's layers, and no run loads torch for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from torch import nn

from camu.errors import InputError
from camu.learning import native, native_kernel
from camu.learning.cnn import CNN
from camu.learning.models import build_model
from camu.learning.weights import Weights
from camu.seeding import Stream

SHAPES = ((1, 28, 28), (1, 8, 8), (3, 32, 32), (2, 16, 20), (1, 4, 5))


@settings(max_examples=60)
@given(
    st.sampled_from(SHAPES),
    st.integers(2, 40),
    st.sampled_from(["batch", "group", "none"]),
    st.integers(0, 2**256 - 1),
)
def test_it_starts_with_the_weights_of_torchs_layers(
    shape: tuple[int, int, int], classes: int, norm: str, entropy: int
) -> None:
    stream = Stream(entropy)
    expected = Weights.of(build_model("cnn", shape, classes, norm, stream))
    found = CNN(shape, classes, norm).initial_weights(stream)
    assert found.layout == expected.layout
    assert found.sha256() == expected.sha256()


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 30_001])
def test_torchs_generator_gives_these_numbers_for_any_count(count: int) -> None:
    """Independently of the model: torch could draw large arrays in another way."""
    stream, layer = Stream(count), CNN((1, 28, 28), count)
    torch.manual_seed(stream.torch_seed)
    for outputs, inputs in ((10, 25), (20, 250), (50, 320)):
        nn.Linear(inputs, outputs)
    expected = nn.Linear(50, count).weight.detach().numpy()
    found = layer.initial_weights(stream).tensors()["output.weight"]
    assert np.array_equal(found, expected)


def test_what_it_cannot_take_is_refused() -> None:
    with pytest.raises(InputError, match="at least 4x4 pixels"):
        CNN((1, 3, 9), 10)
    with pytest.raises(InputError, match="normalisation: 'layer'"):
        CNN((1, 9, 9), 10, "layer")


RUN = """
import sys
from camu.cli import main
sys.argv = ["camu", "run", "--preset", "demo", "--set", "run.rounds=2", "--out", sys.argv[1]]
try:
    main()
except SystemExit as end:
    assert not end.code, end
print("torch was loaded:", "torch" in sys.modules)
"""


@pytest.mark.skipif(native.instruction_set() is None, reason="without kernels torch trains")
def test_a_run_on_compiled_kernels_never_loads_torch(tmp_path: Path) -> None:
    """The first run compares the kernels with numpy and notes it."""
    environment = {**os.environ, "CAMU_DATA": str(tmp_path / "cache")}
    said = []
    for name in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(tmp_path / name)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        said.append("torch was loaded: True" in done.stdout)
    assert said == [False, False]
    models = [load_file(tmp_path / name / "model.safetensors") for name in ("first", "second")]
    assert models[0].keys() == models[1].keys()
    assert all(np.array_equal(models[0][key], models[1][key]) for key in models[0])


@pytest.mark.skipif(native.instruction_set() is None, reason="without kernels nothing is compared")
@pytest.mark.parametrize("damage", ["", "[", '{"a": 1}', "[1, null]"])
def test_a_damaged_note_only_means_another_comparison(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAMU_DATA", str(tmp_path))
    notes = tmp_path / "kernel-checks.json"
    notes.write_text(damage)
    instructions = native.instruction_set()
    assert instructions is not None
    native_kernel.trouble.cache_clear()
    assert native_kernel.trouble(CNN((1, 8, 8), 10, "group"), instructions) is None
    native_kernel.trouble.cache_clear()
    assert len(json.loads(notes.read_text())) == 1


@pytest.mark.skipif(native.instruction_set() is None, reason="without kernels nothing is compared")
def test_a_cache_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("CAMU_DATA", str(file))
    instructions = native.instruction_set()
    assert instructions is not None
    native_kernel.trouble.cache_clear()
    assert native_kernel.trouble(CNN((1, 8, 8), 10, "group"), instructions) is None
    native_kernel.trouble.cache_clear()
