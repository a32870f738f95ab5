"""Bad inputs of every format, drawn from a seed; each is wrong by construction."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from torture.calls import Case
from torture.configurations import (
    deployment,
    environment,
    extreme,
    option,
    setting,
    toml_text,
    toml_value,
)
from torture.folders import checkpoint, data, odd_file, own_data, own_table, run_directory
from torture.own_code import own_code, own_hook
from torture.tables import fleet, p2, problem, snr, trace, traced

TINY = """[data]
samples_per_device = 20
dataset = "digits"
[training]
model = "logistic"
[run]
rounds = 4
[machine]
checkpoint_every = 2
workers = 1
[[fleet.regions]]
name = "I"
devices = 4
x = [-10.0, 0.0]
y = [-5.0, 5.0]
"""
Maker = Callable[[random.Random, Path], Case]
DamagedMaker = Callable[[random.Random, Path, Path], Case]

MAKERS: tuple[tuple[Maker, int], ...] = (
    (toml_value, 18), (toml_text, 6), (odd_file, 6), (setting, 5), (option, 8), (extreme, 9),
    (deployment, 3), (fleet, 10), (snr, 2), (problem, 6), (p2, 3), (trace, 4), (traced, 2),
    (data, 2), (own_data, 3), (own_table, 3), (environment, 1), (own_code, 4), (own_hook, 3),
)  # fmt: skip
DAMAGED: tuple[DamagedMaker, ...] = (run_directory, run_directory, checkpoint)


def cases(count: int, seed: int, folder: Path, whole: Path) -> Iterator[Case]:
    """Bad inputs, each with files of its own below `folder`; `whole` is a finished run."""
    makers = [maker for maker, weight in MAKERS for _ in range(weight)]
    for number in range(count):
        dice = random.Random(f"{seed}/{number}")
        place = folder / str(number)
        place.mkdir(parents=True)
        chosen = dice.randrange(len(makers) + 3 * len(DAMAGED))
        if chosen >= len(makers):
            yield dice.choice(DAMAGED)(dice, place, whole)
        else:
            yield makers[chosen](dice, place)
        shutil.rmtree(place, ignore_errors=True)
