"""The files of a run: where they are, and what they hold after damage has been ruled out."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camu.config import Config, load_config
from camu.errors import CamuError, InputError
from camu.files import read_text
from camu.planning.plan import Plan
from camu.sealed import DamagedError, check_files, read_sealed_json
from camu.simulation.checkpoint import previous_checkpoint
from camu.simulation.history import History, Record
from camu.simulation.ledger import DeviceEnergy

MANIFEST = "manifest.json"


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
        return Plan.from_dict(self.read_plan_document(), str(self.plan))

    def read_plan_document(self) -> dict[str, Any]:
        """The plan that the run began with, as plain data."""
        return read_sealed_json(self.plan, "the plan of a run", self._remedy)

    def read_records(self, last_round: int | None = None) -> list[Record]:
        """The rounds as written, up to one; a last line that a crash cut short is left out."""
        lines = read_text(self.rounds, "the rounds of a run").splitlines()
        return [record for _, record in self._parsed(lines, last_round)]

    def _parsed(self, lines: Sequence[str], last_round: int | None) -> Iterator[tuple[str, Record]]:
        """Each line with its record."""
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
                    f"round {record.round}; {self._remedy}"
                )
            if last_round is not None and record.round > last_round:
                return
            yield line, record

    def records_of(self, last_round: int, sha256: str) -> list[Record]:
        """The rounds up to a checkpoint, which has the digest of their lines."""
        lines = read_text(self.rounds, "the rounds of a run").splitlines()
        found = list(self._parsed(lines, last_round))
        if len(found) != last_round + 1:
            raise DamagedError(f"{self.rounds}: ends before its checkpoint; {self._remedy}")
        text = "".join(f"{line}\n" for line, _ in found)
        if hashlib.sha256(text.encode()).hexdigest() != sha256:
            raise DamagedError(
                f"{self.rounds}: is damaged or was changed (its lines up to round {last_round} do "
                f"not match the digest in the checkpoint); {self._remedy}"
            )
        return [record for _, record in found]

    @property
    def _remedy(self) -> str:
        return f"restore it, or delete {self.path} and run it again"

    def read_summary(self) -> dict[str, Any]:
        """The summary of the finished run, after the files that it lists have been checked."""
        document = read_sealed_json(self.summary, "the summary of a run", self._remedy)
        check_files(self.path, document.pop("files", {}), self._remedy)
        return document

    def read_history(self) -> History:
        """The history of the finished run."""
        summary = self.read_summary()
        records = tuple(self.read_records())
        notes = tuple(summary["notes"])
        digest, stopped = summary["weights_sha256"], summary["stopped"]
        return History(records, digest, stopped, notes, self.read_devices())

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

    def discard(self) -> None:
        """Remove the files that a run writes before its first checkpoint."""
        for path in (self.config, self.plan, self.rounds, self.path / MANIFEST):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.tensorboard, ignore_errors=True)
