"""Joules of a round at full speed and with slow-down, at equal seconds, for several schemes.

Plans only, means over five seeds that no comparison uses. About ten seconds.
"""

from __future__ import annotations

import sys
from statistics import mean

import camu
from camu.schemes.registry import plan_for

SCHEMES = ("fedavg", "clustered", "compute-rounds", "camu", "local-sgd", "camu-balanced")
SETTINGS = (("matters", 200), ("matters", 600), ("matters", 1500), ("thermal", 600))


def main(seeds: range) -> None:
    """Print a line per channel and number of samples."""
    print("| noise, samples | " + " | ".join(f"`{name}`" for name in SCHEMES) + " |")
    print("|---" * (len(SCHEMES) + 1) + "|")
    for noise, samples in SETTINGS:
        cells = []
        for name in SCHEMES:
            full, slow = [], []
            for seed in seeds:
                keys = {"radio.noise": noise, "data.samples_per_device": samples}
                keys |= {"run.seed": seed, "fleet.dvfs": True, "scheme.name": name}
                config = camu.load_config(preset="study", overrides=keys)
                plan = plan_for(camu.make_scheme(config), camu.build_world(config))
                slow.append(plan.round_joules)
                full.append(plan.round_joules + plan.saved_joules)
            saved = 1 - mean(slow) / mean(full)
            cells.append(f"{mean(full):.2f} → {mean(slow):.2f} (−{saved:.0%})")
        print(f"| {noise}, {samples} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    main(range(1000, 1000 + count))
