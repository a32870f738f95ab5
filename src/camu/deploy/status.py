"""How far a deployed run is, for its owner: status.json, events.jsonl, and metrics of both.

The run's server writes the files. Any other process may read them, at any time.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil
from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.core import GaugeMetricFamily

from camu import __version__
from camu.errors import CamuError, InputError
from camu.files import write_json
from camu.learning.metrics import finite
from camu.simulation.history import History, Record
from camu.simulation.run import Callback, Run

if TYPE_CHECKING:
    from camu.deploy.host.keys import Expiry

log = logging.getLogger(__name__)

Event = Literal[
    "run-started",
    "run-finished",
    "run-stopped",
    "run-failed",
    "node-new",
    "node-lost",
    "node-back",
    "node-refused",
    "quorum-lost",
    "quorum-back",
    "plan-made-again",
    "optimiser-lost",
    "run-harmed",
]
STATUS, EVENTS = "status.json", "events.jsonl"
# What a deployment writes into its directory before its run begins.
OWN_FILES = (STATUS, EVENTS, "nodes.json", "server.log", "logs", "node-state")
ACTIVE = ("starting", "waiting", "running")  # states of a run that has not ended


class Journal:
    """Writes the status and the events of a run; a full disk is logged and does not end the run."""

    def __init__(self, folder: Path, run: int = 0) -> None:
        self.folder = folder
        # A run's number has 64 bits, more than JSON's numbers hold for everybody.
        self.status: dict[str, Any] = {"state": "starting", "run": str(run), "pid": os.getpid()}
        self.status |= {"started": time.time(), "version": __version__}

    def event(self, name: Event, text: str, **facts: Any) -> None:
        """Note that something has happened; `text` says it in a sentence."""
        line = {"time": time.time(), "event": name, "text": text, **facts}
        try:
            with (self.folder / EVENTS).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        except OSError as error:
            log.warning("%s: cannot be written (%s)", self.folder / EVENTS, error.strerror)

    def update(self, **facts: Any) -> None:
        """Change some facts of the status."""
        self.status |= {**facts, "updated": time.time()}
        try:
            write_json(self.folder / STATUS, self.status)
        except CamuError as error:
            log.warning("%s", error)


class RoundStatus(Callback):
    """Brings the status up to date after every round."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.faults: Counter[str] = Counter()
        self.accuracy: float | None = None
        self.score: float | None = None

    def on_start(self, run: Run) -> None:
        """Say that rounds begin."""
        *earlier, last = run.records
        for record in earlier:
            self._count(record)
        self.journal.event("run-started", f"the run continues from round {last.round}")
        self.on_round(run, last)

    def on_round(self, run: Run, record: Record) -> None:
        """Show a round that has ended."""
        self._count(record)
        self.journal.update(
            state="running",
            round=record.round,
            rounds=run.expected_rounds,
            accuracy=self.accuracy,
            metric=record.metric,
            score=self.score,
            virtual_seconds=record.virtual_seconds,
            wall_seconds=record.wall_seconds,
            joules=record.total_joules,
            units=record.units,
            faults=dict(self.faults),
            last_round=record.nodes,
            waiting_for=[],
        )

    def on_end(self, run: Run, history: History) -> None:
        """Say how the run ended; a failure is reported by whoever catches it."""
        if history.stopped != "failed":
            text = f"the run has ended after round {history.final.round}: {history.stopped}"
            self.journal.event("run-finished", text, stopped=history.stopped)
            self.journal.update(state="finished", stopped=history.stopped, waiting_for=[])

    def _count(self, record: Record) -> None:
        self.faults.update(record.faults)
        self.accuracy = self.accuracy if record.accuracy is None else record.accuracy
        self.score = self.score if record.score is None else finite(record.score)


def read_status(folder: Path) -> dict[str, Any]:
    """The status of the deployed run in a directory.

    `state` is `lost` where the server's process is gone without having ended the run.
    """
    try:
        status = json.loads((folder / STATUS).read_text("utf-8"))
        state = str(status["state"])
    except FileNotFoundError:
        raise InputError(f"{folder}: no deployed run is here (there is no {STATUS})") from None
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise CamuError(f"{folder / STATUS}: cannot be read ({error})") from None
    if state in ACTIVE:
        try:
            # A process that began after the run is another one with the same number.
            born = float(psutil.Process(int(status["pid"])).create_time())
            alive = born <= float(status["started"]) + 1
        except (psutil.Error, LookupError, TypeError, ValueError):
            alive = False
        status["state"] = state if alive else "lost"
    return dict(status)


