"""`camu deploy`: the same plan on Flower nodes, on this machine or on many."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from camu.cli.options import ConfigFile, Json, Preset, Scheme, Seed, Settings, resolve
from camu.cli.run import default_directory, show_summary
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.config import Config

app = typer.Typer(
    name="deploy",
    help="Run a plan on Flower nodes, with TLS and node authentication (extra `flower`).",
    no_args_is_help=True,
)

Granularity = Annotated[
    Literal["leader", "device"],
    typer.Option(
        "--granularity",
        help="leader: a node is a cluster's gateway and holds its members' data. device: a node is "
        "one device, or several; the server averages a cluster's members after every update.",
    ),
]
Deadline = Annotated[
    float, typer.Option("--deadline", metavar="SECONDS", help="Longest wait for a node's answer.")
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="Longest wait for nodes to come.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain text, and no keys asked for. Only for trials.")
]
Authority = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Certificate of the authority.")
]
Superlink = Annotated[
    str, typer.Option("--superlink", metavar="HOST:PORT", help="Where the SuperLink listens.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Run directory [default: below runs/]."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from the checkpoint in the run directory.")
]


@app.callback()
def _check_extra() -> None:
    """Say what to install before anything fails to import."""
    if importlib.util.find_spec("flwr") is None:
        raise InputError("camu deploy: install the extra with pip install 'camu-fl[flower]'")
    from camu.deploy.host.processes import QUIET

    for key, value in QUIET.items():
        os.environ.setdefault(key, value)


@app.command()
def local(
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, help="Nodes to start.")] = 3,
    granularity: Granularity = "leader",
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    out: Out = None,
    resume: Resume = False,
    deadline: Deadline = 60.0,
    wait: Wait = 300.0,
    measured: Annotated[
        bool, typer.Option("--measured", help="Plan with the nodes' measured compute times.")
    ] = False,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Start a SuperLink and nodes on this machine, run a plan on them, and end them all.

    Gives the weights that `camu run` gives with the same configuration and seed. Nodes that die are
    started again; Ctrl-C ends everything, and --resume goes on from the last round.
    """
    from camu.deploy.deployment import Settings as Deployment
    from camu.deploy.host.local import run_local

    config = _config(out, resume, file, preset, settings, seed, scheme)
    folder = out or default_directory(config, resume)
    wanted = Deployment(
        config, str(folder), granularity, nodes, deadline, wait, measured, resume=resume
    )
    try:
        directory = run_local(wanted, insecure)
    except KeyboardInterrupt:
        Console(stderr=True).print(
            f"stopped; go on with: camu deploy local --resume --nodes {nodes} "
            f"--granularity {granularity} --out {folder}",
            soft_wrap=True,
        )
        raise typer.Exit(130) from None
    show_summary(directory, as_json)


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New directory for the keys.")],
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, help="Node keys.")] = 1,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="Name or address of the SuperLink; repeat."),
    ] = None,
) -> None:
    """Make a certificate authority, a server certificate and a key for every node."""
    from camu.deploy.host.keys import make_keys

    made = make_keys(folder, nodes, hosts or [])
    print(f"{made.authority}: every machine gets a copy")
    print(f"{made.authority_key}: secret; signs server certificates; keep it off the network")
    print(f"{made.server}, {made.server_key}: for the SuperLink; the key is secret")
    print(f"{made.node_key(0)}, ...: secret; one for each node, and for it alone")
    print(f"{made.node_public_key(0)}, ...: to be registered at the SuperLink")


