"""camu-auto, without any search, in the worlds of the board's protocol `quick`.

One budget at a time: a run is planned for joules, or for seconds, and judged there as the board
judges. `worlds` runs it beside other schemes at two learning rates; `levers` switches off one lever
after the other in one world; `board` compares with the parts of a board, published and tuned,
paired by seed. Every run is kept in a file, so that a study continues where it was cut off.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from camu.experiments.board.figures import figures
from camu.experiments.board.protocol import AXES, Protocol, read_protocol
from camu.experiments.budgets import with_end
from camu.experiments.tuning.ranges import LEAST, Budget
from camu.schemes import make_scheme
from camu.schemes.camu_auto import OFF
from camu.schemes.variants import with_parameters, word_of
from camu.simulation import simulate
from camu.world import build_world

PLANNER = "camu-auto"
RIVALS = ("camu-balanced", "fedpaq", "near-iid-bandit", "hierfavg")
RATES = (0.1, 0.3)


class Study:
    """Scores of runs, kept in a file."""

    def __init__(self, path: Path, protocol: Protocol) -> None:
        self.path, self.protocol = path, protocol
        self.known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    def scores(self, world: str, axis: str, word: str, seeds: list[int], **more: Any) -> Any:
        """The accuracy of a scheme at the budget of an axis, in %, one per seed."""
        found = []
        for seed in seeds:
            key = f"{world} {axis} {word} {more or ''} {seed}"
            if key not in self.known:
                self.known[key] = self._run(world, axis, word, seed, more)
                self.path.write_text(json.dumps(self.known, indent=1))
            found.append(self.known[key])
        return np.array(found)

    def _run(self, name: str, axis: str, word: str, seed: int, more: dict[str, Any]) -> float:
        world = self.protocol.worlds[name]
        budget = getattr(world.budgets["short"], axis)
        config = with_parameters(world.config(self.protocol.rules.aids), word)
        keys = {LEAST[axis]: budget, **self.protocol.reported(world, seed), **more}
        config = with_end(config.replace(keys), {axis: budget})
        history = simulate(build_world(config), make_scheme(config)).history
        score = figures(history, Budget(axis, budget), world.target)["score"]
        return 0.0 if score is None else float(score)


def interval(values: Any) -> str:
    """Mean, and half of its 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else np.nan
    return f"{np.mean(values):.2f} ± {half:.2f}"


def worlds(study: Study, seeds: list[int], names: list[str], axes: tuple[str, ...]) -> None:
    """The planner beside other schemes as published, each at the better of two learning rates."""
    print("| world | budget | scheme | accuracy | camu-auto less this |")
    print("|---|---|---|--:|--:|")
    for name in names:
        for axis in axes:
            own = study.scores(name, axis, PLANNER, seeds)
            print(f"| {name} | {axis} | `{PLANNER}` | {interval(own)} | |", flush=True)
            for rival in RIVALS:
                words = [word_of(rival, {"training.learning_rate": rate}) for rate in RATES]
                tried = [study.scores(name, axis, word, seeds) for word in words]
                best = max(tried, key=np.mean)
                row = f"| {name} | {axis} | `{rival}` | {interval(best)} |"
                print(f"{row} {interval(own - best)} |", flush=True)


def levers(
    study: Study,
    seeds: list[int],
    names: list[str],
    axes: tuple[str, ...],
    only: list[str] | None = None,
) -> None:
    """What is lost where a lever is switched off."""
    print("| world | lever off | " + " | ".join(axes) + " |")
    print("|---|---|" + "--:|" * len(axes))
    for name in names:
        whole = {axis: study.scores(name, axis, PLANNER, seeds) for axis in axes}
        variants: dict[str, dict[str, Any]] = {**OFF, "pilot": {"measure": False}}
        variants |= {"price (bound instead)": {"predictor": "bound"}}
        for lever, off in variants.items():
            if lever == "over the air" or (only and lever not in only):
                continue  # these worlds are digital
            more = {"fleet.dvfs": False} if lever == "frequencies" else {}
            cells = [
                interval(study.scores(name, axis, word_of(PLANNER, off), seeds, **more) - own)
                for axis, own in whole.items()
            ]
            print(f"| {name} | {lever} | " + " | ".join(cells) + " |", flush=True)


def board(study: Study, seeds: list[int], names: list[str], parts: Path) -> None:
    """The planner against rows of a board on the same seeds."""
    print("| world | budget | table | scheme | accuracy | camu-auto less this |")
    print("|---|---|---|---|--:|--:|")
    rows = []
    for path in sorted(parts.glob("*.json")):
        part = json.loads(path.read_text())
        if part["world"] not in names:
            continue
        for entry in part["entries"]:
            runs = {one["seed"]: one.get("score") or 0.0 for one in entry["runs"]}
            theirs = np.array([runs[seed] for seed in seeds])
            rows.append((part["world"], entry["axis"], entry["table"], part["scheme"], theirs))
    for world, axis, table, scheme, theirs in sorted(rows, key=lambda r: (*r[:3], -r[4].mean())):
        own = study.scores(world, axis, PLANNER, seeds)
        cells = f"| {world} | {axis} | {table} | `{scheme}` | {interval(theirs)} |"
        print(f"{cells} {interval(own - theirs)} |", flush=True)


def main() -> None:
    """Run a part of the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("worlds", "levers", "board"))
    parser.add_argument("--out", type=Path, default=Path("planner.json"))
    parser.add_argument("--world", action="append")
    parser.add_argument("--lever", action="append")
    parser.add_argument("--axis", choices=AXES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts", type=Path, default=Path("docs/results/board-quick/parts"))
    given = parser.parse_args()
    protocol = read_protocol("quick")
    study = Study(given.out, protocol)
    seeds = protocol.rules.reporting_seeds[: given.seeds]
    names = given.world or list(protocol.worlds)
    axes = (given.axis,) if given.axis else AXES
    if given.part == "board":
        board(study, seeds, names, given.parts)
    elif given.part == "levers":
        levers(study, seeds, names, axes, given.lever)
    else:
        worlds(study, seeds, names, axes)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main()