METRICS = {  # by name: what it is, and the label by whose texts it has several values
    "up": ("Whether the server of the run is there.", ""),
    "run_state": ("1 for the run's state.", "state"),
    "status_age_seconds": ("Seconds since the status changed.", ""),
    "devices": ("Devices of the fleet.", ""),
    "devices_known": ("Devices that nodes have reported.", ""),
    "devices_online": ("Devices on nodes that are online.", ""),
    "devices_waited_for": ("Devices that the run waits for.", ""),
    "quorum_devices": ("Devices that are enough to start.", ""),
    "nodes_online": ("Nodes that are online.", ""),
    "node_online": ("Whether a node is online.", "node"),
    "version": ("1 for camu's version at the server.", "version"),
    "node_other_version": ("Whether a node has another version of camu than the server.", "node"),
    "wait_seconds_left": ("Seconds until a run goes on without devices that it waits for.", ""),
    "round": ("Rounds that have ended.", ""),
    "rounds": ("Rounds that the run will have.", ""),
    "accuracy": ("On the test samples, when it was last evaluated.", ""),
    "score": ("The first of training.metrics, when it was last evaluated.", "metric"),
    "joules": ("Joules of all devices.", ""),
    "virtual_seconds": ("Seconds on the virtual clock.", ""),
    "wall_seconds": ("Seconds since the first round began.", ""),
    "faults": ("Faults since the start, by kind.", "kind"),
    "certificate_seconds_left": ("Seconds until a certificate ends.", "file"),
}


class RunMetrics:
    """A collector for prometheus_client: the status of a run, read again for every request."""

    def __init__(self, folder: Path, certificates: Callable[[], Iterable[Expiry]] = tuple) -> None:
        self.folder, self.certificates = folder, certificates

    def collect(self) -> Iterator[Metric]:
        """The metrics of the run; only a few where its status cannot be read."""
        found = self._values()
        for name, (words, label) in METRICS.items():
            labels = ["run", label] if label else ["run"]
            gauge = GaugeMetricFamily(f"camu_{name}", words, labels=labels)
            if (value := found.get(name)) is not None:
                for text, number in (value if label else {"": value}).items():
                    gauge.add_metric([self.folder.name, text][: len(labels)], float(number))
                yield gauge

    def _values(self) -> dict[str, Any]:
        """The values by name: a number, or for a label's texts one each; None: not known."""
        try:
            status = read_status(self.folder)
        except CamuError as error:
            log.warning("%s", error)
            status = {"state": "unknown"}
        nodes = status.get("nodes", [])
        online = [node for node in nodes if node["online"]]
        found = {
            **{name: status.get(name) for name in METRICS},  # those that are in the status
            "devices_known": status.get("known"),
            "quorum_devices": status.get("quorum"),
            "up": status["state"] in ACTIVE,
            "run_state": {status["state"]: 1},
            "node_online": {str(node["name"])[:200]: node["online"] for node in nodes},
            "version": {str(status["version"]): 1} if "version" in status else None,
            "node_other_version": {
                str(node["name"])[:200]: node["name"] in other_versions(status) for node in nodes
            },
            "wait_seconds_left": seconds_left(status),
            "faults": status.get("faults", {}),
            "score": _score(status),
            "certificate_seconds_left": {
                end.path.name: end.day.timestamp() - time.time() for end in self.certificates()
            },
        }
        if "updated" in status:
            found |= {
                "status_age_seconds": time.time() - status["updated"],
                "devices_online": sum(len(node["devices"]) for node in online),
                "devices_waited_for": len(status.get("waiting_for", [])),
                "nodes_online": len(online),
            }
        return found


def seconds_left(status: Mapping[str, Any]) -> float | None:
    """How long a run still waits for devices; None where it waits for none, or without an end."""
    until = status.get("waiting_until") if status.get("waiting_for") else None
    return None if until is None else max(0.0, float(until) - time.time())


def other_versions(status: Mapping[str, Any]) -> list[str]:
    """The nodes with another version of camu than the run's server."""
    own = status.get("version")
    nodes = status.get("nodes", [])
    return [node["name"] for node in nodes if own and node.get("version", own) != own]


def _score(status: Mapping[str, Any]) -> dict[str, float] | None:
    """The score in a status by the name of its metric."""
    score = status.get("score")
    return None if score is None else {str(status["metric"]): score}


def serve_metrics(port: int, metrics: RunMetrics) -> Any:
    """Serve metrics on the loopback address, in threads, until `shutdown()` of what is returned."""
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise InputError(f"--port {port}: cannot be used ({error.strerror})") from None
    return server
