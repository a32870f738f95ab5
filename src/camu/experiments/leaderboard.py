"""The leaderboard: every scheme in the same worlds, until it has spent the same joules and seconds.

The budgets of a world are what a fixed number of rounds of one reference scheme costs there. Every
run goes on until it has spent both. The learning rate is that of the study: one per data set.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.design import FULL, QUICK, Scale
from camu.experiments.execute import execute, result_directory, study_config
from camu.experiments.leaderboard_page import page
from camu.experiments.leaderboard_table import Board, Run, RunKey, WorldEntry, board_of
from camu.experiments.reproduce import Study, choose_rates
from camu.files import write_json, write_text
from camu.schemes import make_scheme
from camu.schemes.contract import Scheme
from camu.schemes.registry import plan_for
from camu.schemes.variants import ALL, Variant, read_variants
from camu.work import Progress
from camu.world import build_world

REFERENCE = "compute-rounds"
RARELY = 1_000_000  # rounds between evaluations: those near the budgets are enough
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}


@dataclass(frozen=True)
class BoardWorld:
    """A kind of world, without its seed."""

    name: str
    dataset: str
    about: str
    keys: Mapping[str, Any]
    most_samples: int | None = None  # per device
    share_of_rounds: float = 1.0  # of the reference scheme, of the scale's


def _noniid(h: int, **more: Any) -> dict[str, Any]:
    keys = {key.replace("__", "."): value for key, value in more.items()}
    return {"data.noniid_devices": h, **keys}


_MANY = [
    {"name": "Region I", "devices": 150, "x": [-10.0, 0.0], "y": [-5.0, 5.0]},
    {"name": "Region II", "devices": 150, "x": [10.0, 20.0], "y": [-5.0, 5.0]},
]
# The kinds were fixed before any scheme was run in them. Their sizes, the reference scheme and its
# rounds were set by computing time, in trials with seed 1000, which no comparison uses.
WORLDS = (
    BoardWorld(
        "mnist-h30-noisy",
        "mnist",
        "30 devices, all with two labels; noisy channel",
        _noniid(30, radio__noise="matters"),
    ),
    BoardWorld(
        "mnist-h6-clean", "mnist", "30 devices, 6 with two labels; clean channel", _noniid(6)
    ),
    BoardWorld(
        "fashion-h30-clean",
        "fashion-mnist",
        "30 devices, all with two labels; clean channel",
        _noniid(30),
    ),
    BoardWorld(
        "fashion-h6-noisy",
        "fashion-mnist",
        "30 devices, 6 with two labels; noisy channel",
        _noniid(6, radio__noise="matters"),
    ),
    BoardWorld(
        "mnist-dirichlet-clean",
        "mnist",
        "30 devices, Dirichlet 0.3; clean channel",
        {"data.partition": "dirichlet", "data.alpha": 0.3, "data.noniid_devices": None},
    ),
    BoardWorld(
        "fashion-unequal-noisy",
        "fashion-mnist",
        "30 devices of unequal sizes (power law), all with two labels; noisy channel",
        _noniid(30, radio__noise="matters", data__sizes="power-law"),
        most_samples=600,  # the largest devices want no more of a label than there is
    ),
    BoardWorld(
        "mnist-300-noisy",
        "mnist",
        "300 devices, all with two labels; noisy channel",
        _noniid(300, radio__noise="matters", fleet__regions=_MANY),
        most_samples=40,
        share_of_rounds=0.25,
    ),
)


@dataclass(frozen=True)
class BoardScale:
    """How large a leaderboard is; the learning rate comes from a study of the same size."""

    study: Scale
    rounds: int  # of the reference scheme
    seeds: int


QUICK_BOARD = BoardScale(QUICK, 20, 5)
FULL_BOARD = BoardScale(FULL, 60, 10)


@dataclass(frozen=True)
class Leaderboard:
    """What the command line asks for."""

    scale: BoardScale
    worlds: tuple[BoardWorld, ...] = WORLDS
    own: tuple[str, ...] = ()  # schemes besides those of the registry, as module:Class@k=v
    schemes: tuple[str, ...] = (ALL,)

    @classmethod
    def make(
        cls, dataset: str | None, seeds: int | None, quick: bool, own: Sequence[str]
    ) -> Leaderboard:
        """The leaderboard of all schemes and these; only worlds of one data set if it is given."""
        scale = QUICK_BOARD if quick else FULL_BOARD
        scale = scale if seeds is None else replace(scale, seeds=seeds)
        worlds = tuple(world for world in WORLDS if dataset in (None, world.dataset))
        if not worlds:
            raise InputError(f"--dataset {dataset}: choose {' or '.join(TITLES)}")
        return cls(scale, worlds, tuple(own))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets of its worlds."""
        return tuple(dict.fromkeys(world.dataset for world in self.worlds))


