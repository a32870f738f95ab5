"""A run in a directory: config.toml, plan.json, rounds.jsonl, checkpoint/ and summary.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camu import __version__
from camu.config import Config, load_config
from camu.errors import CamuError, InputError
from camu.files import write_json, write_text
from camu.schemes import Scheme, make_scheme
from camu.simulation.callbacks import (
    Checkpoint,
    HistoryFile,
    MLflow,
    Patience,
    StopOnInterrupt,
    TensorBoard,
)
from camu.simulation.checkpoint import check_same, checkpoint_round, load_checkpoint
from camu.simulation.engines import initial_weights
from camu.simulation.history import History, Record
from camu.simulation.loop import Callback, Run, check_budgets, simulate
from camu.world import World, build_world

# What carries a run out: `simulate`, or anything with its arguments.
Play = Callable[[World, Scheme, Sequence[Callback], Run | None], History]


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def config(self) -> Path:
        """The fully resolved configuration."""
        return self.path / "config.toml"

    @property
    def plan(self) -> Path:
        """The plan that was run."""
        return self.path / "plan.json"

    @property
    def rounds(self) -> Path:
        """One JSON line per round."""
        return self.path / "rounds.jsonl"

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint."""
        return self.path / "checkpoint" / "state.safetensors"

    @property
    def summary(self) -> Path:
        """How the run ended; absent until it has."""
        return self.path / "summary.json"

    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config.exists()

    def read_config(self) -> Config:
        """The configuration of the run that is here."""
        if not self.exists():
            raise InputError(f"{self.path}: no run is here (there is no config.toml)")
        return load_config(file=self.config)

    def read_records(self, last_round: int | None = None) -> list[Record]:
        """The rounds as written, up to one; a line that a crash cut short is passed over."""
        records = []
        for line in self.rounds.read_text(encoding="utf-8").splitlines():
            try:
                record = Record.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError):
                break
            if last_round is not None and record.round > last_round:
                break
            records.append(record)
        return records

    def read_summary(self) -> dict[str, Any]:
        """The summary of the finished run."""
        document: dict[str, Any] = json.loads(self.summary.read_text(encoding="utf-8"))
        return document

    def read_history(self) -> History:
        """The history of the finished run."""
        summary = self.read_summary()
        records = self.read_records()
        return History(tuple(records), summary["weights_sha256"], summary["stopped"])


def run_in_directory(
    config: Config,
    directory: RunDirectory,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    world: World | None = None,
) -> History:
    """Run what the configuration says and keep everything in the directory."""
    check_directory(config, directory, resume)
    world = world or build_world(config)
    with StopOnInterrupt() as interrupt:
        return keep_in_directory(
            world, make_scheme(config), directory, simulate, [*callbacks, interrupt]
        )


def check_directory(config: Config, directory: RunDirectory, resume: bool) -> None:
    """Refuse a directory with a run in it, unless it is the same run and to be resumed."""
    if directory.exists() and not resume:
        raise InputError(
            f"{directory.path}: a run is already here; continue it with --resume, or give another "
            "directory with --out"
        )
    if directory.exists():
        check_same(directory.read_config().to_toml(), config, directory.path)


def keep_in_directory(
    world: World,
    scheme: Scheme,
    directory: RunDirectory,
    play: Play,
    callbacks: Sequence[Callback] = (),
    checkpoint_every: int | None = None,
) -> History:
    """Let `play` run a scheme, from the checkpoint if there is one, and keep all it gives."""
    limits = world.config.run
    before, wall_before = _restore(world, scheme, directory)
    if before is None:
        write_text(directory.config, world.config.to_toml())
        write_json(directory.plan, scheme.plan(world).to_dict(world))
    else:  # it may have reached its end already
        check_budgets(before, before.records[-1])
    history_file = HistoryFile(directory.rounds)
    every = checkpoint_every or limits.checkpoint_every
    checkpoint = Checkpoint(directory.checkpoint, every, history_file, wall_before)
    watchers: list[Callback] = [history_file]
    if limits.patience is not None:
        watchers.append(Patience(limits.patience))
    if limits.tensorboard:
        watchers.append(TensorBoard(directory.path / "tensorboard"))
    if limits.mlflow:
        watchers.append(MLflow(directory.path.name))
    # The checkpoint comes last: what stops a run must have spoken before it is saved.
    watchers += [*callbacks, checkpoint]
    try:
        history = play(world, scheme, watchers, before)
    finally:
        history_file.close()
    if history.stopped != "interrupted":
        write_json(directory.summary, summarise(world, history, checkpoint.wall_seconds))
    return history


def summarise(world: World, history: History, wall_seconds: float) -> dict[str, Any]:
    """The numbers that a run ends with."""
    final = history.final
    return {
        "scheme": world.config.scheme.name,
        "dataset": world.config.data.dataset,
        "seed": world.seed,
        "rounds": final.round,
        "final_accuracy": history.final_accuracy,
        "best_accuracy": history.best_accuracy,
        "virtual_seconds": final.virtual_seconds,
        "joules": final.total_joules,
        "joules_compute": final.joules["compute"],
        "joules_transmit": final.joules["transmit"],
        "faults": {
            name: sum(record.faults[name] for record in history.records) for name in final.faults
        },
        "stopped": history.stopped,
        "wall_seconds": wall_seconds,
        "weights_sha256": history.weights_sha256,
        "version": __version__,
    }


def _restore(world: World, scheme: Scheme, directory: RunDirectory) -> tuple[Run | None, float]:
    """The run from its last checkpoint, or None where there is none to go on from."""
    if not directory.checkpoint.exists():
        return None, 0.0
    records = directory.read_records(checkpoint_round(directory.checkpoint))
    initial = initial_weights(world)
    run, wall = load_checkpoint(directory.checkpoint, world, scheme.plan(world), initial, records)
    if not records or records[-1].round != run.round:
        raise CamuError(
            f"{directory.rounds} ends before its checkpoint; start anew in another directory"
        )
    return run, wall
