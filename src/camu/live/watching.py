"""Reads run directories again and again, and changes nothing: their rounds, devices and state."""

from __future__ import annotations

import json
import os
import threading
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from camu.errors import InputError
from camu.files import Tail, open_regular
from camu.learning.metrics import find_metric, finite
from camu.report import rows
from camu.report.style import PALETTE, score_marks
from camu.simulation.directory import RunDirectory
from camu.simulation.history import Record
from camu.simulation.manifest import MANIFEST

LEDGER = "devices.json"
_RECORD = [field.name for field in fields(Record)]
MOST_RUNS = 500
QUIET_SECONDS = 60.0
_CONFIG, _REPORTS = "config.toml", "nodes.json"
_LARGEST_FILE = 64 * 2**20
_LOOK_SECONDS = 0.5
_SEARCH_SHARE = 0.05  # of the time: a large study is not disturbed by a search


class Watch:
    """One run directory as seen so far."""

    def __init__(self, folder: Path) -> None:
        self.directory = RunDirectory(folder)
        self.rounds = Tail(self.directory.rounds)
        self.stamps: dict[str, int] = {}

    def look(self) -> dict[str, Any]:
        """What is new since the last look: points, the devices' ledger, the digest of the weights.

        `again` says that the file began anew, as it does when a run continues from a checkpoint.
        """
        points = [point for line in self.rounds.lines() if (point := _point(line))]
        news: dict[str, Any] = {"again": True} if self.rounds.again else {}
        if points:
            news["points"] = points
            metric = find_metric(points[-1]["metric"])
            marks = score_marks(metric)
            news["score"] = {"name": metric.title, "share": metric.share, "marks": marks}
        if (ledger := self._changed(self.directory.path / LEDGER)) is not None:
            news["devices"] = ledger
        if (summary := self._changed(self.directory.summary)) is not None:
            news["weights_sha256"] = summary.get("weights_sha256")
        return news

    def _changed(self, path: Path) -> dict[str, Any] | None:
        """The content of a file, if it was written since the last look."""
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            return None
        if stamp == self.stamps.get(path.name):
            return None
        self.stamps[path.name] = stamp
        document = _read_json(path)
        return document if isinstance(document, dict) else None


def _point(line: str) -> dict[str, Any] | None:
    """The numbers of a round that a page draws; None where a line is no round.

    Another version of camu may have written more than a record holds.
    """
    try:
        data = json.loads(line)
        record = Record.from_dict({name: data[name] for name in _RECORD if name in data})
        bits, faults, score = record.total_bits, record.faults.items(), record.score
        point = {
            "round": int(record.round),
            "metric": record.metric,
            "score": finite(score),
            "blown": score is not None and finite(score) is None,
            "seconds": record.virtual_seconds,
            "joules": record.total_joules,
            "megabytes": None if bits is None else bits / 8e6,
            "units": record.units,
            "faults": {name: count for name, count in faults if count},
            "empty": record.empty,
        }
        json.dumps(point, allow_nan=False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    except InputError:  # judged by a metric of another version
        return None
    return point


def _read_json(path: Path) -> Any:
    """The content of a JSON file without NaN; None where there is none."""
    try:
        document = json.loads(_read_text(path), parse_constant=lambda _: None)
        json.dumps(document, allow_nan=False)  # 1e999 is read as infinity
    except (OSError, ValueError, RecursionError):
        return None
    return document


def _read_text(path: Path) -> str:
    with open_regular(path, _LARGEST_FILE) as stream:
        return stream.read().decode("utf-8")


@dataclass(frozen=True)
class Followed:
    """One run that goes on elsewhere."""

    name: str
    folder: Path
    rounds: int
    scheme: str
    seed: int
    stations: list[list[float]]

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
        reports = _read_json(self.folder / _REPORTS)
        return len(reports) if isinstance(reports, list | dict) else None


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
        for place in sorted(found, key=lambda place: _written(place / _CONFIG), reverse=True):
            top = place == self.folder
            name = place.resolve().name if top else str(place.relative_to(self.folder))
            if len(self.runs) < MOST_RUNS and name not in self.runs:
                run = _followed(name, place)
                if run is not None:
                    self.runs[name] = run

    def plan(self, name: str) -> dict[str, Any]:
        """The map of a run: devices, units and links as it planned them."""
        if name not in self.runs:
            raise InputError(f"there is no run {name[:80]!r} here")
        run = self.runs[name]
        path = RunDirectory(run.folder).plan
        try:
            return _picture(_read_json(path), run.stations)
        except (KeyError, TypeError, IndexError, AttributeError):
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
    """The points with a score and the last one, each with the faults since the one before."""
    kept, faults = [], Counter[str]()
    for point in points:
        faults.update(point["faults"])
        if point["score"] is not None or point["blown"] or point is points[-1]:
            kept.append({**point, "faults": dict(faults)})
            faults.clear()
    return kept


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _followed(name: str, folder: Path) -> Followed | None:
    """A run, by the few keys that the page needs; one of another version has them too."""
    try:
        config = tomllib.loads(_read_text(folder / _CONFIG))
        run, fleet = config["run"], config["fleet"]
        station = [float(place) for place in fleet["base_station"]]
        return Followed(
            name,
            folder,
            int(run["rounds"]),
            str(config["scheme"]["name"]),
            int(run["seed"]),
            [] if "base_station_file" in fleet else [station],  # the file may be elsewhere
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None  # it is being written, or it is no run


def _picture(document: dict[str, Any], stations: list[list[float]]) -> dict[str, Any]:
    """A plan in the form in which the page draws its own."""
    place = {device["id"]: index for index, device in enumerate(document["devices"])}
    unknown: dict[str, Any] = {"cpu_hz": None, "snr_db": None, "battery_joules": None, "station": 0}
    devices = [
        {
            **unknown,
            "id": str(device["id"]),
            "at": None if None in device["position"] else device["position"],
            "region": device["region"],
            "samples": device["samples"],
            "main": rows.main_labels(device["label_counts"]),
        }
        for device in document["devices"]
    ]
    units = [
        {
            "members": [place[name] for name in unit["members"]],
            "leader": place[unit["leader"]],
            "updates": unit["local_updates"],
            "weight": unit["weight"],
            "colour": PALETTE[index % len(PALETTE)],
        }
        for index, unit in enumerate(document["units"])
    ]
    world = {"stations": stations, "station_moves": False, "file": True, "snr_db": []}
    return {"world": {**world, "devices": devices}, "units": units}
