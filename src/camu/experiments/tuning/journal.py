"""The trials of a search on disk: a journal of Optuna in which every line is sealed.

Each line has a digest of itself and of all lines before it, so that damage is noticed. A last line
that a kill cut short is removed. Other tools for Optuna's journals can read the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend

from camu.experiments.tuning.sampler import direction, frozen, quiet
from camu.experiments.tuning.trial import Trial
from camu.learning.metrics import Metric
from camu.schemes.tunable import Range
from camu.sealed import SEAL, DamagedError

_REMEDY = "remove it: the same trials come out again, and finished runs are used again"
_ASKED = "asked"  # what the search is of, in the study's attributes


class SealedLog(BaseJournalBackend):
    """The lines of a journal, each with its digest."""

    def __init__(self, path: Path) -> None:
        self.path, self.logs, self.seal = path, list[dict[str, Any]](), ""
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            self.logs.append(self._open(number, line))
        if len(whole) < len(data):  # a kill cut the last line short
            os.truncate(path, len(whole))

    def _open(self, number: int, line: bytes) -> dict[str, Any]:
        """The content of a line; its digest must be that of the lines so far."""
        try:
            log = json.loads(line)
            seal = log.pop(SEAL)
        except (ValueError, KeyError, AttributeError, TypeError):
            seal = log = None
        if log is None or seal != self._next(log):
            raise DamagedError(f"{self.path}, line {number}: is damaged or was changed; {_REMEDY}")
        self.seal = seal
        return dict(log)

    def _next(self, log: Mapping[str, Any]) -> str:
        return hashlib.sha256((self.seal + _text(log)).encode()).hexdigest()

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """The lines from this number on."""
        return self.logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add lines, on the disk before this returns."""
        lines = []
        for log in logs:
            self.seal = self._next(log)
            lines.append(_text({**log, SEAL: self.seal}) + "\n")
            self.logs.append(json.loads(_text(log)))
        with self.path.open("ab") as stream:
            stream.write("".join(lines).encode())
            stream.flush()
            os.fsync(stream.fileno())


def _text(log: Mapping[str, Any]) -> str:
    return json.dumps(log, separators=(",", ":"))


class Journal:
    """The trials of one search: read, and added to."""

    def __init__(
        self, path: Path, asked: Mapping[str, Any], metric: Metric, objectives: int
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = SealedLog(path)
        with quiet():
            self._study = optuna.create_study(
                storage=JournalStorage(log),
                study_name=str(asked["scheme"]),
                directions=[direction(metric)] * objectives,
                load_if_exists=True,
            )
            if _ASKED not in self._study.user_attrs:
                self._study.set_user_attr(_ASKED, dict(asked))

    def read(self) -> list[Trial]:
        """The trials so far, in their order."""
        return [Trial.from_dict(one.user_attrs) for one in self._study.get_trials(deepcopy=False)]

    def add(self, trial: Trial, space: Mapping[str, Range], metric: Metric) -> None:
        """Keep a trial that is done."""
        with quiet():
            self._study.add_trial(frozen(trial, space, metric))


def read_asked_of(path: Path) -> dict[str, Any]:
    """What an earlier search was of; empty if its file does not say."""
    for log in SealedLog(path).logs:
        asked = log.get("user_attr", {}).get(_ASKED)
        if asked is not None:
            return dict(asked)
    return {}
