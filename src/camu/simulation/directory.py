"""A run in a directory: its files, and the manifest of everything that decides its result."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from camu import __version__
from camu.config import Config, keys_that_decide
from camu.data import is_own, load
from camu.data.own import shape_spec
from camu.errors import InputError
from camu.files import locked, read_bytes, write_text
from camu.learning.configured import kernel_name
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.plugins import is_plugin, source_digest
from camu.schemes import Scheme, make_scheme
from camu.schemes.registry import plan_for
from camu.sealed import (
    DamagedError,
    file_digest,
    read_sealed_json,
    write_sealed_json,
)
from camu.simulation.callbacks import (
    Checkpoint,
    HistoryFile,
    MLflow,
    Patience,
    StopOnInterrupt,
    TensorBoard,
)
from camu.simulation.checkpoint import (
    check_same,
    checkpoint_place,
    load_checkpoint,
)
from camu.simulation.faults import Faults
from camu.simulation.history import History
from camu.simulation.hooks import check_trainer
from camu.simulation.result import Result, build_trainer, save_model
from camu.simulation.rounds import run_rounds
from camu.simulation.run import Callback, Run, Trainer
from camu.simulation.run_files import MANIFEST
from camu.simulation.run_files import RunDirectory as RunDirectory
from camu.simulation.starting import START, Start
from camu.world import World, build_world, with_data

log = logging.getLogger(__name__)


def run_in_directory(
    config: Config,
    directory: RunDirectory,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    world: World | None = None,
    start: Start | None = None,
) -> History:
    """Run what the configuration says and keep everything in the directory.

    With `start`, the run begins with another model's weights. A new run that fails before its first
    checkpoint leaves nothing, so that it can be started again in the same directory. A second
    process is refused while one runs here.
    """
    with locked(directory.path):
        return _run_locked(config, directory, resume, callbacks, world, start)


def _run_locked(
    config: Config,
    directory: RunDirectory,
    resume: bool,
    callbacks: Sequence[Callback],
    world: World | None,
    start: Start | None,
) -> History:
    check_directory(config, directory, resume, start)
    begun = directory.exists()
    world = with_data(world or build_world(config))
    scheme = make_scheme(config)
    plan = plan_in_directory(world, scheme, directory)
    with StopOnInterrupt() as interrupt, build_trainer(world) as trainer:
        try:
            return keep_in_directory(
                world, plan, scheme, trainer, directory, [*callbacks, interrupt], start=start
            )
        except Exception:
            if not begun and not directory.checkpoints():
                directory.discard()
            raise


def plan_in_directory(world: World, scheme: Scheme, directory: RunDirectory) -> Plan:
    """The plan of the run that is in the directory, or a new one."""
    return directory.read_plan() if directory.plan.exists() else plan_for(scheme, world)


def check_directory(
    config: Config, directory: RunDirectory, resume: bool, start: Start | None = None
) -> None:
    """Refuse a directory with a run in it, unless it is the same run and to be resumed."""
    if directory.exists() and not resume:
        raise InputError(
            f"{directory.path}: a run is already here; continue it with --resume, or give another "
            "directory with --out"
        )
    if directory.exists():
        check_same(directory.read_config().to_toml(), config, directory.path)
        Manifest.of(config, _start_digest(directory, start)).check_resume(directory.path)


def keep_in_directory(
    world: World,
    plan: Plan,
    scheme: Scheme,
    trainer: Trainer,
    directory: RunDirectory,
    callbacks: Sequence[Callback] = (),
    checkpoint_every: int | None = None,
    facts: Callable[[], Mapping[str, Any]] = dict,
    start: Start | None = None,
) -> History:
    """Run a plan, from the checkpoint if there is one, and keep everything in the directory.

    `start` replaces the weights that a new run begins with. `facts` gives more entries of the
    summary, at the end of the run.
    """
    limits = world.config.run
    check_trainer(scheme, trainer)
    Faults.of(world)  # a wrong trace is refused before anything is written
    initial = trainer.initial if start is None else start.weights
    run, wall_before = _restore(world, plan, initial, directory)
    if not run.records:
        write_sealed_json(directory.plan, plan.to_dict(world))
    directory.summary.unlink(missing_ok=True)  # it belongs to the files as they were
    # A resumed run may have another end, so these are written every time.
    write_text(directory.config, world.config.to_toml())
    Manifest.of(world.config, _start_digest(directory, start)).write(directory.path)
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
        assert history.devices is not None
        write_text(directory.devices, history.devices.to_csv())
        summary = {**summarise(world, plan, history, checkpoint.wall_seconds), **facts()}
        names = ("config.toml", "plan.json", MANIFEST, "rounds.jsonl", "model.safetensors")
        files = {name: file_digest(directory.path / name) for name in (*names, "devices.csv")}
        write_sealed_json(directory.summary, {**summary, "files": files})
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
        "notes": list(history.notes),
        "version": __version__,
        "kernel": kernel_name(world.config),
    }


def _start_digest(directory: RunDirectory, start: Start | None) -> str:
    """The digest of the model that a run begins or began with; empty: the seed decides."""
    if start is not None:
        return start.sha256
    before = Manifest.read(directory.path)
    return "" if before is None else before.sources.get(START, "")


def _restore(
    world: World, plan: Plan, initial: Weights, directory: RunDirectory
) -> tuple[Run, float]:
    """The run as its last whole checkpoint left it, or a new one; and its seconds so far.

    Where the newest checkpoint is damaged, the one before it is used, and the history says so.
    """
    places = directory.checkpoints()
    if not places:
        return Run.new(world, plan, initial), 0.0
    if directory.summary.exists():
        directory.read_summary()  # a damaged result is refused before it is continued
    path, reason = places[0], ""
    try:
        last, digest = checkpoint_place(path)
    except DamagedError as error:
        if len(places) == 1:
            raise
        path, reason = places[1], "the newest checkpoint is damaged"
        log.warning("%s", error)
        last, digest = checkpoint_place(path)
        os.replace(places[0], directory.checkpoint.with_name("damaged.safetensors"))
    if not reason and path != directory.checkpoint:
        reason = "the newest checkpoint is missing"
    records = directory.records_of(last, digest)
    run, wall = load_checkpoint(path, world, plan, initial, records)
    if reason:
        run.notes.append(f"went on from the checkpoint of round {last}, because {reason}")
        log.warning("%s: %s", directory.path, run.notes[-1])
    return run, wall


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
    def of(cls, config: Config, start: str = "") -> Manifest:
        """The manifest of a run that starts now; `start` is the digest of its first model."""
        wanted = keys_that_decide("bits", "end")
        decide = {
            f"{section}.{key}": "inf" if value == math.inf else value  # JSON has no infinity
            for section, values in config.model_dump(mode="json").items()
            for key, value in values.items()
            if f"{section}.{key}" in wanted
        }
        sources = {**dict(_sources(decide)), **({START: start} if start else {})}
        return cls(decide, sources, __version__, kernel_name(config))

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """The manifest of the run in a directory; None if there is none."""
        path = directory / MANIFEST
        if not path.exists():
            return None
        remedy = f"restore it, or delete {directory} and run it again"
        document = read_sealed_json(path, "the manifest of a run", remedy)
        try:
            return cls(**document)
        except TypeError:  # of another version of camu
            return None

    def write(self, directory: Path) -> None:
        """Save the manifest in a run's directory."""
        write_sealed_json(directory / MANIFEST, asdict(self))

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
            f"{key} = {self.config[key]}" if key in self.config else "the model of --start"
            for key in sorted(self.sources)
            if before.sources.get(key, None if key == START else self.sources[key])
            != self.sources[key]
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
                found.append(f"the source of {key} = {self.config.get(key, 'a model')}")
        if (START in self.sources) != (START in before.sources):
            found.append("the model that it starts from")
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
            # The data themselves: a function may read files that change.
            if is_own(value) and shape_spec(value) is None:
                yield key, load(value).sha256
        elif key in INPUT_FILES:
            data = read_bytes(value, f"a file that can be read in {key}")
            yield key, hashlib.sha256(data).hexdigest()
        elif is_plugin(value) and not Path(value).exists():  # C:\data is a path
            yield key, source_digest(value, key)
