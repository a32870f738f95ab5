"""Training on a graphics card: only when asked for, close to the processor's, and repeatable."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from camu.errors import InputError
from camu.learning.job import Job, LocalRule
from helpers.toys import Toy

has_card = torch.cuda.is_available()
on_card = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_card, reason="torch finds no CUDA device on this machine"),
]
JOBS = [Job((0, 2), (1.0, 2.0), 3), Job((1,), (1.0,), 2, rule=LocalRule(steps=2, proximal=0.1))]


def test_a_processor_is_used_unless_a_card_is_asked_for(small_toy: Toy) -> None:
    with small_toy.engine() as engine:
        assert engine.provenance.device == "cpu"


@pytest.mark.skipif(has_card, reason="this machine has a CUDA device")
def test_a_card_that_is_not_there_is_refused(small_toy: Toy) -> None:
    with pytest.raises(InputError, match='"cuda" was asked for, but torch finds no such device'):
        small_toy.engine(device="cuda")


class GlobalDropout(nn.Module):
    """Draws from the card's global generator."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.linear(nn.functional.dropout(images.flatten(1), 0.5, self.training))


class TestOnACard:
    pytestmark = on_card

    @pytest.mark.parametrize("norm", ["batch", "group", "none"])
    def test_it_trains_as_the_processor_does(self, small_toy: Toy, norm: str) -> None:
        results = {}
        for device in ("cpu", "cuda"):
            with small_toy.engine("cnn", norm, device=device, kernel="torch") as engine:
                results[device] = engine.train(engine.initial, JOBS, 0)
        for one, other in zip(results["cpu"], results["cuda"], strict=True):
            assert one.parameters == pytest.approx(other.parameters, abs=1e-4)
            assert one.buffers == pytest.approx(other.buffers, abs=1e-4)

    def test_two_trainings_have_the_same_bits(self, toy: Toy) -> None:
        digests = []
        for _ in range(2):
            with toy.engine(device="cuda") as engine:
                digests.append([own.sha256() for own in engine.train(engine.initial, JOBS, 0)])
        assert digests[0] == digests[1]
        assert not torch.backends.cuda.matmul.allow_tf32
        assert not torch.backends.cudnn.allow_tf32

    def test_units_are_batched_as_on_the_processor_and_repeatably(self, small_toy: Toy) -> None:
        jobs = [Job((device,), (1.0,), 3) for device in range(5)]
        results = []
        for device, kernel in (("cpu", "torch"), ("cuda", "batched"), ("cuda", "batched")):
            with small_toy.engine("cnn", "group", batch=4, device=device, kernel=kernel) as engine:
                results.append(engine.train(engine.initial, jobs, 0))
        for one, other, again in zip(*results, strict=True):
            assert one.parameters == pytest.approx(other.parameters, abs=1e-4)
            assert other.sha256() == again.sha256()

    def test_it_is_said_that_no_compiled_kernels_train(
        self, small_toy: Toy, caplog: pytest.LogCaptureFixture
    ) -> None:
        with small_toy.engine(device="cuda") as engine:
            found = engine.provenance
        assert "they compute on the processor, and cuda was asked for" in caplog.text
        assert found.kernel == "torch batched"
        assert torch.cuda.get_device_name() in found.device
        assert found.torch == torch.__version__

    def test_draws_from_the_global_generator_of_the_card_are_refused(self, small_toy: Toy) -> None:
        with pytest.raises(InputError, match="draws from torch's global generator"):
            small_toy.engine(GlobalDropout(), device="cuda")
