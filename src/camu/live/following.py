"""Follows runs that go on elsewhere: a run, a comparison, a study or a deployment, read only."""

from __future__ import annotations

import json
import os
import threading
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camu.errors import InputError
from camu.live.watching import Watch
from camu.report import rows
from camu.report.style import PALETTE
from camu.simulation.run_files import MANIFEST, RunDirectory

MOST_RUNS = 500
QUIET_SECONDS = 60.0
_CONFIG, _REPORTS = "config.toml", "nodes.json"
_LOOK_SECONDS = 0.5
_SEARCH_SHARE = 0.05  # of the time: a large study is not disturbed by a search


@dataclass(frozen=True)
class Followed:
    """One run that is followed."""

    name: str
    folder: Path
    rounds: int
    scheme: str
    seed: int
    station: list[float]

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
            return {"state": "no news", "quiet_seconds": 60 * round(quiet / 60)}
        left = max(0, self.rounds - last_round)
        return {"state": "running", "eta_seconds": round(max(0.0, left * per_round - quiet))}

    def nodes(self) -> int | None:
        """The number of nodes that reported to a deployment; None where it is none."""
        try:
            return len(json.loads((self.folder / _REPORTS).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None


class Following:
    """All runs below a directory, at most 500; new ones are found as they begin."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(
                f"{folder}: is no directory; give one that camu run, compare, "
                "reproduce or deploy writes"
            )
        self.folder = folder
        self.runs: dict[str, Followed] = {}
        self.total = 0
        self._lock = threading.Lock()
        self._next_search = 0.0

    def find(self) -> dict[str, Followed]:
        """The runs by name: their path below the directory, or its name. The latest are first."""
        with self._lock:
            began = time.monotonic()
            if began >= self._next_search:
                self._search()
                ended = time.monotonic()
                self._next_search = ended + (ended - began) / _SEARCH_SHARE
            return dict(self.runs)

    def _search(self) -> None:
        found = [Path(place) for place, _, files in os.walk(self.folder) if _CONFIG in files]
        self.total = len(found)
        here = self.folder.resolve().name
        new = {
            here if place == self.folder else str(place.relative_to(self.folder)): place
            for place in found
        }
        new = {name: place for name, place in new.items() if name not in self.runs}
        for name in sorted(new, key=lambda name: _written(new[name] / _CONFIG), reverse=True):
            if len(self.runs) >= MOST_RUNS:
                return
            run = _read(name, new[name])
            if run is not None:
                self.runs[name] = run

    def plan(self, name: str) -> dict[str, Any]:
        """The map of a run: devices, units and links as it planned them."""
        if name not in self.runs:
            raise InputError(f"there is no run {name[:80]!r} here")
        run = self.runs[name]
        path = RunDirectory(run.folder).plan
        try:
            return _picture(json.loads(path.read_text("utf-8")), run.station)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise InputError(f"{path}: there is no plan yet") from None


class Feed:
    """What one page has seen of the runs that are followed."""

    def __init__(self, following: Following) -> None:
        self.following = following
        self.watches: dict[str, Watch] = {}
        self.last: dict[str, int] = {}
        self.sent: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """The runs with something new; empty if there is nothing."""
        news: dict[str, Any] = {}
        began = time.monotonic()
        for name, run in self.following.find().items():
            if time.monotonic() - began > _LOOK_SECONDS:
                break  # the rest comes with the next look
            new = self.watches.setdefault(name, Watch(run.folder)).look()
            if "points" in new:
                self.last[name] = new["points"][-1]["round"]
                new["points"] = thinned(new["points"])
            status = run.status(self.last.get(name, 0))
            if new or self.sent.get(name) != status:
                about = {"scheme": run.scheme, "seed": run.seed, "rounds": run.rounds}
                news[name] = {**new, **status, "about": about, "nodes": run.nodes()}
                self.sent[name] = status
        total = self.following.total
        if not news and self.sent.get("") == total:
            return {}
        self.sent[""] = total
        return {"runs": news, "total": total}


def thinned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points with an accuracy and the last one, each with the faults since the one before."""
    kept, faults = [], Counter[str]()
    for point in points:
        faults.update(point["faults"])
        if point["accuracy"] is not None or point is points[-1]:
            kept.append({**point, "faults": dict(faults)})
            faults.clear()
    return kept


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(name: str, folder: Path) -> Followed | None:
    """A run, by the few keys that the page needs; one of another version has them too."""
    try:
        config = tomllib.loads((folder / _CONFIG).read_text("utf-8"))
        run = config["run"]
        station = [float(place) for place in config["fleet"]["base_station"]]
        return Followed(
            name,
            folder,
            int(run["rounds"]),
            str(config["scheme"]["name"]),
            int(run["seed"]),
            station,
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # it is being written, or it is no run


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
