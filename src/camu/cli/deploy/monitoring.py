"""`camu deploy status`, `list`, `stop`, `watch` and `renew`: looking after a deployment."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from camu.cli.console import counted, warn
from camu.cli.deploy.run import OwnAuthority, Superlink, shown_score
from camu.cli.guard import print_json
from camu.cli.options import Json

RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Run directory.")]
Keys = Annotated[
    Path | None,
    typer.Option("--keys", metavar="DIR", help="Key directory whose certificates are watched."),
]


def status(folder: RunFolder, as_json: Json = False) -> None:
    """Show how far a deployed run is, which nodes are online and which devices are waited for.

    To be run on the SuperLink's machine. Exits with 1 if the run has failed or its server is gone.
    """
    from camu.deploy.status import read_status

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
    from camu.deploy.messages import name_some
    from camu.deploy.status import other_versions, seconds_left

    state = found["state"]
    words = {
        "lost": "its server is gone; continue with --resume",
        "failed": f"failed: {found.get('error', '')}",
        "stopped": "stopped; camu deploy run --resume continues it",
        "finished": f"finished: {found.get('stopped', '')}",
    }
    lines = [f"run {found.get('run', '?')}: {words.get(state, state)}"]
    lines += [f"camu {found['version']}"] if "version" in found else []
    if "round" in found:
        score = shown_score(found)
        shown = f", {score}" if score else ""
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
        left = seconds_left(found)
        most = "" if left is None else f", for {left:.0f} s more at most"
        lines.append(f"waiting for {', '.join(found['waiting_for'])}{most}")
    for node in found.get("nodes", []):
        online = "online" if node["online"] else "away"
        facts = [counted(len(node["devices"]), "device"), f"joules: {', '.join(node['joules'])}"]
        facts += [f"kernel: {node['kernel']}"] if node.get("kernel") else []
        facts += [f"camu {node['version']}"] if node.get("version") else []
        lines.append(f"{online:7} {node['name']} ({'; '.join(facts)})")
    if others := other_versions(found):
        lines.append(f"another version of camu than the server's: {name_some(others)}")
    faults = {kind: count for kind, count in found.get("faults", {}).items() if count}
    if faults:
        lines.append("faults: " + ", ".join(f"{count} {kind}" for kind, count in faults.items()))
    return lines


def list_all(
    authority: OwnAuthority, address: Superlink = "127.0.0.1:8000", as_json: Json = False
) -> None:
    """List the runs and the registered nodes of the SuperLink on this machine.

    Also says when the certificates next to the authority's end.
    """
    from camu.deploy.host.control import Control
    from camu.deploy.host.keys import expiries
    from camu.deploy.messages import name_some

    with Control(address, authority) as control:
        runs, nodes = control.runs(), control.nodes()
        version = str(control.versions()["superlink"])
    ends = expiries(authority.parent)
    if as_json:
        print_json(
            {
                "version": version,
                "runs": [{**run._asdict(), "run": str(run.run)} for run in runs],
                "nodes": [{**node._asdict(), "node": str(node.node)} for node in nodes],
                "certificates": [
                    {"file": str(end.path), "ends": end.day.isoformat(), "days": end.days}
                    for end in ends
                ],
            }
        )
        return
    print(f"SuperLink: camu {version}")
    for run in runs:
        state = f"{run.status} ({run.sub_status})" if run.sub_status else run.status
        print(f"run {run.run}: {state}, started {run.started}")
    for node in nodes:
        camu = f", camu {node.version}" if node.version else ""
        print(f"node {node.node}: {node.name}, {node.status}{camu}")
    if not runs and not nodes:
        print("no runs and no registered nodes")
    if others := [str(node.node) for node in nodes if node.version not in ("", version)]:
        warn(f"the SuperLink has camu {version}, and another version have: {name_some(others)}")
    for end in ends:
        print(end)
        if end.soon:
            warn(f"{end.path} ends soon; renew it with camu deploy renew")


def stop(
    run: Annotated[
        int, typer.Argument(metavar="RUN", help="Number of the run (camu deploy list).")
    ],
    authority: OwnAuthority,
    address: Superlink = "127.0.0.1:8000",
) -> None:
    """Stop a run on the SuperLink on this machine.

    Its server ends within half a minute. Complete rounds and the model are in the run's directory;
    `camu deploy run --resume` continues it.
    """
    from camu.deploy.host.control import Control

    with Control(address, authority) as control:
        control.stop(run)
    print(f"run {run} is stopped; camu deploy run --resume continues it")


def renew(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory with ca.key, ca.crt and server.crt.")
    ],
) -> None:
    """Renew the server's certificate, for the same key and names.

    A running SuperLink loads it at SIGHUP (systemctl reload camu-superlink); nodes need nothing
    new. On another machine than the SuperLink's, copy server.crt there first.
    """
    from camu.deploy.host.keys import KeyDirectory, expiry, renew_server

    print(renew_server(folder))
    authority = expiry(KeyDirectory(folder).authority)
    print(authority)
    if authority.soon:
        warn(f"{authority.path} ends soon: make new keys with camu deploy keys for all machines")


def watch(
    folder: RunFolder,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Loopback port of /metrics; 0: any.")
    ] = 9466,
    keys: Keys = None,
) -> None:
    """Serve the metrics of a deployed run for Prometheus, on the loopback address.

    It only reads the run directory, and may be started and ended at any time.
    """
    from camu.deploy.host.keys import Expiry, expiries
    from camu.deploy.status import RunMetrics, serve_metrics

    def ends() -> list[Expiry]:
        return [] if keys is None else expiries(keys)

    ends()  # wrong files are refused now
    server = serve_metrics(port, RunMetrics(folder, ends))
    print(f"http://127.0.0.1:{server.server_address[1]}/metrics", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
