"""Joules of a round at full speed and with slow-down, at equal seconds, for several schemes.

Plans only, means over five seeds that no comparison uses. About ten seconds.
"""

from __future__ import annotations

import sys
from statistics import mean

import camu
from camu.schemes import plans

SCHEMES = ("fedsgd", "clustered", "compute-rounds", "camu", "local-sgd", "camu-balanced")
SETTINGS = ((-90.0, 200), (-90.0, 600), (-90.0, 1500), (None, 600))  # dBm, samples


def main(seeds: range) -> None:
    """Print a line per scheme."""
    names = [f"{'thermal' if noise is None else f'{noise:g} dBm'}, {n}" for noise, n in SETTINGS]
    print("| noise, samples | " + " | ".join(names) + " |")
    print("|---" * (len(SETTINGS) + 1) + "|")
    for name in SCHEMES:
        cells = []
        for noise, samples in SETTINGS:
            full, slow = [], []
            for seed in seeds:
                keys = {"radio.noise_dbm": noise, "data.samples_per_device": samples}
                keys |= {"run.seed": seed, "fleet.dvfs": True, "scheme.name": name}
                config = camu.load_config(preset="study", overrides=keys)
                plan = plans.plan(camu.make_scheme(config), camu.build_world(config))
                slow.append(plan.round_joules)
                full.append(plan.round_joules + plan.saved_joules)
            saved = 1 - mean(slow) / mean(full)
            cells.append(f"{mean(full):.2f} → {mean(slow):.2f} (−{saved:.0%})")
        print(f"| `{name}` | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    main(range(1000, 1000 + count))
