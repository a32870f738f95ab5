"""What a node's privacy and the server's caution cost: noise on label counts, and clipping.

Usage: benchmarks/trust.py [SEEDS]

The first table plans on label counts with noise, as nodes report them, and trains that plan on the
true data: how far its clusters agree with those of exact counts (adjusted Rand index), how far the
labels of a cluster are from everyone's, and the accuracy. The second one has the norms of honest
updates in units of their round's median, which `--clip` must leave alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.metrics import adjusted_rand_score

import camu
from camu.deploy.node_data import noisy_counts
from camu.planning.contribution import group_counts, label_distance
from camu.planning.plan import Plan
from camu.schemes import make_scheme, plans
from camu.simulation import uplink
from camu.world import World

EPSILONS = (None, 4.0, 1.0, 0.3, 0.1, 0.03)
ROUNDS = 20
SAMPLES = 100


def study_world(seed: int) -> World:
    """The world of the study preset with few samples per device, and few rounds."""
    overrides = {
        "data.samples_per_device": SAMPLES,
        "training.learning_rate": 0.1,
        "run.rounds": ROUNDS,
        "run.seed": seed,
    }
    return camu.build_world(camu.load_config(preset="study", overrides=overrides))


def as_reported(world: World, epsilon: float | None) -> World:
    """The world with label counts as nodes report them."""
    counts = world.devices.label_counts
    if epsilon is None:
        return world
    secret = f"seed {world.config.run.seed}".encode()
    noisy = [
        noisy_counts(row, epsilon, secret, name)
        for name, row in zip(world.devices.ids, counts.tolist(), strict=True)
    ]
    return camu.build_world(world.config, label_counts=np.array(noisy, dtype=np.int64))


def cluster_numbers(plan: Plan, count: int) -> list[int]:
    """The unit of every device; -1 if it is in none."""
    numbers = [-1] * count
    for number, unit in enumerate(plan.units):
        for member in unit.members:
            numbers[member] = number
    return numbers


@contextmanager
def norms_of_rounds() -> Iterator[list[float]]:
    """The norms of all updates that are delivered inside the block."""
    seen, refuse = [], uplink.refuse

    def measured(squares: float, *rest: object) -> str | None:
        seen.append(squares**0.5)
        return refuse(squares, *rest)

    uplink.refuse = measured
    try:
        yield seen
    finally:
        uplink.refuse = refuse


def main(seeds: range) -> None:
    """Print both tables."""
    rows: dict[float | None, list[tuple[float, float, float]]] = {e: [] for e in EPSILONS}
    ratios: list[float] = []
    for seed in seeds:
        world = study_world(seed)
        scheme = make_scheme(world.config)
        truth, count = world.devices.label_counts, world.devices.count
        exact = None
        for epsilon in EPSILONS:
            plan = plans.plan(scheme, as_reported(world, epsilon))
            exact = exact or plan
            agreed = adjusted_rand_score(
                cluster_numbers(exact, count), cluster_numbers(plan, count)
            )
            pooled = group_counts(truth, [unit.members for unit in plan.units])
            distance = label_distance(pooled, truth.sum(axis=0), "tv")
            away = float(np.average(distance, weights=pooled.sum(axis=1)))
            with norms_of_rounds() as norms:
                history = camu.simulate(world, scheme, plan=plan).history
            rows[epsilon].append((agreed, away, history.records[-1].accuracy or 0.0))
            if epsilon is None:
                by_round = np.array(norms).reshape(-1, len(plan.units))
                ratios += (by_round / np.median(by_round, axis=1, keepdims=True)).ravel().tolist()
    print("epsilon | adjusted Rand index | label distance | accuracy")
    for epsilon, found in rows.items():
        agreed, away, accuracy = np.mean(found, axis=0)
        print(f"{epsilon or 'exact'} | {agreed:.3f} | {away:.4f} | {accuracy:.2%}")
    print(f"norms of {len(ratios)} honest updates in units of the median of their round")
    for share in (50, 99, 100):
        print(f"{share} % are at most {np.percentile(ratios, share):.2f}")


if __name__ == "__main__":
    main(range(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
