"""A run in a directory: its files, and the manifest of everything that decides its result."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from camu import __version__
from camu.config import Config, keys_that_decide, load_config
from camu.data import is_own, load
from camu.errors import CamuError, InputError
from camu.files import read_json, read_text, write_json, write_text
from camu.learning.engine import kernel_name
from camu.planning.plan import Plan
from camu.plugins import is_plugin, source_digest
from camu.schemes import Scheme, make_scheme
from camu.schemes.registry import plan_for
from camu.simulation.callbacks import (
    Checkpoint,
    HistoryFile,
    MLflow,
    Patience,
    StopOnInterrupt,
    TensorBoard,
)
from camu.simulation.checkpoint import check_same, checkpoint_round, load_checkpoint
from camu.simulation.faults import Faults
from camu.simulation.history import History, Record
from camu.simulation.hooks import check_trainer
from camu.simulation.ledger import DeviceEnergy
from camu.simulation.loop import run_rounds
from camu.simulation.result import Result, build_trainer, save_model
from camu.simulation.run import Callback, Run, Trainer
from camu.world import World, build_world, with_data


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

    @property
    def devices(self) -> Path:
        """Joules of every device; absent until the run has ended."""
        return self.path / "devices.csv"

    @property
    def model(self) -> Path:
        """The trained model, with named tensors; absent until the run has ended."""
        return self.path / "model.safetensors"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's events, with run.tensorboard."""
        return self.path / "tensorboard"

    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config.exists()

    def read_config(self) -> Config:
        """The configuration of the run that is here."""
        if not self.exists():
            raise InputError(f"{self.path}: no run is here (there is no config.toml)")
        return load_config(file=self.config)

    def read_plan(self) -> Plan:
        """The plan that the run began with."""
        return Plan.from_dict(read_json(self.plan, "the plan of a run"), str(self.plan))

    def read_records(self, last_round: int | None = None) -> list[Record]:
        """The rounds as written, up to one; a last line that a crash cut short is left out."""
        records: list[Record] = []
        lines = self.rounds.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                record = Record.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, ValueError) and number == len(lines):
                    break
                raise CamuError(
                    f"{self.rounds}, line {number}: cannot be read ({type(error).__name__}: "
                    f"{error}); was it written by another version of camu?"
                ) from None
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
        devices = self.read_devices()
        return History(tuple(records), summary["weights_sha256"], summary["stopped"], devices)

    def read_devices(self) -> DeviceEnergy | None:
        """The joules of every device; None before the end of the run."""
        if not self.devices.exists():
            return None
        text = read_text(self.devices, "the devices of a run")
        return DeviceEnergy.from_csv(text, str(self.devices))

    def discard(self) -> None:
        """Remove the files that a run writes before its first checkpoint."""
        for path in (self.config, self.plan, self.rounds, self.path / MANIFEST):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.tensorboard, ignore_errors=True)
        with contextlib.suppress(OSError):  # files of others stay
            self.path.rmdir()


def run_in_directory(
    config: Config,
    directory: RunDirectory,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    world: World | None = None,
) -> History:
    """Run what the configuration says and keep everything in the directory.

    A new run that fails before its first checkpoint leaves nothing, so that it can be started again
    in the same directory.
    """
    check_directory(config, directory, resume)
    begun = directory.exists()
    world = with_data(world or build_world(config))
    scheme = make_scheme(config)
    plan = plan_in_directory(world, scheme, directory)
    with StopOnInterrupt() as interrupt, build_trainer(world) as trainer:
        try:
            return keep_in_directory(
                world, plan, scheme, trainer, directory, [*callbacks, interrupt]
            )
        except Exception:
            if not begun and not directory.checkpoint.exists():
                directory.discard()
            raise


def plan_in_directory(world: World, scheme: Scheme, directory: RunDirectory) -> Plan:
    """The plan of the run that is in the directory, or a new one."""
    return directory.read_plan() if directory.plan.exists() else plan_for(scheme, world)


def check_directory(config: Config, directory: RunDirectory, resume: bool) -> None:
    """Refuse a directory with a run in it, unless it is the same run and to be resumed."""
    if directory.exists() and not resume:
        raise InputError(
            f"{directory.path}: a run is already here; continue it with --resume, or give another "
            "directory with --out"
        )
    if directory.exists():
        check_same(directory.read_config().to_toml(), config, directory.path)
        Manifest.of(config).check_resume(directory.path)


def keep_in_directory(
    world: World,
    plan: Plan,
    scheme: Scheme,
    trainer: Trainer,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    checkpoint_every: int | None = None,
) -> History:
    """Run a plan, from the checkpoint if there is one, and keep everything in the directory."""
    limits = world.config.run
    check_trainer(scheme, trainer)
    Faults.of(world)  # a wrong trace is refused before anything is written
    run, wall_before = _restore(world, plan, trainer, directory)
    if not run.records:
        write_json(directory.plan, plan.to_dict(world))
    # A resumed run may have another end, so these are written every time.
    write_text(directory.config, world.config.to_toml())
    Manifest.of(world.config).write(directory.path)
    history_file = HistoryFile(directory.rounds)
    every = checkpoint_every or limits.checkpoint_every
    checkpoint = Checkpoint(directory.checkpoint, every, history_file, wall_before)
    watchers: list[Callback] = [history_file]
    if limits.patience is not None:
        watchers.append(Patience(limits.patience))
    if limits.tensorboard:
        watchers.append(TensorBoard(directory.tensorboard))
    if limits.mlflow:
        watchers.append(MLflow())
    # The checkpoint comes last, so that it saves a stop that another callback asked for.
    watchers += [*callbacks, checkpoint]
    run_rounds(run, scheme, trainer, watchers)
    history = run.history()
    if history.stopped != "interrupted":
        result = Result(history, run.plan, world.config, run.weights)
        save_model(result, directory.model)
        if history.devices is not None:
            write_text(directory.devices, history.devices.to_csv())
        write_json(directory.summary, summarise(world, plan, history, checkpoint.wall_seconds))
    return history


