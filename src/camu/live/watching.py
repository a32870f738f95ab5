"""Reads a run directory again and again: the new rounds, the devices, and where the run stands."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from camu.live.train import LEDGER
from camu.simulation.directory import RunDirectory

DEVICES = (
    "compute",
    "transmit",
    "receive",
)  # what the devices spend; the base station does not count
LARGEST_READ = 4 * 2**20  # bytes of rounds per look


@dataclass
class Watch:
    """One run directory as seen so far; nothing in it is changed or locked."""

    folder: Path
    place: int = 0
    inode: int = 0
    stamps: dict[str, int] = field(default_factory=dict)

    def look(self) -> dict[str, Any]:
        """What is new since the last look: points, the devices' ledger, the digest of the weights.

        `again` says that the file began anew, as it does when a run continues from a checkpoint.
        """
        points, again = self._points()
        news: dict[str, Any] = {"again": again} if again else {}
        if points:
            news["points"] = points
        ledger = self._changed(self.folder / LEDGER)
        if ledger is not None:
            news["devices"] = ledger
        summary = self._changed(RunDirectory(self.folder).summary)
        if summary is not None:
            news["weights_sha256"] = summary.get("weights_sha256")
        return news

    def _points(self) -> tuple[list[dict[str, Any]], bool]:
        path = RunDirectory(self.folder).rounds
        again = False
        try:
            info = path.stat()
            if (info.st_ino, info.st_size) == (self.inode, self.place):
                return [], False  # all is read
            if self.inode not in (0, info.st_ino) or info.st_size < self.place:
                self.place, again = 0, True
            self.inode = info.st_ino
            with path.open("rb") as stream:
                stream.seek(self.place)
                data = stream.read(LARGEST_READ)
        except OSError:
            return [], False
        whole = data[: data.rfind(b"\n") + 1]  # a line that is being written is read next time
        self.place += len(whole)
        return [point for line in whole.splitlines() if (point := _point(line))], again

    def _changed(self, path: Path) -> dict[str, Any] | None:
        """The content of a file, if it was written since the last look."""
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            return None
        if stamp == self.stamps.get(path.name):
            return None
        self.stamps[path.name] = stamp
        return _json(path)


def _point(line: bytes) -> dict[str, Any] | None:
    """The numbers of a round that a page draws."""
    try:
        record = json.loads(line)
        return {
            "round": record["round"],
            "accuracy": record["accuracy"],
            "seconds": record["virtual_seconds"],
            "joules": sum(joules for kind, joules in record["joules"].items() if kind in DEVICES),
            "units": record.get("units", 0),
            "faults": {name: count for name, count in record.get("faults", {}).items() if count},
            "empty": record.get("empty", 0),
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
