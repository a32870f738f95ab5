"""What each reading of the paper changes in a plan, measured: python benchmarks/readings.py.

Preset `paper`, scheme `camu` (or `camu-joint` where the reading concerns the allocation); means
over seeds 0 to 4. Prints a Markdown table.
"""

from __future__ import annotations

import numpy as np

from camu.config import load_config
from camu.schemes import make_scheme, plans
from camu.world import build_world

SEEDS = range(5)
READINGS = [
    ("default", []),
    ("R1 `clustering.communication=uplink`", ["clustering.communication=uplink"]),
    ("R1 `clustering.communication=literal`", ["clustering.communication=literal"]),
    ("R2 `clustering.preference=quantile`", ["clustering.preference=quantile"]),
    ("R3 `clustering.data=pmf`", ["clustering.data=pmf"]),
    ("R3 `clustering.data=literal`", ["clustering.data=literal"]),
    ("R6 `clustering.leader=best-uplink`", ["clustering.leader=best-uplink"]),
    ("R7 `readings.w_min=0`", ["readings.w_min=0.0"]),
    ("R8 `contribution.distance=tv`", ["contribution.distance=tv"]),
    ("R9 `scheme.parameters.threshold=10000`", ["scheme.parameters.threshold=1e4"]),
    ("R10 `scheme.parameters.max_extra_updates=1`", ["scheme.parameters.max_extra_updates=1"]),
    ("R11 `training.local_update=epoch`", ["training.local_update=epoch"]),
    ("R15 `data.labels_per_device=1`", ["data.labels_per_device=1"]),
    ("R16 `radio.noise_dbm=-90`", ["radio.noise_dbm=-90"]),
    ("R16 `radio.noise_dbm=-80`", ["radio.noise_dbm=-80"]),
    ("R16 `radio.noise_dbm=-10`", ["radio.noise_dbm=-10"]),
    ("R17 `radio.path_loss=umi`", ["radio.path_loss=umi"]),
    ("R18 `radio.access=ofdma`", ["radio.access=ofdma"]),
    ("R21 `readings.compute_model=literal`", ["readings.compute_model=literal"]),
    ("`camu-joint`, default", ["scheme.name=camu-joint", "radio.noise_dbm=-90"]),
    (
        "R20 `readings.power_law=amplitude`",
        ["scheme.name=camu-joint", "radio.noise_dbm=-90", "readings.power_law=amplitude"],
    ),
    (
        "R22 `readings.updates_charged=literal`",
        ["scheme.name=camu-joint", "radio.noise_dbm=-90", "readings.updates_charged=literal"],
    ),
    (
        "R25 `readings.bound=theorem1`",
        ["scheme.name=camu-joint", "radio.noise_dbm=-90", "readings.bound=theorem1"],
    ),
]


def measure(settings: list[str]) -> dict[str, float]:
    """Means over the seeds of what a plan shows."""
    rows = []
    for seed in SEEDS:
        config = load_config(preset="paper", settings=[*settings, f"run.seed={seed}"])
        world = build_world(config)
        plan = plans.plan(make_scheme(config), world)
        regions = world.devices.regions
        rows.append(
            {
                "clusters": len(plan.units),
                "mixed": sum(len({regions[k] for k in unit.members}) > 1 for unit in plan.units),
                "largest weight": max(unit.weight for unit in plan.units),
                "mean N": float(np.mean([unit.local_updates for unit in plan.units])),
                "mean W": float(np.mean([unit.power_watts for unit in plan.units])),
                "round s": plan.round_seconds,
                "round J": plan.round_joules,
                "SNR dB": float(np.median(10 * np.log10(world.links.uplink_snr()))),
            }
        )
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def main() -> None:
    """Print the table."""
    columns = ["clusters", "mixed", "largest weight", "mean N", "mean W", "round s", "round J"]
    columns.append("SNR dB")
    print("| reading | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, settings in READINGS:
        found = measure(settings)
        print(
            f"| {name} | " + " | ".join(f"{found[key]:.3g}" for key in columns) + " |", flush=True
        )


if __name__ == "__main__":
    main()
