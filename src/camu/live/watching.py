"""Reads a run directory again and again: the new rounds, the devices, and where the run stands."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from camu.live.train import LEDGER
from camu.simulation.directory import RunDirectory

LARGEST_READ = 4 * 2**20  # bytes of rounds per look


@dataclass
class Watch:
    """One run directory as seen so far; nothing in it is changed or locked."""

    folder: Path
    place: int = 0
    inode: int = 0
    ledger_time: float = 0.0
    sent: dict[str, Any] = field(default_factory=dict)

    def look(self) -> dict[str, Any]:
        """What is new since the last look: points, the devices' ledger, the summary.

        `again` says that the file began anew, as it does when a run continues from a checkpoint.
        """
        points, again = self._points()
        news: dict[str, Any] = {"again": again} if again else {}
        if points:
            news["points"] = points
        ledger = self._ledger()
        if ledger is not None:
            news["devices"] = ledger
        summary = _json(RunDirectory(self.folder).summary)
        if summary is not None and self.sent.get("summary") != summary:
            self.sent["summary"] = summary
            news["summary"] = summary
        return news

    def _points(self) -> tuple[list[dict[str, Any]], bool]:
        path = RunDirectory(self.folder).rounds
        again = False
        try:
            with path.open("rb") as stream:
                info = os.fstat(stream.fileno())
                if self.inode not in (0, info.st_ino) or info.st_size < self.place:
                    self.place, again = 0, True
                self.inode = info.st_ino
                stream.seek(self.place)
                data = stream.read(LARGEST_READ)
        except OSError:
            return [], False
        whole = data[: data.rfind(b"\n") + 1]  # a line that is being written is read next time
        self.place += len(whole)
        return [point for line in whole.splitlines() if (point := _point(line))], again

    def _ledger(self) -> dict[str, Any] | None:
        path = self.folder / LEDGER
        try:
            changed = path.stat().st_mtime
        except OSError:
            return None
        if changed == self.ledger_time:
            return None
        self.ledger_time = changed
        return _json(path)


def _point(line: bytes) -> dict[str, Any] | None:
    """The numbers of a round that a page draws."""
    try:
        record = json.loads(line)
        return {
            "round": record["round"],
            "accuracy": record["accuracy"],
            "seconds": record["virtual_seconds"],
            "joules": record["joules"]["compute"] + record["joules"]["transmit"],
            "units": record.get("units", 0),
            "faults": {name: count for name, count in record.get("faults", {}).items() if count},
        }
    except (ValueError, KeyError, TypeError):
        return None


def _json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
