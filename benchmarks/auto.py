"""Measure the constants of `camu-auto` on tuning seeds: what noise costs, how long steps may be.

`noise`: rounds with a codec, or with one of several cohorts, against rounds with neither. A round
is worth the ratio of the rounds that reach the same test loss; c is the median of (1 / worth - 1)
over P r (x a)^2. `steps`: test loss after 20 rounds for steps of x = learning rate times curvature,
and for the server's momentum. The preset `demo` with the CNN and with softmax regression, seeds
from 1000 on. A few minutes on two cores.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field

import numpy as np

import camu
from camu.planning.contribution import label_distance
from camu.schemes import CamuAuto, FedSgd
from camu.schemes.auto_pilot import Found, look_around
from camu.schemes.camu_balanced import progress
from camu.schemes.designs import Search, structures
from camu.schemes.levers import Goal, Levers, Training, amplified, noise_power

MODELS = ("cnn", "logistic")
LEVELS = (18, 22, 26)  # rounds without noise whose loss is to be reached
ROUNDS = 30
STEPS, MOMENTUM = 4, 0.7
BITS, COHORTS = (8, 5, 4, 3), (2, 3, 5)


@dataclass(frozen=True)
class Looking(FedSgd):
    """Only the pilot of camu-auto."""

    found: list[Found] = field(default_factory=list)

    def pilot(self, pilot: camu.schemes.Pilot, state: camu.schemes.State) -> None:
        self.found.append(look_around(pilot, self))


def config_of(model: str, seed: int, rate: float, rounds: int = ROUNDS) -> camu.Config:
    """A world of the preset demo."""
    keys = {"training.model": model, "training.learning_rate": rate, "run.rounds": rounds}
    keys |= {"run.seed": seed, "run.eval_every": 1, "machine.workers": 1}
    return camu.load_config(preset="demo", overrides=keys)


def looked(model: str, seed: int) -> Training:
    """What the pilot finds at a learning rate of 0.02."""
    scheme = Looking()
    camu.simulate(camu.build_world(config_of(model, seed, 0.02, 1)), scheme)
    found = scheme.found[0].training
    assert found is not None
    return found


def losses(model: str, seed: int, rate: float, **levers: object) -> np.ndarray:
    """The smallest test loss so far, by round; levers that are not given rest."""
    rest = {"cohorts": 1, "gathers": 1, "steps": STEPS, "bits": 32, "rate": 1.0}
    rest |= {"momentum": MOMENTUM, "structure": "devices", "measure": False}
    world = camu.build_world(config_of(model, seed, rate))
    records = camu.simulate(world, CamuAuto(**{**rest, **levers})).history.evaluated
    return np.minimum.accumulate([np.nan_to_num(one.loss, nan=np.inf) for one in records])


def rounds_to(curve: np.ndarray, level: float) -> float:
    """When a falling curve reaches a level; infinite if it does not."""
    if curve[-1] > level:
        return float("inf")
    after = int(np.argmax(curve <= level))
    above, below = curve[after - 1], curve[after]
    return after - 1 + (above - level) / (above - below)


def noise(seeds: range) -> None:
    """What a round with noise is worth, and c."""
    shown = [*(f"{bits} bits" for bits in BITS), *(f"{n} cohorts" for n in COHORTS)]
    print("model | seed | x | " + " | ".join(shown))
    ratios = []
    for model in MODELS:
        for seed in seeds:
            found = looked(model, seed)
            for x in (0.3, 0.9):
                rate = 0.02 * x / found.step
                calm, row = losses(model, seed, rate), []
                for lever in [*({"bits": n} for n in BITS), *({"cohorts": n} for n in COHORTS)]:
                    curve = losses(model, seed, rate, **lever)
                    each = [n / rounds_to(curve, calm[n]) for n in LEVELS]
                    worth = float(np.mean(each))
                    cost = cost_of(model, seed, found, x, lever)
                    ratios.append((1 / max(worth, 1e-9) - 1) / cost)
                    row.append(f"{worth:.2f}")
                print(f"{model} | {seed} | {x} | " + " | ".join(row), flush=True)
    print(f"c = {np.median(ratios):.4f}, quartiles", np.quantile(ratios, (0.25, 0.75)).round(4))


def cost_of(model: str, seed: int, found: Training, x: float, lever: dict[str, int]) -> float:
    """P r (x a)^2 beyond that of a round without noise."""
    world = camu.build_world(config_of(model, seed, 0.1))
    search = Search(world, found, Goal(1.0, 1.0, False), "price", 0.16, {}, False)
    groups = structures(world, "devices")[0].groups
    counts = world.devices.label_counts
    distance = float(label_distance(counts, counts.sum(axis=0), "tv").mean())
    steps = progress(1, STEPS, distance, distance, 0.16)
    powers = []
    for levers in (Levers(steps=STEPS, **lever), Levers(steps=STEPS)):
        makeup = search.makeup(groups, levers)
        powers.append(noise_power(levers, found, makeup, steps, search.parameters))
    return steps * (powers[0] - powers[1]) * (x * amplified(MOMENTUM, LEVELS[1])) ** 2


def steps(seeds: range) -> None:
    """The loss after 20 rounds by x and momentum."""
    momenta = (0.0, 0.5, 0.7, 0.9)
    print("model | seed | x | " + " | ".join(f"momentum {m}" for m in momenta))
    for model in MODELS:
        for seed in seeds:
            found = looked(model, seed)
            for x in (0.1, 0.3, 1.0, 3.0):
                rate = 0.02 * x / found.step
                last = [losses(model, seed, rate, momentum=m)[20] for m in momenta]
                print(f"{model} | {seed} | {x} | " + " | ".join(f"{n:.3f}" for n in last))
                sys.stdout.flush()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    part, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    {"noise": noise, "steps": steps}[part](range(1000, 1000 + count))