def run_leaderboard(
    board: Leaderboard,
    out: Path,
    progress: Progress,
    engine: str = "local",
    address: str | None = None,
) -> Board:
    """Run what is missing; write leaderboard.json, leaderboard.csv and leaderboard.md."""
    read_variants(study_config({}), [*board.schemes, *board.own])  # refuse wrong names first
    study = Study((), board.datasets, board.scale.study)
    rates = choose_rates(study, out, progress, engine, address).rates
    entries: dict[RunKey, Entry] = {}
    total = len(board.worlds) * board.scale.seeds
    for world in board.worlds:
        for seed in range(board.scale.seeds):
            entries |= entries_of(board, world, rates[world.dataset], seed)
            progress("planning", len({(k.world, k.seed) for k in entries}), total)
    runs = out / "runs"
    named = {_run_name(key): entry.config for key, entry in entries.items()}
    execute(named, runs, progress, "runs", engine, address)
    found = {
        key: Run.of(result_directory(runs, _run_name(key), entry.config).read_history(), entry.at)
        for key, entry in entries.items()
    }
    families = {key.scheme: entry.family for key, entry in entries.items()}
    mine = {key.scheme for key, entry in entries.items() if entry.is_own}
    worlds = _world_entries(board, rates)
    table = board_of(found, families, mine, worlds, board.scale.study.name, REFERENCE)
    write_json(out / "leaderboard.json", table.to_dict())
    write_text(out / "leaderboard.csv", table.to_csv())
    write_text(out / "leaderboard.md", page(table))
    return table


@dataclass(frozen=True)
class Entry:
    """A run of the leaderboard before it is trained."""

    config: Config
    family: str
    is_own: bool
    at: dict[str, float]  # the budgets: rounds, joules and seconds


def entries_of(
    board: Leaderboard, world: BoardWorld, rate: float, seed: int
) -> dict[RunKey, Entry]:
    """The runs of all schemes in one world, with its budgets."""
    base = study_config(_changes(board.scale, world, rate, seed))
    at = _budgets(base, _rounds(board.scale, world))
    limited = base.replace(
        {"run.min_joules": at["joules"], "run.min_virtual_seconds": at["seconds"]}
    )
    found = {}
    for variant in read_variants(limited, [*board.schemes, *board.own]):
        entry = Entry(_with_end(variant, at), variant.family, variant.word in board.own, at)
        found[RunKey(world.name, variant.label, seed)] = entry
    return found


def _changes(scale: BoardScale, world: BoardWorld, rate: float, seed: int) -> dict[str, Any]:
    return {
        "data.dataset": world.dataset,
        "data.samples_per_device": _samples(scale, world),
        "training.learning_rate": rate,
        "run.rounds": _rounds(scale, world),
        "run.eval_every": RARELY,
        "run.checkpoint_every": 50,
        "run.workers": 1,
        "run.seed": seed,
        **world.keys,
    }


def _samples(scale: BoardScale, world: BoardWorld) -> int:
    wanted = scale.study.samples_per_device
    return wanted if world.most_samples is None else min(wanted, world.most_samples)


def _rounds(scale: BoardScale, world: BoardWorld) -> int:
    return max(1, round(world.share_of_rounds * scale.rounds))


def _budgets(config: Config, rounds: int) -> dict[str, float]:
    """What so many rounds of the reference scheme cost in this world."""
    plan = plan_for(make_scheme(config, REFERENCE), build_world(config))
    spent = {"joules": rounds * plan.round_joules, "seconds": rounds * plan.round_seconds}
    # Rounded down, so that the reference scheme has spent both after these rounds.
    return {"rounds": rounds, **{key: math.floor(1000 * v) / 1000 for key, v in spent.items()}}


def _with_end(variant: Variant, at: Mapping[str, float]) -> Config:
    """A scheme that ends by itself plans for a budget: enough joules to spend both budgets."""
    scheme = make_scheme(variant.config)
    if type(scheme).finished is Scheme.finished:
        return variant.config
    plan = plan_for(scheme, build_world(variant.config))
    joules = max(at["joules"], at["seconds"] * plan.round_joules / plan.round_seconds)
    return variant.config.replace({"run.max_joules": float(f"{joules:.4g}")})


def _run_name(key: RunKey) -> str:
    return re.sub(r"[^\w.-]+", "-", f"{key.world}-{key.scheme}-seed{key.seed}")


def _world_entries(board: Leaderboard, rates: Mapping[str, float]) -> list[WorldEntry]:
    return [
        WorldEntry(
            world.name,
            f"{TITLES[world.dataset]}: {world.about}",
            rates[world.dataset],
            _samples(board.scale, world),
            _rounds(board.scale, world),
        )
        for world in board.worlds
    ]
