"""A run as seen from outside: its status, alarms, and a page of metrics for Prometheus.

Everything is read from the run directory, by another process than the run's server. So it can be
started and ended at any time, and it notices when the server is gone.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from camu.deploy.events import EVENTS, STATUS
from camu.deploy.host.certificates import End
from camu.deploy.tail import Tail
from camu.errors import CamuError, InputError

log = logging.getLogger(__name__)

ALARM_SECONDS = 60.0  # an alarm command that runs longer is ended
MOST_ALARMS = 8  # at the same time
DAY_SECONDS = 86_400.0
_GOES_ON = ("starting", "waiting", "running")


def read_status(folder: Path) -> dict[str, Any]:
    """The status of the deployed run in a directory.

    `state` is `lost` where the server's process is gone without having ended the run.
    """
    try:
        status = json.loads((folder / STATUS).read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: no deployed run is here (there is no {STATUS})") from None
    except (OSError, ValueError) as error:
        raise CamuError(f"{folder / STATUS}: cannot be read ({error})") from None
    if not isinstance(status, dict):
        raise CamuError(f"{folder / STATUS}: cannot be read (it is not a table)")
    if status.get("state") in _GOES_ON and not _alive(status):
        status["state"] = "lost"
    return status


def _alive(status: Mapping[str, Any]) -> bool:
    try:
        # A process that began after the run is another one with the same number.
        born = float(psutil.Process(int(status["pid"])).create_time())
        return born <= float(status["started"]) + 1
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


class Alarm:
    """Runs a command for every event, without a shell and without waiting for it.

    The command's words are fixed. What happened is in its environment: CAMU_EVENT, CAMU_TEXT,
    CAMU_RUN, CAMU_NODE and CAMU_TIME.
    """

    def __init__(self, command: str, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"--alarm {command}: cannot be read ({error})") from None
        if not self.words:
            raise InputError("--alarm: give a command")
        self.clock = clock
        self._running: list[tuple[subprocess.Popen[bytes], float]] = []

    def raise_for(self, folder: Path, event: Mapping[str, Any]) -> None:
        """Start the command for an event."""
        self.look()
        if len(self._running) >= MOST_ALARMS:
            log.warning("no alarm for %s: %d are still running", event.get("event"), MOST_ALARMS)
            return
        facts = {"CAMU_RUN": str(folder)}
        for name, key in (("EVENT", "event"), ("TEXT", "text"), ("NODE", "node"), ("TIME", "time")):
            facts[f"CAMU_{name}"] = str(event.get(key, "")).replace("\0", "")[:4000]
        try:
            process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **facts},
                start_new_session=True,
            )
        except OSError as error:
            log.error("--alarm %s: cannot be started (%s)", self.words[0], error.strerror)
            return
        self._running.append((process, self.clock()))

    def look(self) -> None:
        """Collect commands that have ended, and end those that take too long."""
        left = []
        for process, began in self._running:
            code = process.poll()
            if code is None and self.clock() - began > ALARM_SECONDS:
                log.error("--alarm %s: ended after %g s", self.words[0], ALARM_SECONDS)
                process.kill()
                process.wait()
            elif code is None:
                left.append((process, began))
            elif code:
                log.error("--alarm %s: ended with code %d", self.words[0], code)
        self._running = left


class Watcher:
    """Raises alarms for the events of a run, for a server that is gone, and for certificates."""

    def __init__(
        self,
        folder: Path,
        alarm: Alarm | None,
        certificates: Callable[[], Iterable[End]] = tuple,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder, self.alarm, self.certificates, self.clock = folder, alarm, certificates, clock
        self.events = Tail(folder / EVENTS, skip_present=True)
        self._lost = False
        self._warned = -DAY_SECONDS

    def update(self) -> None:
        """Look once."""
        for line in self.events.lines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self._raise(event)
        self._look_for_server()
        if self.clock() - self._warned >= DAY_SECONDS:
            self._warned = self.clock()
            for end in self.certificates():
                if end.soon:
                    self._event("certificate-ends-soon", f"{end}; renew it with camu deploy renew")
        if self.alarm is not None:
            self.alarm.look()

    def _look_for_server(self) -> None:
        try:
            lost = read_status(self.folder)["state"] == "lost"
        except CamuError:
            return
        if lost and not self._lost:
            self._event("run-failed", "the server of the run is gone; continue with --resume")
        self._lost = lost

    def _event(self, name: str, text: str) -> None:
        self._raise({"event": name, "text": text, "time": self.clock()})

    def _raise(self, event: Mapping[str, Any]) -> None:
        if self.alarm is not None:
            self.alarm.raise_for(self.folder, event)


def metrics(folder: Path, certificates: Sequence[End] = (), now: float | None = None) -> str:
    """The status of a run in the text format of Prometheus."""
    status = read_status(folder)
    now = time.time() if now is None else now
    nodes = status.get("nodes", [])
    online = [node for node in nodes if node["online"]]
    page = _Page(folder.name)
    page.add("up", "Whether the server of the run is there.", status["state"] in _GOES_ON)
    page.add("run_state", "1 for the state of the run.", 1, state=status["state"])
    page.add("status_age_seconds", "Since the status changed.", now - status["updated"])
    held = sum(len(node["devices"]) for node in online)
    page.add("devices_online", "Devices on nodes that are online.", held)
    waited = len(status.get("waiting_for", []))
    page.add("devices_waited_for", "Devices that the run waits for.", waited)
    page.add("nodes_online", "Nodes that are online.", len(online))
    for key, (name, words) in _PLAIN.items():
        page.add(name, words, status.get(key))
    for node in nodes:
        name = str(node["name"])[:200]
        page.add("node_online", "Whether a node is online.", node["online"], node=name)
    for kind, count in status.get("faults", {}).items():
        page.add("faults", "Faults since the start, by kind.", count, kind=kind)
    for end in certificates:
        left = end.day.timestamp() - now
        page.add("certificate_seconds_left", "Until it ends.", left, file=end.path.name)
    return page.text()


_PLAIN = {  # by key of the status
    "devices": ("devices", "Devices of the fleet."),
    "known": ("devices_known", "Devices that nodes have reported."),
    "quorum": ("quorum_devices", "Devices that are enough to start."),
    "round": ("round", "Rounds that have ended."),
    "rounds": ("rounds", "Rounds that the run will have."),
    "accuracy": ("accuracy", "On the test samples, when it was last evaluated."),
    "joules": ("joules", "Joules of all devices."),
    "virtual_seconds": ("virtual_seconds", "Seconds on the virtual clock."),
    "wall_seconds": ("wall_seconds", "Seconds since the first round began."),
}


class _Page:
    """Lines of metrics; every name is explained once."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.lines: list[str] = []
        self._explained: set[str] = set()

    def add(self, name: str, words: str, value: float | None, **labels: str) -> None:
        """Add a value; None is left out."""
        if value is None:
            return
        name = f"camu_{name}"
        if name not in self._explained:
            self._explained.add(name)
            self.lines += [f"# HELP {name} {words}", f"# TYPE {name} gauge"]
        marks = ",".join(
            f'{key}="{_escaped(text)}"' for key, text in {"run": self.run, **labels}.items()
        )
        self.lines.append(f"{name}{{{marks}}} {float(value):.17g}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def serve_metrics(port: int, page: Callable[[], str]) -> ThreadingHTTPServer:
    """A page /metrics on the loopback address, served by threads until `shutdown()`."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds for a request

        def do_GET(self) -> None:
            try:
                found, status = (page(), 200) if self.path == "/metrics" else ("no page\n", 404)
            except CamuError as error:
                found, status = f"{error}\n", 503
            content = found.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing for each request."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise InputError(f"--port {port}: cannot be used ({error.strerror})") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
