"""CPU seconds and certified gap of problem P2 on random instances, by number of clusters."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from camu.allocation import P2Problem, solve
from camu.errors import CamuError
from camu.seeding import derive

SIZES = ((10, 40), (100, 5), (1000, 3), (10_000, 2))


def instance(index: int, size: int) -> P2Problem:
    """Clusters of one to four devices with the paper's orders of magnitude, up to 5 updates."""
    rng = derive(11, "own-horizon-bench", size, index).numpy()
    members = rng.integers(1, 5, size)
    devices = int(members.sum())
    return P2Problem(
        weight=rng.dirichlet(np.full(size, 5.0)),
        divergence=rng.uniform(0, 1.5, size),
        dissimilarity=rng.uniform(1, 2, size),
        variance=rng.uniform(0.1, 3, size),
        gain=10 ** rng.normal(-10.7, 0.4, size),
        bandwidth_hz=np.full(size, 1e6),
        gather_seconds=rng.uniform(0.0, 0.2, size),
        gather_joules=rng.uniform(0.01, 0.1, size),
        max_updates=rng.integers(1, 6, size),
        max_power_watts=np.full(size, 2.0),
        cluster=np.repeat(np.arange(size), members),
        cycles=rng.uniform(2e7, 3e8, devices),
        capacitance=np.full(devices, 1e-28),
        max_hz=rng.uniform(2e8, 2e9, devices),
        noise_watts=1e-12,
        payload_bits=700_160.0,
        convexity=float(rng.uniform(0.05, 0.5)),
        smoothness=1.0,
        learning_rate=float(rng.uniform(0.05, 0.4)),
        initial_gap=2.3,
        energy_joules=20 * size * float(10 ** rng.uniform(0.0, 0.8)),
        seconds=20 * (2 + size * float(10 ** rng.uniform(-0.2, 0.5))),
    )


def main() -> None:
    """Print a line per number of clusters."""
    import scipy.optimize  # noqa: F401  # loading it is not part of the times

    print("| clusters | instances | CPU s, median | CPU s, largest | certified gap, largest |")
    print("|---|---|---|---|---|")
    for size, count in SIZES:
        seconds, gaps = [], []
        for index in range(count):
            problem = instance(index, size)
            began = time.process_time()
            try:
                gaps.append(solve(problem).gap)
            except CamuError:  # no round that fits descends
                continue
            seconds.append(time.process_time() - began)
        print(
            f"| {size} | {len(gaps)} | {median(seconds):.3f} | {max(seconds):.3f} | "
            f"{max(gaps):.2g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
