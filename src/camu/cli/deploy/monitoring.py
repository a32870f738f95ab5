"""`camu deploy status`, `list`, `stop`, `watch` and `renew`: looking after a deployment."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from camu.cli.console import plain_console
from camu.cli.deploy.options import AlarmCommand, Authority, Superlink
from camu.cli.guard import print_json
from camu.cli.options import Json
from camu.errors import InputError

RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Run directory.")]
Keys = Annotated[
    Path | None,
    typer.Option("--keys", metavar="DIR", help="Key directory whose certificates are watched."),
]
LOOK_SECONDS = 2.0


def status(folder: RunFolder, as_json: Json = False) -> None:
    """Show how far a deployed run is, which nodes are online and which devices are waited for.

    To be run on the SuperLink's machine. Exits with 1 if the run has failed or its server is gone.
    """
    from camu.deploy.watching import read_status

    found = read_status(folder)
    if as_json:
        print_json(found)
    else:
        for line in _lines(found):
            print(line)
    if found["state"] in ("failed", "lost"):
        raise typer.Exit(1)


def _lines(found: dict[str, Any]) -> list[str]:
    """A status in words."""
    state = found["state"]
    words = {
        "lost": "its server is gone; continue with --resume",
        "failed": f"failed: {found.get('error', '')}",
        "finished": f"finished: {found.get('stopped', '')}",
    }
    lines = [f"run {found.get('run', '?')}: {words.get(state, state)}"]
    if "round" in found:
        accuracy = found.get("accuracy")
        shown = "" if accuracy is None else f", accuracy {accuracy:.2%}"
        lines.append(
            f"round {found['round']} of {found['rounds']}{shown}, {found['joules']:.4g} J, "
            f"{found['virtual_seconds']:.4g} virtual and {found['wall_seconds'] or 0:.4g} real "
            "seconds"
        )
    if "known" in found:
        lines.append(
            f"{found['known']} of {found['devices']} devices are known; the quorum is "
            f"{found['quorum']}"
        )
    if state in ("waiting", "running") and found.get("waiting_for"):
        lines.append(f"waiting for {', '.join(found['waiting_for'])}")
    for node in found.get("nodes", []):
        online = "online" if node["online"] else "away"
        source = ", ".join(node["joules"])
        lines.append(
            f"{online:7} {node['name']} ({len(node['devices'])} devices; joules: {source})"
        )
    faults = {kind: count for kind, count in found.get("faults", {}).items() if count}
    if faults:
        lines.append("faults: " + ", ".join(f"{count} {kind}" for kind, count in faults.items()))
    return lines


def list_all(
    address: Superlink = "127.0.0.1:8000", authority: Authority = None, as_json: Json = False
) -> None:
    """List the runs and the registered nodes of the SuperLink on this machine.

    Also says when the certificates next to the authority's end.
    """
    from camu.deploy.host.certificates import ends_in
    from camu.deploy.host.control import Control

    if authority is None:
        raise InputError("--ca: give the certificate of the authority")
    with Control(address, authority) as control:
        runs, nodes = control.runs(), control.nodes()
    ends = ends_in(authority.parent)
    if as_json:
        print_json(
            {
                "runs": [{**vars(run), "run": str(run.run)} for run in runs],
                "nodes": [{**vars(node), "node": str(node.node)} for node in nodes],
                "certificates": [
                    {"file": str(end.path), "ends": end.day.isoformat(), "days": end.days}
                    for end in ends
                ],
            }
        )
        return
    for run in runs:
        state = f"{run.status} ({run.sub_status})" if run.sub_status else run.status
        print(f"run {run.run}: {state}, started {run.started}")
    for node in nodes:
        print(f"node {node.node}: {node.name}, {node.status}")
    if not runs and not nodes:
        print("no runs and no registered nodes")
    for end in ends:
        print(end)
        if end.soon:
            _warn(f"{end.path} ends soon; renew it with camu deploy renew")


def stop(
    run: Annotated[
        int, typer.Argument(metavar="RUN", help="Number of the run (camu deploy list).")
    ],
    address: Superlink = "127.0.0.1:8000",
    authority: Authority = None,
) -> None:
    """Stop a run on the SuperLink on this machine.

    Complete rounds are in its directory; `camu deploy run --resume` continues it.
    """
    from camu.deploy.host.control import Control

    if authority is None:
        raise InputError("--ca: give the certificate of the authority")
    with Control(address, authority) as control:
        control.stop(run)
    print(f"run {run} is stopped; camu deploy run --resume continues it")


def renew(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory with ca.key, ca.crt and server.crt.")
    ],
) -> None:
    """Renew the server's certificate, for the same key and names.

    A SuperLink that reads it uses it within 10 s, without a restart; nodes need nothing new. On
    another machine than the SuperLink's, copy server.crt there.
    """
    from camu.deploy.host.certificates import end_of, renew_server
    from camu.deploy.host.keys import KeyDirectory

    print(renew_server(folder))
    authority = end_of(KeyDirectory(folder).authority)
    print(authority)
    if authority.soon:
        _warn(f"{authority.path} ends soon: make new keys with camu deploy keys for all machines")


def watch(
    folder: RunFolder,
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, help="Loopback port of /metrics; 0: no page."),
    ] = 9466,
    alarm: AlarmCommand = None,
    keys: Keys = None,
) -> None:
    """Watch a deployed run: a page /metrics for Prometheus on the loopback address, and alarms.

    It only reads the run directory, and may be started and ended at any time.
    """
    from camu.deploy.host.certificates import End, ends_in
    from camu.deploy.watching import Alarm, Watcher, metrics, serve_metrics

    def ends() -> list[End]:
        return [] if keys is None else ends_in(keys)

    ends()  # wrong files are refused now
    watcher = Watcher(folder, None if alarm is None else Alarm(alarm), ends)
    server = serve_metrics(port, lambda: metrics(folder, ends())) if port else None
    if server is not None:
        print(f"http://127.0.0.1:{server.server_address[1]}/metrics", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            watcher.update()
            time.sleep(LOOK_SECONDS)


def _warn(text: str) -> None:
    console = plain_console(stderr=True)
    console.print(text, style="yellow", markup=False, soft_wrap=True)
