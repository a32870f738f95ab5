"""Data of devices that the tests of training share, and one thread for plain torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from camu.learning import native
from helpers.toys import Toy, make_toy


@pytest.fixture(scope="session")
def toy() -> Toy:
    return make_toy(28, (60, 35, 83, 60, 5))


@pytest.fixture(scope="session")
def small_toy() -> Toy:
    return make_toy(8, (60, 35, 83, 60, 5))


SETS = [
    name
    for name in native.INSTRUCTION_SETS
    if (loaded := native.library()) is not None and loaded.camu_supports(name.encode())
]


@pytest.fixture(params=["torch", *SETS])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every kernel that this machine has, as the value of `machine.kernel`."""
    if request.param == "torch":
        return "torch"
    monkeypatch.setenv(native.LIMIT, request.param)
    return "native"


@pytest.fixture(params=SETS)
def instructions(request: pytest.FixtureRequest) -> str:
    """Every instruction set that the compiled library has on this machine."""
    return str(request.param)


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Plain torch computations wait for each other's threads on a busy machine; one is enough."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
