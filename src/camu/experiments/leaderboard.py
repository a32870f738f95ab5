"""The leaderboard: every scheme in the same worlds, until it has spent the same joules and seconds.

The budgets of a world are what a fixed number of rounds of one reference scheme costs there. Every
run goes on until it has spent both. The learning rate is that of the study: one per data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.experiments.budgets import spent_in, with_end
from camu.experiments.design import FULL, QUICK, Scale, file_name
from camu.experiments.ranking import Board, Run, RunKey, WorldEntry, board_of
from camu.experiments.reproduce import choose_rates
from camu.experiments.scheduler import Executor, study_config
from camu.experiments.tables import leaderboard_page
from camu.files import write_json, write_text
from camu.schemes.variants import ALL, Variant, read_variants

REFERENCE = "compute-rounds"
RARELY = 1_000_000  # rounds between evaluations: those near the budgets are enough
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}


@dataclass(frozen=True)
class BoardWorld:
    """A kind of world, without its seed."""

    name: str
    dataset: str
    about: str
    h: int | None  # Non-IID devices
    keys: Mapping[str, Any] = field(default_factory=dict)
    most_samples: int | None = None  # per device
    share_of_rounds: float = 1.0  # of the reference scheme, of the scale's

    def samples(self, scale: Scale) -> int:
        """Samples per device."""
        wanted = scale.samples_per_device
        return wanted if self.most_samples is None else min(wanted, self.most_samples)

    def rounds(self, scale: Scale) -> int:
        """Rounds of the reference scheme."""
        return max(1, round(self.share_of_rounds * scale.board_rounds))

    def config(self, scale: Scale, rate: float, seed: int) -> Config:
        """The configuration of a world."""
        changes = {
            "data.dataset": self.dataset,
            "data.samples_per_device": self.samples(scale),
            "data.noniid_devices": self.h,
            "training.learning_rate": rate,
            "run.rounds": self.rounds(scale),
            "run.eval_every": RARELY,
            "machine.checkpoint_every": 50,
            "machine.workers": 1,
            "run.seed": seed,
            **self.keys,
        }
        return study_config(changes)


_NOISE = {"radio.noise_dbm": -90.0}
_TWO_LABELS = "30 devices, all with two labels"
_SIX = "30 devices, 6 with two labels"
_MANY = [
    {"name": "Region I", "devices": 150, "x": [-10.0, 0.0], "y": [-5.0, 5.0]},
    {"name": "Region II", "devices": 150, "x": [10.0, 20.0], "y": [-5.0, 5.0]},
]
# The kinds were fixed before any scheme was run in them. Their sizes, the reference scheme and its
# rounds were set by computing time, in trials with seed 1000, which no comparison uses.
WORLDS = (
    BoardWorld("mnist-h30-noisy", "mnist", f"{_TWO_LABELS}; noisy channel", 30, _NOISE),
    BoardWorld("mnist-h6-clean", "mnist", f"{_SIX}; clean channel", 6),
    BoardWorld("fashion-h30-clean", "fashion-mnist", f"{_TWO_LABELS}; clean channel", 30),
    BoardWorld("fashion-h6-noisy", "fashion-mnist", f"{_SIX}; noisy channel", 6, _NOISE),
    BoardWorld(
        "mnist-dirichlet-clean",
        "mnist",
        "30 devices, Dirichlet 0.3; clean channel",
        None,
        {"data.partition": "dirichlet", "data.alpha": 0.3},
    ),
    BoardWorld(
        "fashion-unequal-noisy",
        "fashion-mnist",
        "30 devices of unequal sizes (power law), all with two labels; noisy channel",
        30,
        _NOISE | {"data.size_exponent": 1.0},
        most_samples=600,  # the largest devices want no more of a label than there is
    ),
    BoardWorld(
        "mnist-300-noisy",
        "mnist",
        "300 devices, all with two labels; noisy channel",
        300,
        _NOISE | {"fleet.regions": _MANY},
        most_samples=40,
        share_of_rounds=0.25,
    ),
)


@dataclass(frozen=True)
class Leaderboard:
    """What the command line asks for."""

    scale: Scale
    seeds: int
    worlds: tuple[BoardWorld, ...] = WORLDS
    own: tuple[str, ...] = ()  # schemes besides those of the registry, as module:Class@k=v
    schemes: tuple[str, ...] = (ALL,)

    @classmethod
    def make(
        cls, dataset: str | None, seeds: int | None, quick: bool, own: Sequence[str]
    ) -> Leaderboard:
        """The leaderboard of all schemes and these; only worlds of one data set if it is given."""
        scale = QUICK if quick else FULL
        worlds = tuple(world for world in WORLDS if dataset in (None, world.dataset))
        if not worlds:
            raise InputError(f"--dataset {dataset}: choose {' or '.join(TITLES)}")
        return cls(scale, seeds or scale.board_seeds, worlds, tuple(own))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets of its worlds."""
        return tuple(dict.fromkeys(world.dataset for world in self.worlds))


def run_leaderboard(asked: Leaderboard, executor: Executor) -> Board:
    """Run what is missing; write leaderboard.json, leaderboard.csv and leaderboard.md."""
    read_variants(study_config({}), [*asked.schemes, *asked.own])  # refuse wrong names first
    rates = choose_rates(asked.datasets, asked.scale, executor)
    entries: dict[RunKey, Entry] = {}
    total = len(asked.worlds) * asked.seeds
    for number in range(total):
        world, seed = asked.worlds[number // asked.seeds], number % asked.seeds
        entries |= entries_of(asked, world, rates[world.dataset], seed)
        executor.progress("planning", number + 1, total)
    found = executor.run(
        {key: entry.config for key, entry in entries.items()},
        lambda key: file_name(f"{key.world}-{key.scheme}-seed{key.seed}"),
    )
    board = board_of(
        {key: Run.of(found[key].history, entry.at) for key, entry in entries.items()},
        {key.scheme: entry.variant.family for key, entry in entries.items()},
        {key.scheme for key, entry in entries.items() if entry.variant.word in asked.own},
        [
            WorldEntry(
                world.name,
                f"{TITLES[world.dataset]}: {world.about}",
                rates[world.dataset],
                world.samples(asked.scale),
                world.rounds(asked.scale),
            )
            for world in asked.worlds
        ],
        asked.scale.name,
        REFERENCE,
    )
    write_json(executor.out / "leaderboard.json", board.to_dict())
    write_text(executor.out / "leaderboard.csv", board.to_csv())
    write_text(executor.out / "leaderboard.md", leaderboard_page(board))
    return board


@dataclass(frozen=True)
class Entry:
    """A run of the leaderboard before it is trained."""

    variant: Variant
    config: Config
    at: dict[str, float]  # the budgets: rounds, joules and seconds


def entries_of(
    asked: Leaderboard, world: BoardWorld, rate: float, seed: int
) -> dict[RunKey, Entry]:
    """The runs of all schemes in one world, with its budgets."""
    base = world.config(asked.scale, rate, seed)
    rounds = world.rounds(asked.scale)
    at = {"rounds": rounds, **spent_in(base, REFERENCE, rounds)}
    limits = {"run.min_joules": at["joules"], "run.min_virtual_seconds": at["seconds"]}
    return {
        RunKey(world.name, variant.label, seed): Entry(variant, with_end(variant.config, at), at)
        for variant in read_variants(base.replace(limits), [*asked.schemes, *asked.own])
    }
