"""A run in a directory: its files, how they are read, and a run that writes them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from camu import __version__
from camu.config import Config
from camu.errors import CamuError, InputError
from camu.files import locked, read_text, shown, write_text
from camu.learning.metrics import finite
from camu.learning.weights import Weights
from camu.outputs import LOCK, RUN_FILES, entries, refuse_foreign, remove_temporaries
from camu.planning.plan import Plan
from camu.schemes import Scheme, make_scheme, plans
from camu.sealed import (
    DamagedError,
    check_files,
    file_digest,
    read_sealed_json,
    write_sealed_json,
)
from camu.simulation.attendance import Faults
from camu.simulation.callbacks import Checkpoint, HistoryFile, StopOnInterrupt
from camu.simulation.checkpoint import (
    check_same,
    checkpoint_place,
    load_checkpoint,
    previous_checkpoint,
)
from camu.simulation.history import History, Record
from camu.simulation.hooks import check_trainer
from camu.simulation.ledger import DeviceEnergy
from camu.simulation.manifest import MANIFEST, REMEDY, START, Manifest
from camu.simulation.result import (
    Result,
    Start,
    build_trainer,
    run_rounds,
    save_model,
    scaling_of,
)
from camu.simulation.run import Callback, Run, Trainer
from camu.simulation.trackers import configured_callbacks
from camu.world import World, build_world, with_data

log = logging.getLogger(__name__)


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"  # fully resolved
        self.plan = path / "plan.json"  # that the run began with
        self.rounds = path / "rounds.jsonl"  # a line per round
        self.checkpoint = path / "checkpoint" / "state.safetensors"  # the last one
        # These are absent until the run has ended:
        self.summary = path / "summary.json"
        self.devices = path / "devices.csv"  # joules of every device
        self.model = path / "model.safetensors"  # trained, with named tensors

    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config.exists()

    def read_config(self) -> Config:
        """The configuration of the run that is here."""
        if not self.exists():
            raise InputError(f"{self.path}: no run is here (there is no config.toml)")
        text = read_text(self.config, "the configuration of a run")
        return Config.from_saved(text, shown(self.config))

    def read_manifest(self) -> Manifest | None:
        """The manifest of the run that is here; None if none was begun."""
        return Manifest.read(self.path) if self.exists() else None

    def read_plan(self) -> Plan:
        """The plan that the run began with."""
        return Plan.from_dict(self.read_plan_document(), str(self.plan))

    def read_plan_document(self) -> dict[str, Any]:
        """The plan that the run began with, as plain data."""
        return read_sealed_json(self.plan, "the plan of a run", REMEDY)

    def read_records(self) -> list[Record]:
        """The rounds as written; a last line that a crash cut short is left out."""
        return [record for _, record in self._lines()]

    def records_of(self, last_round: int, sha256: str) -> list[Record]:
        """The rounds up to a checkpoint, which has the digest of their lines."""
        found = list(islice(self._lines(), last_round + 1))
        if len(found) != last_round + 1:
            raise DamagedError(f"{self.rounds}: ends before its checkpoint; {REMEDY}")
        text = "".join(f"{line}\n" for line, _ in found)
        if hashlib.sha256(text.encode()).hexdigest() != sha256:
            raise DamagedError(
                f"{self.rounds}: is damaged or was changed (its lines up to round {last_round} do "
                f"not match the digest in the checkpoint); {REMEDY}"
            )
        return [record for _, record in found]

    def _lines(self) -> Iterator[tuple[str, Record]]:
        """Each line with its record."""
        lines = read_text(self.rounds, "the rounds of a run").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                record = Record.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                if isinstance(error, ValueError) and number == len(lines):
                    return
                raise CamuError(
                    f"{self.rounds}, line {number}: cannot be read ({type(error).__name__}: "
                    f"{error}); was it written by another version of camu?"
                ) from None
            if record.round != number - 1:
                raise DamagedError(
                    f"{self.rounds}, line {number}: round {number - 1} belongs here, and this is "
                    f"round {record.round}; {REMEDY}"
                )
            yield line, record

    def read_summary(self, check: bool = True) -> dict[str, Any]:
        """The summary of the finished run.

        All files of the run are compared with their digests first, unless this process has just
        written them.
        """
        document = read_sealed_json(self.summary, "the summary of a run", REMEDY)
        files = document.pop("files", {})
        if check:
            check_files(self.path, files, REMEDY)
        return document

    def read_history(self) -> History:
        """The history of the finished run."""
        summary, records = self.read_summary(), tuple(self.read_records())
        digest, stopped, notes = (summary[key] for key in ("weights_sha256", "stopped", "notes"))
        return History(records, digest, stopped, tuple(notes), self.read_devices())

    def read_devices(self) -> DeviceEnergy | None:
        """The joules of every device; None before the end of the run."""
        if not self.devices.exists():
            return None
        text = read_text(self.devices, "the devices of a run")
        return DeviceEnergy.from_csv(text, str(self.devices))

    def finished(self) -> bool:
        """Whether a whole result is here; a damaged one is an error."""
        return self.summary.exists() and bool(self.read_summary())

    def checkpoints(self) -> list[Path]:
        """The checkpoints that are here, the newest first."""
        places = (self.checkpoint, previous_checkpoint(self.checkpoint))
        return [path for path in places if path.exists()]

    def check_place(self, resume: bool, own: Collection[str] = ()) -> None:
        """Refuse a directory with anything in it, unless it holds a run that is to be resumed.

        `own` are names that the present command made. A run that was killed at its very beginning
        leaves its manifest alone.
        """
        if self.exists():
            if not (self.path / MANIFEST).exists():
                raise InputError(
                    f"{self.path}: config.toml is here, but no run is (there is no {MANIFEST}); "
                    "give an empty directory with --out"
                )
            if not resume:
                raise InputError(
                    f"{self.path}: a run is already here; continue it with --resume, or give "
                    "another directory with --out"
                )
            return
        names = entries(self.path, own)
        if names == [MANIFEST]:
            read_sealed_json(self.path / MANIFEST, "an empty directory with --out", REMEDY)
            return
        refuse_foreign(self.path, names)

    def remove_temporaries(self) -> None:
        """Remove what a kill left of this run's files while they were written."""
        remove_temporaries(self.path, RUN_FILES)
        names = [path.name for path in (self.checkpoint, previous_checkpoint(self.checkpoint))]
        remove_temporaries(self.checkpoint.parent, names)

    def remove(self) -> None:
        """Remove the run, and the directory if nothing else is in it."""
        self.discard()
        page, lock = self.path / "report.html", self.path / LOCK
        for path in (self.summary, self.devices, self.model, page, *self.checkpoints(), lock):
            path.unlink(missing_ok=True)
        self.remove_temporaries()
        for folder in (self.checkpoint.parent, self.path):
            with contextlib.suppress(OSError):  # it holds something else
                folder.rmdir()

    def discard(self) -> None:
        """Remove the files that a run writes before its first checkpoint.

        Only for a directory that was free when the run began, so that all of them are its own.
        """
        for path in (self.config, self.plan, self.rounds, self.path / MANIFEST):
            path.unlink(missing_ok=True)
        for name in ("tensorboard", "wandb"):
            shutil.rmtree(self.path / name, ignore_errors=True)


