"""Measure the drift of `camu-balanced`: how many rounds of one step a round of several is worth.

Both data sets, h = 30 and 12, seeds that no comparison uses. A round of N gathers of H steps is
worth the ratio of the rounds that reach the same test loss. The least-squares fit over N = 1 is the
scheme's default. About ten minutes on two cores.
"""

from __future__ import annotations

import sys

import numpy as np

import camu
from camu.planning.contribution import label_distance
from camu.schemes import CamuBalanced

PAIRS = ((1, 1), (1, 2), (1, 3), (1, 5), (1, 8), (2, 1), (3, 1), (2, 3))  # N, H
LEVELS = (20, 24, 28)  # rounds of one step whose loss is to be reached
ROUNDS = 30


def rounds_to(losses: np.ndarray, level: float) -> float:
    """When a falling curve, known at every second round, reaches a level."""
    after = int(np.argmax(losses <= level))
    above, below = losses[after - 1], losses[after]
    return 2 * (after - 1 + (above - level) / (above - below))


def main(seeds: range) -> None:
    """Print a line per setting, and the fit."""
    lost, expected = [], []
    print("data set | h | seed | " + " | ".join(f"N={n} H={h}" for n, h in PAIRS))
    for seed in seeds:
        for dataset in ("mnist", "fashion-mnist"):
            for h in (30, 12):
                config = camu.load_config(
                    preset="study",
                    overrides={
                        "data.dataset": dataset,
                        "data.noniid_devices": h,
                        "data.samples_per_device": 200,
                        "radio.noise_dbm": -90.0,
                        "training.learning_rate": 0.1,
                        "run.rounds": ROUNDS,
                        "run.eval_every": 2,
                        "run.seed": seed,
                    },
                )
                world = camu.build_world(config)
                counts = world.devices.label_counts
                distance = label_distance(counts, counts.sum(axis=0), "tv").mean()
                curves = {}
                for n, steps in PAIRS:
                    scheme = CamuBalanced(
                        clusters_per_area=2, gathers=n, steps=steps, power_watts=0.5
                    )
                    records = camu.simulate(world, scheme).history.evaluated
                    curves[n, steps] = np.minimum.accumulate([record.loss for record in records])
                levels = [curves[1, 1][number // 2] for number in LEVELS]
                worth = {
                    pair: np.mean(
                        [
                            number / rounds_to(curve, level)
                            for number, level in zip(LEVELS, levels, strict=True)
                        ]
                    )
                    for pair, curve in curves.items()
                }
                for n, steps in PAIRS:
                    if n == 1:
                        lost.append(steps - worth[n, steps])
                        expected.append(distance * steps * (steps - 1) / 2)
                shown = " | ".join(f"{worth[pair]:.2f}" for pair in PAIRS)
                print(f"{dataset} | {h} | {seed} | {shown}", flush=True)
    print(f"drift {np.dot(lost, expected) / np.dot(expected, expected):.3f}")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    main(range(1000, 1000 + count))