def summarise(world: World, plan: Plan, history: History, wall_seconds: float) -> dict[str, Any]:
    """The numbers that a run ends with."""
    final = history.final
    return {
        "scheme": plan.scheme,
        "dataset": world.config.data.dataset,
        "seed": world.seed,
        "rounds": final.round,
        "final_accuracy": history.final_accuracy,
        "best_accuracy": history.best_accuracy,
        "virtual_seconds": final.virtual_seconds,
        "joules": final.total_joules,
        "joules_compute": final.joules["compute"],
        "joules_transmit": final.joules["transmit"],
        "joules_receive": final.joules["receive"],
        "joules_base_station": final.joules["base_station"],
        "empty": final.empty,
        "faults": {
            name: sum(record.faults[name] for record in history.records) for name in final.faults
        },
        "stopped": history.stopped,
        "wall_seconds": wall_seconds,
        "weights_sha256": history.weights_sha256,
        "version": __version__,
        "kernel": kernel_name(world.config),
    }


def _restore(
    world: World, plan: Plan, trainer: Trainer, directory: RunDirectory
) -> tuple[Run, float]:
    """The run as its last checkpoint left it, or a new one; and its wall-clock seconds so far."""
    if not directory.checkpoint.exists():
        return Run.new(world, plan, trainer.initial), 0.0
    records = directory.read_records(checkpoint_round(directory.checkpoint))
    run, wall = load_checkpoint(directory.checkpoint, world, plan, trainer.initial, records)
    if not records or records[-1].round != run.round:
        raise CamuError(
            f"{directory.rounds} ends before its checkpoint; start a new run in another directory"
        )
    return run, wall


MANIFEST = "manifest.json"
INPUT_FILES = (
    "fleet.file",
    "fleet.snr_file",
    "fleet.base_station_file",
    "fleet.dropout_trace",
    "fleet.availability_trace",
    "fleet.harvest_trace",
)


@dataclass(frozen=True)
class Manifest:
    """What a result depends on. Two runs with equal manifests have the same result."""

    config: dict[str, Any]  # by section.key, defaults included
    sources: dict[str, str]  # SHA-256 of the user's own code and files, by section.key
    version: str  # of camu
    kernel: str  # which code computes gradients

    @classmethod
    def of(cls, config: Config) -> Manifest:
        """The manifest of a run that starts now."""
        wanted = keys_that_decide("bits", "end")
        decide = {
            f"{section}.{key}": "inf" if value == math.inf else value  # JSON has no infinity
            for section, values in config.model_dump(mode="json").items()
            for key, value in values.items()
            if f"{section}.{key}" in wanted
        }
        return cls(decide, dict(_sources(decide)), __version__, kernel_name(config))

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """The manifest of the run in a directory; None if there is none that can be read."""
        try:
            document = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
            return cls(**document)
        except (OSError, ValueError, TypeError):
            return None

    def write(self, directory: Path) -> None:
        """Save the manifest in a run's directory."""
        write_json(directory / MANIFEST, asdict(self))

    @property
    def key(self) -> str:
        """A hash of the manifest, 16 hexadecimal digits."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def check_resume(self, directory: Path) -> None:
        """Refuse to continue a run in a directory with other code or input files than it had."""
        before = Manifest.read(directory)
        if before is None:
            return
        changed = [
            f"{key} = {self.config[key]}"
            for key in sorted(self.sources)
            if before.sources.get(key, self.sources[key]) != self.sources[key]
        ]
        if before.kernel != self.kernel:
            raise InputError(
                f"{directory}: this run began on the kernel {before.kernel!r}, and here it would "
                f"continue on {self.kernel!r}, with other last bits; "
                f"{_advice(before.kernel)}, or start a new run in another directory"
            )
        if changed:
            raise InputError(
                f"{directory}: the source of {', '.join(changed)} has changed since this run "
                "began; restore it, or start a new run in another directory"
            )

    def changes_since(self, before: Manifest) -> list[str]:
        """What differs from an earlier manifest, one phrase each: "run.rounds (was 20, now 6)"."""
        found = [
            f"{key} (was {before.config.get(key)}, now {self.config.get(key)})"
            for key in sorted(self.config.keys() | before.config.keys())
            if self.config.get(key) != before.config.get(key)
        ]
        for key in sorted(self.sources.keys() & before.sources.keys()):
            if self.sources[key] != before.sources[key]:
                found.append(f"the source of {key} = {self.config[key]}")
        for name in ("version", "kernel"):
            old, new = getattr(before, name), getattr(self, name)
            if old != new:
                found.append(f"camu's {name} (was {old}, now {new})")
        return found


def _advice(kernel: str) -> str:
    """How to get a kernel back."""
    if kernel == "torch":
        return "continue it with --set run.kernel=torch"
    return f"continue it on a machine with {kernel.partition(' ')[2] or 'that kernel'}"


def _sources(keys: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in keys.items():
        if not isinstance(value, str):
            continue
        if key == "data.dataset":
            if is_own(value):  # the data themselves: a function may read files that change
                yield key, load(value).sha256
        elif key in INPUT_FILES:
            try:
                yield key, hashlib.sha256(Path(value).read_bytes()).hexdigest()
            except OSError as error:
                raise InputError(f"{key} = {value}: cannot be read ({error.strerror})") from None
        elif is_plugin(value) and not Path(value).exists():  # C:\data is a path
            yield key, source_digest(value, key)