def run_in_directory(
    config: Config,
    directory: RunDirectory,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    world: World | None = None,
    start: Start | None = None,
    manifest: Manifest | None = None,
) -> History:
    """Run what the configuration says and keep everything in the directory.

    With `start`, the run begins with another model's weights. `manifest` is that of the
    configuration, if it is known. A new run that fails before its first checkpoint leaves nothing,
    so that it can be started again in the same directory. A second process is refused while one
    runs here.
    """
    directory.check_place(resume)  # before a lock is put into a directory of the user's
    with locked(directory.path), contextlib.ExitStack() as stack:
        checked = check_directory(config, directory, resume, start, manifest=manifest)
        begun = directory.exists()
        world = with_data(world or build_world(config))
        scheme = make_scheme(config)
        known = begun and directory.plan.exists()
        plan = directory.read_plan() if known else plans.plan(scheme, world)
        watchers = [*callbacks, stack.enter_context(StopOnInterrupt())]
        trainer = stack.enter_context(build_trainer(world))
        try:
            return keep_in_directory(
                world, plan, scheme, trainer, directory, watchers, start=start, manifest=checked
            )
        except Exception:
            if not begun and not directory.checkpoints():
                directory.discard()
            raise


def check_directory(
    config: Config,
    directory: RunDirectory,
    resume: bool,
    start: Start | None = None,
    own: Collection[str] = (),
    manifest: Manifest | None = None,
) -> Manifest:
    """Refuse a directory with anything in it, unless it is this run and to be resumed.

    `own` are names of files that this command makes before the run begins. Returns the manifest of
    the run, which is computed unless it is given.
    """
    directory.check_place(resume, own)
    before = directory.read_manifest()
    if before is not None:
        before.check_version(directory.path)
        check_same(directory.read_config(), config, directory.path)
    manifest = manifest or Manifest.of(config, _start_digest(before, start))
    if before is not None:
        manifest.check_sources(before, directory.path)
    return manifest


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
    manifest: Manifest | None = None,
) -> History:
    """Run a plan, from the checkpoint if there is one, and keep everything in the directory.

    `start` replaces the weights that a new run begins with. `facts` gives more entries of the
    summary, at the end of the run. `manifest` is what `check_directory` returned.
    """
    check_trainer(scheme, trainer, plan, world.config)
    Faults.of(world)  # a wrong trace is refused before anything is written
    before = directory.read_manifest()
    manifest = manifest or Manifest.of(world.config, _start_digest(before, start))
    manifest = replace(manifest, provenance=asdict(trainer.provenance))
    if before is not None:
        manifest.check_provenance(before, directory.path)
    initial = trainer.initial if start is None else start.weights
    run, wall_before = _restore(world, plan, initial, directory)
    directory.remove_temporaries()
    directory.summary.unlink(missing_ok=True)  # it belongs to the files as they were
    # A resumed run may have another end, so these are written every time. The manifest comes first
    # and tells a run from a user's files; a plan is never here without the configuration it is for.
    manifest.write(directory.path)
    write_text(directory.config, world.config.to_toml())
    if not run.records:
        write_sealed_json(directory.plan, plan.to_dict(world))
    history_file = HistoryFile(directory.rounds)
    every = checkpoint_every or world.config.machine.checkpoint_every
    checkpoint = Checkpoint(directory.checkpoint, every, history_file, wall_before)
    # The checkpoint comes last, so that it saves a stop that another callback asked for.
    own = configured_callbacks(world.config, directory.path)
    run_rounds(run, scheme, trainer, [history_file, *own, *callbacks, checkpoint])
    history = run.history()
    if history.stopped != "interrupted":
        result = Result(history, run.plan, world.config, run.weights)
        save_model(result, directory.model, scaling_of(world))
        assert history.devices is not None
        write_text(directory.devices, history.devices.to_csv())
        summary = summarise(world, plan, history, checkpoint.wall_seconds)
        summary |= {"version": __version__, "kernel": trainer.provenance.kernel, **facts()}
        files = {name: file_digest(directory.path / name) for name in RUN_FILES[:-1]}
        write_sealed_json(directory.summary, {**summary, "files": files})
    return history


