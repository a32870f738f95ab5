"""What 20 trials of `camu tune` gain, and what 200 do: three fleets, two schemes, embedded digits.

The best of the first 20 trials and the best of all 200 are run on seeds that no trial had, and
judged by the test samples. A search of 20 trials has exactly the first 20 of one of 200. About
40 minutes on two cores; with a directory as argument it continues where it was cut off. Numbers
after the directory choose fleets, so that parts can be run apart.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import camu
from camu.experiments.scheduler import Executor, processes
from camu.experiments.statistics import estimate
from camu.experiments.tuning.trial import Trial
from camu.experiments.tuning.tune import plans_of, search
from camu.experiments.tuning.tuned import Tuned

FEW, MANY, SEEDS = 20, 200, range(10)
SCHEMES = ("local-sgd", "hierfavg")
ROOT = Path(__file__).parents[1]
# Fixed before any search was run in them. The sampler was chosen in another one: the preset demo.
FLEETS = {
    "15 devices of unequal sizes, all with two labels": (
        {
            "data.noniid_devices": 15,
            "data.samples_per_device": 40,
            "data.size_exponent": 1.0,
            "data.with_replacement": True,  # the largest hold more of a digit than there is
            "fleet.regions": [
                {"name": "Hall", "devices": 15, "x": [5.0, 45.0], "y": [-20.0, 20.0]}
            ],
        },
        20.0,
    ),
    "12 devices, Dirichlet 0.3, noisy": (
        {
            "data.partition": "dirichlet",
            "data.alpha": 0.3,
            "data.noniid_devices": None,
            "data.samples_per_device": 80,
            "radio.noise_dbm": -90.0,
            "fleet.regions": [
                {"name": "West", "devices": 6, "x": [-60.0, -20.0], "y": [-30.0, 30.0]},
                {"name": "East", "devices": 6, "x": [20.0, 60.0], "y": [-30.0, 30.0]},
            ],
        },
        40.0,
    ),
    "10 devices of docs/examples/fleet.csv": (
        {
            "fleet.file": str(ROOT / "docs" / "examples" / "fleet.csv"),
            "data.with_replacement": True,
            "data.validation_share": 0.1,
        },
        20.0,
    ),
}


def measured(tuned: Tuned, trials: list[Trial], out: Path) -> list[list[float]]:
    """Test scores at the budget of these trials, with each reporting seed."""
    [budget] = tuned.budgets
    configs = {
        (place, seed): tuned.config_of(trial).replace({"run.seed": seed, "machine.workers": 1})
        for place, trial in enumerate(trials)
        for seed in SEEDS
    }
    found = Executor(out).run(configs, lambda key: f"{key[0]}-seed{key[1]}", "reports")
    return [
        [
            found[place, seed].history.score_within(budget.axis, budget.amount) or 0.0
            for seed in SEEDS
        ]
        for place in range(len(trials))
    ]


def main(out: Path, fleets: list[str]) -> None:
    """Print a line per fleet and scheme."""
    print(f"| fleet | scheme | as configured | {FEW} trials | {MANY} trials | lost by {FEW} |")
    print("|---|---|--:|--:|--:|--:|")
    for name in fleets:
        changes, joules = FLEETS[name]
        config = camu.load_config(preset="demo", overrides=changes)
        folder = out / str(list(FLEETS).index(name))
        plans = plans_of(config, SCHEMES, budgets={"joules": joules}, trials=MANY)
        with processes(logging.ERROR) as runner:
            both = search(plans, folder, runner)
        for tuned in both:
            few = replace(tuned, trials=tuned.trials[:FEW]).best
            chosen = [tuned.untuned, few, tuned.best]
            scores = measured(tuned, chosen, folder / tuned.scheme)
            lost = [most - some for some, most in zip(scores[1], scores[2], strict=True)]
            cells = [estimate(own).show(100, 1) for own in (*scores, lost)]
            print(f"| {name} | `{tuned.scheme}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    chosen = [list(FLEETS)[int(number)] for number in sys.argv[2:]] or list(FLEETS)
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), chosen)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder), chosen)
