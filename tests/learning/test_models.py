"""Models have the promised size, come from the seed alone, and may be the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from camu.errors import InputError
from camu.learning.models import build_model
from camu.learning.weights import Weights
from camu.seeding import derive
from helpers.toys import Toy


def build(name="cnn", shape=(28, 28), normalisation="batch", seed=0) -> nn.Module:
    return build_model(name, shape, 10, normalisation, derive(seed, "model"))


def test_the_papers_cnn_has_its_number_of_parameters() -> None:
    assert sum(p.numel() for p in build().parameters()) == 21_880
    assert sum(p.numel() for p in build(normalisation="group").parameters()) == 21_880
    assert sum(p.numel() for p in build(normalisation="none").parameters()) == 21_840


def test_resnet8_has_eight_layers_and_no_running_statistics() -> None:
    model = build("resnet8", (3, 32, 32))
    # 3->16, 16->16 twice, 16->32->32, 32->64->64, the shortcuts 16->32 and 32->64, 64->10
    convolutions = 9 * (3 * 16 + 2 * 16 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64)
    shortcuts, norms = 16 * 32 + 32 * 64, 2 * (3 * 16 + 3 * 32 + 3 * 64)
    expected = convolutions + shortcuts + norms + 65 * 10
    assert sum(p.numel() for p in model.parameters()) == expected == 78_042
    on_the_way = [layer for name, layer in model.named_modules() if "shortcut" not in name]
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in on_the_way) == 8
    assert not list(model.buffers())
    assert build("resnet8", (3, 32, 32), "batch")(torch.zeros(1, 3, 32, 32)).isfinite().all()


def test_resnet8_trains_each_sample_by_itself() -> None:
    """Group norm: what a sample gives does not depend on the others of its batch."""
    model = build("resnet8", (3, 8, 8))
    images = torch.rand(4, 3, 8, 8, generator=derive(0, "own-resnet8").torch())
    torch.testing.assert_close(model(images)[1:2], model(images[1:2]))


def test_the_sizes_of_the_models_by_hand() -> None:
    def size(name: str, shape: tuple[int, ...], outputs: int, **more: int) -> int:
        model = build_model(name, shape, outputs, "batch", derive(0, "model"), **more)
        return sum(p.numel() for p in model.parameters())

    two_hidden = 785 * 200 + 201 * 200 + 201 * 10
    assert size("mlp", (1, 28, 28), 10) == two_hidden == 199_210  # the 2NN of McMahan et al.
    assert size("cnn1d", (6, 100), 4) == 6 * 5 * 32 + 32 + 32 * 5 * 64 + 64 + 65 * 4 == 11_556
    assert size("gru", (6, 100), 4) == 3 * 64 * (6 + 64 + 2) + 65 * 4 == 14_084
    assert size("gru", (80,), 64, vocabulary=64) == 64 * 8 + 3 * 64 * (8 + 64 + 2) + 65 * 64
    assert size("svm", (1, 28, 28), 1) == size("linear", (1, 28, 28), 1) == 785


def test_gru_reads_a_series_place_by_place_and_from_its_beginning() -> None:
    """The state after each place, by the equations of Cho et al. as torch has them."""
    model = build_model("gru", (2, 5), 3, "batch", derive(0, "own-gru")).double()
    series = torch.rand(4, 2, 5, generator=derive(0, "own-gru").torch()).double()
    layer, state = model.gru, torch.zeros(4, 64).double()
    for place in range(5):
        ours = (series[:, :, place] @ layer.weight_ih_l0.T + layer.bias_ih_l0).chunk(3, 1)
        theirs = (state @ layer.weight_hh_l0.T + layer.bias_hh_l0).chunk(3, 1)
        reset, keep = (torch.sigmoid(a + b) for a, b in zip(ours[:2], theirs[:2], strict=True))
        state = (1 - keep) * torch.tanh(ours[2] + reset * theirs[2]) + keep * state
    torch.testing.assert_close(model(series), state @ model.output.weight.T + model.output.bias)


def test_gru_gives_outputs_of_each_place_for_the_next_token() -> None:
    model = build_model(
        "gru", (5,), 7, "batch", derive(0, "own-gru"), vocabulary=7, everywhere=True
    )
    tokens = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 6, 6]])
    outputs = model(tokens)
    assert outputs.shape == (2, 5, 7)
    torch.testing.assert_close(outputs[0, :3], outputs[1, :3])  # nothing of what comes later
    assert not torch.allclose(outputs[0, 3:], outputs[1, 3:])


@pytest.mark.parametrize("length", [1, 2, 7, 100])
@pytest.mark.parametrize("name", ["mlp", "cnn1d", "gru", "linear", "svm", "logistic"])
def test_models_fit_series_of_any_length(name: str, length: int) -> None:
    model = build_model(name, (3, length), 2, "batch", derive(0, "model"))
    series = torch.rand(4, 3, length, generator=derive(0, "own-series").torch())
    assert model(series).shape == (4, 2)
    torch.testing.assert_close(model(series)[1:2], model(series[1:2]))


@pytest.mark.parametrize("name", ["cnn", "resnet8", "logistic", "mlp", "svm", "linear"])
@pytest.mark.parametrize("shape", [(28, 28), (8, 8), (3, 32, 32), (1, 15, 17)])
def test_models_fit_the_images(name: str, shape: tuple[int, ...]) -> None:
    images = torch.zeros(2, *(shape if len(shape) == 3 else (1, *shape)))
    assert build(name, shape)(images).shape == (2, 10)


def test_initial_weights_come_from_the_stream_alone() -> None:
    state = torch.random.get_rng_state()
    first = Weights.of(build())
    assert torch.equal(state, torch.random.get_rng_state())
    torch.rand(3)
    assert Weights.of(build()).sha256() == first.sha256()
    assert Weights.of(build(seed=1)).sha256() != first.sha256()


def test_an_own_module_is_found_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_camu_model.py").write_text(
        "from torch import nn\n"
        "class Tiny(nn.Sequential):\n"
        "    def __init__(self, image_shape, classes):\n"
        "        channels, height, width = image_shape\n"
        "        super().__init__(nn.Flatten(), nn.Linear(channels * height * width, classes))\n"
        "def not_a_class(shape, classes): ...\n"
        "class Plain:\n"
        "    def __init__(self, image_shape, classes): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    assert build("my_camu_model:Tiny", (1, 8, 8))(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    for name in ("my_camu_model:Other", "my_camu_model:not_a_class", "my_camu_model:Plain"):
        with pytest.raises(InputError, match="model"):
            build(name)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "it has no weights that can be trained"),
        ("self.layer = nn.Linear(2, 2).requires_grad_(False)", "no weights that can be trained"),
        ("self.layer, self.state_dict = nn.Linear(2, 2), None", "state_dict hides torch's method"),
        ("self.layer, self.eval = nn.Linear(2, 2), False", "eval hides torch's method"),
        ("self.layer, self.loss = nn.Linear(2, 2), len", "camu never calls its method loss"),
        (
            "self.layer, self.training_step = nn.Linear(2, 2), len",
            "never calls its method",
        ),
        ("self.configure_optimizers = nn.Linear(2, 2)", "it trains with training.optimiser, mome"),
    ],
)
def test_an_own_module_that_could_not_be_trained_as_it_says(
    tmp_path: Path, body: str, message: str
) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, shape, classes):\n"
        f"        super().__init__()\n        {body}\n"
    )
    with pytest.raises(InputError, match=message) as refused:
        build(f"{tmp_path}/net.py:Net", (8, 8))
    assert str(refused.value).startswith(f"training.model = {tmp_path}/net.py:Net: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "resnet"}, "module:Class"),
        ({"name": "no_such_module:Net"}, "cannot be imported"),
        ({"normalisation": "layer"}, "normalisation"),
        ({"shape": (3, 3)}, "4x4"),
        ({"shape": (784,)}, "image_shape"),
    ],
)
def test_what_cannot_be_built_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(**options)


@pytest.mark.parametrize("buffer", [False, True])
def test_complex_numbers_are_refused(small_toy: Toy, buffer: bool) -> None:
    """Their imaginary parts would be lost without a word."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    if buffer:
        model.register_buffer("phase", torch.zeros(3, dtype=torch.complex64))
    else:
        model[1].weight = nn.Parameter(model[1].weight.detach().to(torch.complex64))
    with pytest.raises(
        InputError, match=r"model: its \w+ (1\.weight|phase) has numbers of type compl"
    ):
        small_toy.engine(model)
