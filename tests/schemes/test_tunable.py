"""What of each scheme is tuned: ranges that the scheme takes, and refusals of others."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest

import camu
from camu.config import load_config
from camu.errors import InputError
from camu.schemes import SCHEMES, make_scheme
from camu.schemes.tunable import COMMON, Between, OneOf, read_range, tunable_of
from camu.schemes.variants import keys_of

CONFIG = load_config(preset="demo")


@pytest.mark.parametrize("name", SCHEMES)
def test_every_end_of_a_range_can_be_set(name: str) -> None:
    for key, found in tunable_of(SCHEMES[name]).items():
        ends = (found.low, found.high) if isinstance(found, Between) else found.values
        for value in ends:
            make_scheme(CONFIG.replace(keys_of(name, {key: value})))


@pytest.mark.parametrize("name", SCHEMES)
def test_the_steps_share_and_bits_of_every_scheme_are_tuned(name: str) -> None:
    common = {"local_updates", "epochs", "share", "levels"}
    assert common & {field.name for field in fields(SCHEMES[name])} <= set(
        tunable_of(SCHEMES[name])
    )


@dataclass(frozen=True)
class Own(camu.schemes.LocalSgd):
    pull: float = 0.1
    tunable = {"pull": (0.01, 1.0, "log"), "training.server_momentum": None}  # noqa: RUF012


class Fixed(Own):
    tunable = {"local_updates": [1, 4], "pull": None}  # noqa: RUF012


def test_a_class_adds_to_the_ranges_of_those_it_is_made_from() -> None:
    assert tunable_of(camu.schemes.FedAvg) == COMMON
    rate = {"training.learning_rate": COMMON["training.learning_rate"]}
    assert tunable_of(Own) == {
        **rate, "local_updates": Between(1, 20, log=True), "pull": Between(0.01, 1.0, log=True),
    }  # fmt: skip
    assert tunable_of(Fixed) == {**rate, "local_updates": OneOf((1, 4))}


def test_two_whole_numbers_mean_whole_numbers() -> None:
    whole, real = read_range((1, 8), ""), read_range((1, 8.0), "")
    assert isinstance(whole, Between)
    assert isinstance(real, Between)
    assert (whole.whole, real.whole) == (True, False)
    assert whole.holds(8)
    assert not whole.holds(9)
    assert not whole.holds(True)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((3, 1), "smaller one first"),
        ((0, 1, "log"), "begins above 0"),
        ((1, 2, "square"), "or a list of values"),
        ((1, float("inf")), "two numbers"),
        ((1,), "or a list of values"),
        ("1 to 3", "or a list of values"),
        ([], "values that all differ"),
        ([1, 1], "values that all differ"),
        ([None], "numbers, words"),
    ],
)
def test_other_ranges_are_refused(given: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_range(given, "here")
