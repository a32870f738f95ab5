"""Follows runs that go on elsewhere: a run, a comparison, a study or a deployment, read only."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camu.errors import CamuError, InputError
from camu.live.watching import Watch
from camu.report import rows
from camu.report.style import PALETTE
from camu.simulation.run_files import MANIFEST, RunDirectory

MOST_RUNS = 500
QUIET_SECONDS = 60.0
_REPORTS = "nodes.json"


@dataclass
class Followed:
    """One run that is followed, with what is known of its speed."""

    name: str
    folder: Path
    watch: Watch
    rounds: int
    scheme: str
    seed: int

    def status(self, last_round: int) -> dict[str, Any]:
        """Its state in a word, and the seconds until it ends at the present speed."""
        directory = RunDirectory(self.folder)
        if directory.summary.exists():
            return {"state": "finished"}
        try:
            now = directory.rounds.stat().st_mtime
            began = (self.folder / MANIFEST).stat().st_mtime
        except OSError:
            return {"state": "waiting"}
        per_round = max(now - began, 0.0) / max(1, last_round)
        quiet = time.time() - now
        if quiet > max(QUIET_SECONDS, 10 * per_round):
            return {"state": "no news", "quiet_seconds": quiet}
        left = max(0, self.rounds - last_round)
        return {"state": "running", "eta_seconds": max(0.0, left * per_round - quiet)}


class Following:
    """All runs below a directory; new ones are found as they begin."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(
                f"{folder}: is no directory; give one that camu run, compare, "
                "reproduce or deploy writes"
            )
        self.folder = folder
        self.runs: dict[str, Followed] = {}

    def find(self) -> dict[str, Followed]:
        """The runs by their name: their path below the directory."""
        for file in sorted(self.folder.rglob("config.toml"))[:MOST_RUNS]:
            name = str(file.parent.relative_to(self.folder))
            if name in self.runs:
                continue
            try:
                config = RunDirectory(file.parent).read_config()
            except CamuError:
                continue  # it is being written, or it is another version's
            watch = Watch(file.parent)
            self.runs[name] = Followed(
                name, file.parent, watch, config.run.rounds, config.scheme.name, config.run.seed
            )
        return self.runs

    def plan(self, name: str) -> dict[str, Any]:
        """The map of a run: devices, units and links as it planned them."""
        if name not in self.runs:
            raise InputError(f"there is no run {name[:80]!r} here")
        directory = RunDirectory(self.runs[name].folder)
        try:
            document = json.loads(directory.plan.read_text("utf-8"))
            return _picture(document, list(directory.read_config().fleet.base_station))
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            raise InputError(f"{directory.plan}: there is no plan yet") from None

    def nodes(self) -> int | None:
        """The number of nodes that reported to a deployment; None where it is none."""
        try:
            return len(json.loads((self.folder / _REPORTS).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def _picture(document: dict[str, Any], station: list[float]) -> dict[str, Any]:
    """A plan in the form in which the page draws its own."""
    place = {device["id"]: index for index, device in enumerate(document["devices"])}
    return {
        "world": {
            "station": station,
            "file": True,
            "devices": [
                {
                    "id": str(device["id"]),
                    "at": None if None in device["position"] else device["position"],
                    "region": device["region"],
                    "samples": device["samples"],
                    "main": rows.main_labels(device["label_counts"]),
                    "cpu_hz": None,
                    "snr_db": None,
                    "battery_joules": None,
                }
                for device in document["devices"]
            ],
            "snr_db": [],
        },
        "units": [
            {
                "members": [place[name] for name in unit["members"]],
                "leader": place[unit["leader"]],
                "updates": unit["local_updates"],
                "multi": unit["multi_update"],
                "weight": unit["weight"],
                "colour": PALETTE[index % len(PALETTE)],
            }
            for index, unit in enumerate(document["units"])
        ],
    }