@app.command()
def superlink(
    folder: Annotated[
        Path | None,
        typer.Option("--keys", metavar="DIR", help="Directory with ca.crt, server.crt, server.key"),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 8000,
    database: Annotated[
        Path | None,
        typer.Option("--database", metavar="FILE", help="Keeps registered nodes over a restart."),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Start a SuperLink: the server that nodes connect to.

    Other machines reach the nodes' interface only; nodes are registered and runs are started from
    the machine itself.
    """
    from camu.deploy.host.commands import ServerKeys, superlink_command
    from camu.deploy.host.keys import KeyDirectory

    own = None
    if not insecure:
        if folder is None:
            raise InputError("--keys: give the directory with the server's keys, or --insecure")
        files = KeyDirectory(folder)
        own = ServerKeys(files.authority, files.server, files.server_key)
    _become(superlink_command(host, port, own, database), insecure)


@app.command()
def register(
    public_keys: Annotated[list[Path], typer.Argument(metavar="KEY.pub…", help="Public keys.")],
    address: Superlink = "127.0.0.1:8000",
    authority: Authority = None,
) -> None:
    """Let nodes take part: tell the SuperLink on this machine their public keys."""
    from camu.deploy.host.control import Control

    if authority is None:
        raise InputError("--ca: give the certificate of the authority")
    with Control(address, authority) as control:
        for key in public_keys:
            print(f"{key} is registered as node {control.register(key, key.stem)}")


@app.command()
def node(
    address: Superlink,
    authority: Authority = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The node's private key.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option("--devices", metavar="A,B,…", help="Devices that it holds.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR|MODULE:FUNCTION", help="Where their data are."),
    ] = None,
    snr_db: Annotated[
        str | None,
        typer.Option("--snr-db", metavar="DB,…", help="Their SNR at the base station, if known."),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="I/N", help="For a trial: part I (from 0) of N."),
    ] = None,
    port: Annotated[int, typer.Option("--port", help="Loopback port for its executor.")] = 9094,
    insecure: Insecure = False,
) -> None:
    """Start a node: it trains on its own data, and sends only weights and label counts."""
    from camu.deploy.host.commands import NodeKeys, supernode_command

    table = _node_table(devices, data, snr_db, partition)
    own = None
    if not insecure:
        if authority is None or key is None:
            raise InputError("--ca and --key: give both, or --insecure")
        own = NodeKeys(authority, key)
    _become(supernode_command(address, port, own, table), insecure)


@app.command()
def run(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Run directory on the SuperLink's machine.")
    ],
    address: Superlink = "127.0.0.1:8000",
    authority: Authority = None,
    granularity: Granularity = "leader",
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=0, help="Nodes of a trial; 0: own data.")
    ] = 0,
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    resume: Resume = False,
    deadline: Deadline = 60.0,
    wait: Wait = 300.0,
    configured_speed: Annotated[
        bool,
        typer.Option("--configured-speed", help="Plan with fleet.cpu_hz, not measured times."),
    ] = False,
    test_data: Annotated[
        str,
        typer.Option(
            "--test-data",
            metavar="DIR|MODULE:FUNCTION",
            help="Test samples of your own, under the name `test` [default: the data set's].",
        ),
    ] = "",
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Run a plan on the nodes of a SuperLink; to be started on the SuperLink's machine.

    Ctrl-C leaves the run going; the same command with --resume starts it again from its last round
    if it has ended.
    """
    from camu.deploy.deployment import Settings as Deployment
    from camu.deploy.host.remote import run_remote

    config = _config(out, resume, file, preset, settings, seed, scheme)
    if authority is None and not insecure:
        raise InputError("--ca: give the certificate of the authority, or --insecure")
    wanted = Deployment(
        config,
        str(out.absolute()),
        granularity,
        partitions,
        deadline,
        wait,
        measured=not configured_speed,
        test_data=test_data,
        resume=resume,
    )
    with contextlib.suppress(KeyboardInterrupt):
        show_summary(run_remote(wanted, address, None if insecure else authority), as_json)
        return
    Console(stderr=True).print(f"the run goes on; its rounds are in {out / 'rounds.jsonl'}")
    raise typer.Exit(130)


@app.command("app")
def write_flower_app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New directory for the app.")],
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", min=1, help="Nodes to deal to.")
    ] = 3,
    granularity: Granularity = "leader",
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    out: Out = None,
    deadline: Deadline = 60.0,
    wait: Wait = 300.0,
) -> None:
    """Write a run as a Flower app, for Flower's own simulator or a SuperLink of your own.

    The simulator (flwr run, which needs ray) gives the weights of `camu run` with the same
    configuration and seed.
    """
    from camu.deploy.deployment import Settings as Deployment
    from camu.deploy.host.bundle import write_app
    from camu.deploy.host.local import check_trial

    if folder.exists():
        raise InputError(f"{folder}: it exists already; give a new directory")
    config = _config(out, False, file, preset, settings, seed, scheme)
    run_directory = (out or default_directory(config, False)).absolute()
    wanted = Deployment(config, str(run_directory), granularity, nodes, deadline, wait)
    check_trial(wanted)
    write_app(folder, wanted)
    command = f"flwr run {shlex.quote(str(folder))} local --stream"
    print(f"{command} --federation-config 'num-supernodes={nodes}'")
    print(f"runs it in Flower's simulator and writes {run_directory}")


def _config(
    out: Path | None,
    resume: bool,
    file: Path | None,
    preset: str | None,
    settings: list[str] | None,
    seed: int | None,
    scheme: str | None,
) -> Config:
    """What the options ask for; a resumed run without options takes its own configuration."""
    from camu.simulation.directory import RunDirectory

    given = (file, preset, settings, seed, scheme) != (None, None, None, None, None)
    if resume and out is not None and not given and RunDirectory(out).exists():
        return RunDirectory(out).read_config()
    return resolve(file, preset, settings, seed, scheme)


def _node_table(
    devices: str | None, data: str | None, snr_db: str | None, partition: str | None
) -> dict[str, str | int | float]:
    """A node's configuration from its options."""
    if partition is not None:
        number, _, count = partition.partition("/")
        if not (number.isdigit() and count.isdigit() and int(number) < int(count)):
            raise InputError(f"--partition {partition}: write I/N, for example 0/3")
        return {"partition-id": int(number), "num-partitions": int(count)}
    if devices is None or data is None:
        raise InputError("--devices and --data: give both, or for a trial --partition I/N")
    if ":" not in data:
        data = str(Path(data).absolute())
    table: dict[str, str | int | float] = {"devices": devices, "data": data}
    return table if snr_db is None else {**table, "snr-db": snr_db}


def _become(command: list[str], insecure: bool) -> None:
    """Let another program take the place of this one, so that a supervisor sees one process."""
    from camu.deploy.host.processes import quiet_environment

    if insecure:
        Console(stderr=True).print(
            "--insecure: plain text, and nodes are not asked for keys", style="yellow"
        )
    os.execve(command[0], command, quiet_environment())