def summarise(world: World, plan: Plan, history: History, wall_seconds: float) -> dict[str, Any]:
    """The numbers that a run ends with."""
    final, records = history.final, history.records
    return {
        "scheme": plan.scheme,
        "dataset": world.config.data.dataset,
        "seed": world.seed,
        "rounds": final.round,
        "metric": history.metric.name,
        "final_score": finite(history.final_score),  # None where the model has blown up
        "best_score": finite(history.best_score),
        **_by_class(history),
        **({} if history.epsilon is None else {"epsilon": history.epsilon}),
        "virtual_seconds": final.virtual_seconds,
        "joules": final.total_joules,
        **{f"joules_{kind}": spent for kind, spent in final.joules.items()},
        **({} if (grams := history.co2_grams(world.config)) is None else {"co2_grams": grams}),
        "bits": final.bits,
        "empty": final.empty,
        "faults": {kind: sum(one.faults[kind] for one in records) for kind in final.faults},
        "stopped": history.stopped,
        "wall_seconds": wall_seconds,
        "weights_sha256": history.weights_sha256,
        "notes": list(history.notes),
    }


def _by_class(history: History) -> dict[str, Any]:
    """The balanced accuracy, if there are classes, and a sentence if the model names only one."""
    balanced, chance = history.balanced_accuracy, history.chance
    found: dict[str, Any] = {} if balanced is None else {"balanced_accuracy": balanced}
    return found if chance is None else {**found, "chance": chance}


def _start_digest(before: Manifest | None, start: Start | None) -> str:
    """The digest of the model that a run begins or began with; empty: the seed decides."""
    if start is not None:
        return start.sha256
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
