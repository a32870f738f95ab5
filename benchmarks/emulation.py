"""How far real links are from the world's seconds: `sudo python benchmarks/emulation.py`.

Runs ten schemes over emulated links (`camu deploy emulate`) and prints, for each, the median ratio
of measured to virtual seconds of computing, gathering and sending, and the median error.
"""

from __future__ import annotations

import argparse
import statistics

from camu.config import load_config
from camu.deploy.emulation.run import KINDS, emulate

SCHEMES = (
    "camu", "camu-joint", "clustered", "wasserstein", "fedsgd", "local-sgd", "compute-rounds",
    "camu-balanced", "fedpaq", "scaffold",
)  # fmt: skip


def main() -> None:
    """Print a row per scheme."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--slower", type=float, default=1.0)
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    print(
        f"{'scheme':15} {'compute':>8} {'gather':>8} {'uplink':>8} {'error':>7}  wire  same model"
    )
    errors = []
    for name in given.schemes.split(","):
        values = {"scheme.name": name, "run.rounds": given.rounds, "run.eval_every": 1000}
        config = load_config(preset=given.preset, settings=given.set).replace(values)
        found = emulate(config, given.slower)
        ratios = [found.median_ratio(kind) for kind in KINDS]
        shown = " ".join(f"{ratio:8.3f}" if ratio else f"{'-':>8}" for ratio in ratios)
        error = found.median_error(*KINDS)
        errors.append(error)
        wire = found.to_dict()["wire_over_payload"]
        print(f"{name:15} {shown} {100 * error:6.2f}%  {wire:.3f}  {found.same_model}", flush=True)
    print(f"median error over schemes: {100 * statistics.median(errors):.2f} %")


if __name__ == "__main__":
    main()
