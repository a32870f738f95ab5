"""`camu deploy superlink`, `node`, `keys`, `register`, `revoke`: a deployment on machines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from camu.cli.console import warn
from camu.cli.deploy.run import Authority, Insecure, OwnAuthority, Superlink
from camu.errors import InputError


def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Directory for the keys.")],
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, help="Node keys.")] = 1,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="Name or address of the SuperLink; repeat."),
    ] = None,
    add: Annotated[
        int | None,
        typer.Option("--add", metavar="N", min=1, help="Only add N node keys to those in DIR."),
    ] = None,
) -> None:
    """Make a certificate authority, a server certificate and a key for every node.

    DIR must be new or empty, except with --add.
    """
    from camu.deploy.host.keys import KeyDirectory, add_node_keys, expiries, make_keys

    if add is not None:
        if hosts:
            raise InputError("--add: it makes node keys only; leave --host out")
        here = KeyDirectory(folder)
        for number in add_node_keys(folder, add):
            print(f"{here.node_key(number)}: secret; for one new node, and for it alone")
            print(f"{here.node_public_key(number)}: to be registered at the SuperLink")
        return
    made = make_keys(folder, nodes, hosts or [])
    print(f"{made.authority}: every machine gets a copy")
    print(f"{made.authority_key}: secret; signs server certificates; keep it off the network")
    print(f"{made.server}, {made.server_key}: for the SuperLink; the key is secret")
    print(f"{made.token}: secret; for the owner of the SuperLink, who controls it with this")
    print(f"{made.node_key(0)}, ...: secret; one for each node, and for it alone")
    print(f"{made.node_public_key(0)}, ...: to be registered at the SuperLink")
    for end in expiries(folder):
        print(end)


def superlink(
    folder: Annotated[
        Path | None,
        typer.Option("--keys", metavar="DIR", help="Directory with ca.crt, server.crt, server.key"),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = (
        8000
    ),
    database: Annotated[
        Path | None,
        typer.Option("--database", metavar="FILE", help="Keeps registered nodes over a restart."),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Start a SuperLink: the server that nodes connect to.

    Other machines reach the nodes' interface only. Nodes are registered and runs are started on the
    machine itself, by those who can read control.token in the directory of the keys; it is made if
    there is none.
    """
    from camu.deploy.host.keys import KeyDirectory, expiries
    from camu.deploy.host.processes import quiet_environment
    from camu.deploy.host.superlink import superlink_command

    own = None
    if not insecure:
        if folder is None:
            raise InputError("--keys: give the directory with the server's keys, or --insecure")
        own = KeyDirectory(folder)
        for end in expiries(folder):
            if end.soon:
                warn(f"{end}; renew it")
    _become(superlink_command(host, port, own, database), insecure, quiet_environment())


def register(
    authority: OwnAuthority,
    public_keys: Annotated[
        list[Path] | None, typer.Argument(metavar="KEY.pub…", help="Public keys.")
    ] = None,
    address: Superlink = "127.0.0.1:8000",
    devices: Annotated[
        str | None,
        typer.Option("--devices", metavar="A,B,…", help="The devices that this key may report."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            metavar="FILE.csv",
            help="Keys and their devices, with the header `key,devices`; keys are relative to it.",
        ),
    ] = None,
) -> None:
    """Register the public keys of nodes at the SuperLink on this machine, so that they can join.

    Keys that are already registered stay as they are. With --devices, a node with this key may
    report these devices only, and no other node may report them. A table registers many keys, after
    all of it was checked.
    """
    from camu.deploy.host.control import Control, Registration
    from camu.deploy.host.registrations import read_registrations
    from camu.deploy.server.mailbox import binding

    if (table is None) == (not public_keys):
        raise InputError("camu deploy register: give public keys, or a table of them with --table")
    if devices is not None and (table is not None or len(public_keys or ()) > 1):
        raise InputError("--devices: it is for one key; give a --table for many")
    if table is not None:
        wanted = read_registrations(table)
    else:
        bound = None if devices is None else binding(devices.split(","))
        wanted = [Registration(key, bound or key.stem) for key in public_keys or ()]
    with Control(address, authority) as control:
        for each, (number, new) in zip(wanted, control.register_all(wanted), strict=True):
            print(f"{each.key} is {'' if new else 'already '}registered as node {number}")


def revoke(
    nodes: Annotated[
        list[str],
        typer.Argument(metavar="KEY.pub|NUMBER…", help="Public keys, or numbers (deploy list)."),
    ],
    authority: OwnAuthority,
    address: Superlink = "127.0.0.1:8000",
) -> None:
    """Let nodes take part no longer: the SuperLink on this machine refuses their keys from now on.

    Runs go on without them. A key that was revoked cannot be registered again: make a new one.
    """
    from camu.deploy.host.control import Control

    with Control(address, authority) as control:
        for which in nodes:
            print(f"{which} is revoked: node {control.revoke(which)} is refused from now on")


Key = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The node's private key.")]
DeviceNames = Annotated[
    str | None, typer.Option("--devices", metavar="A,B,…", help="Devices that it holds.")
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR|MODULE:FUNCTION", help="Where their data are.")
]
SnrDb = Annotated[
    str | None,
    typer.Option("--snr-db", metavar="DB,…", help="Their SNR at the base station, if known."),
]
Joules = Annotated[
    str | None,
    typer.Option(
        "--joules",
        metavar="MODULE:FUNCTION",
        help="Returns the joules that a meter has counted [default: RAPL, if readable].",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="MODULE:NAME",
        help="Own code that a run's configuration may name on this node; repeat.",
    ),
]
Epsilon = Annotated[
    float, typer.Option("--epsilon", min=0.001, max=1e6, help="Of the noise on its label counts.")
]
ExactLabels = Annotated[
    bool, typer.Option("--exact-labels", help="Report exact label counts, without noise.")
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Keeps optimisers, and the account of privacy [default: KEY.state, or ~/.camu/node].",
    ),
]
PrivacyLimit = Annotated[
    float | None,
    typer.Option(
        "--privacy-limit",
        metavar="EPSILON",
        min=0,
        help="Train only with differential privacy, up to this epsilon over all runs.",
    ),
]
Peers = Annotated[
    Path | None,
    typer.Option(
        "--peers",
        metavar="DIR",
        help="Public keys (*.pub) of the nodes with which it takes part in secure sums "
        "[default: whatever keys the server names].",
    ),
]
Partition = Annotated[
    str | None,
    typer.Option("--partition", metavar="I/N", help="For a trial: part I (from 0) of N."),
]

Idle = Annotated[
    float,
    typer.Option(
        "--idle",
        metavar="SECONDS",
        min=10,
        max=1800,
        help="Between two questions for work while no run needs the node. Up to 270, they are kept "
        "at the SuperLink, and work comes at once.",
    ),
]
Isolate = Annotated[
    bool,
    typer.Option(
        "--isolate", help="Train in a process of its own, which ends when a task takes too long."
    ),
]


def node(
    address: Superlink,
    authority: Authority = None,
    key: Key = None,
    devices: DeviceNames = None,
    data: Data = None,
    snr_db: SnrDb = None,
    joules: Joules = None,
    allow: Allow = None,
    epsilon: Epsilon = 1.0,
    exact_labels: ExactLabels = False,
    state: State = None,
    privacy_limit: PrivacyLimit = None,
    peers: Peers = None,
    partition: Partition = None,
    idle_seconds: Idle = 270.0,
    isolate: Isolate = False,
    insecure: Insecure = False,
) -> None:
    """Start a node: it trains on its own data, and sends only weights and label counts.

    Names and data of its devices are checked before it connects. Label counts of own data leave the
    node with noise, unless --exact-labels is given.
    """
    from camu.deploy.host.keys import make_token
    from camu.deploy.host.node import node_command, node_environment

    table = _node_table(devices, data, snr_db, partition)
    if joules is not None:
        table["joules"] = joules
    if allow:
        table["allow"] = ",".join(allow)
    _check_node(table)
    if insecure:
        authority = None
    elif authority is None or key is None:
        raise InputError("--ca and --key: give both, or --insecure")
    place = state or (key.with_suffix(".state") if key else Path.home() / ".camu" / "node")
    table["state"] = str(place.absolute())
    if privacy_limit is not None:
        table["privacy-limit"] = privacy_limit
    if peers is not None:
        from camu.deploy.secure_keys import read_peers

        read_peers(str(peers))  # refused before the node connects
        table["peers"] = str(peers.absolute())
    if partition is None and not exact_labels:
        secret = key or Path.home() / ".camu" / "noise.secret"
        if key is None:
            make_token(secret)
        table |= {"epsilon": epsilon, "secret": str(secret.absolute())}
    command = node_command(address, authority, key, table, idle_seconds, isolate)
    _become(command, insecure, node_environment())


def _node_table(
    devices: str | None, data: str | None, snr_db: str | None, partition: str | None
) -> dict[str, str | int | float]:
    """A node's configuration from its options."""
    if partition is not None:
        number, _, count = partition.partition("/")
        if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
            raise InputError(f"--partition {partition}: write I/N, for example 0/3")
        return {"partition-id": int(number), "num-partitions": int(count)}
    if devices is None or data is None:
        raise InputError("--devices and --data: give both, or for a trial --partition I/N")
    if ":" not in data:
        data = str(Path(data).absolute())
    table: dict[str, str | int | float] = {"devices": devices, "data": data}
    return table if snr_db is None else {**table, "snr-db": snr_db}


def _check_node(table: Mapping[str, str | int | float]) -> None:
    """Refuse names, data or a meter that no run could use, before the node connects."""
    from camu.deploy.node_data import check_own, device_names, find_meter, numbers_of

    if "joules" in table:
        meter = find_meter(str(table["joules"]))
        assert meter is not None  # an own meter is there or refused
        meter.read()
    if "data" in table:
        names = device_names(str(table["devices"]))
        if "snr-db" in table:
            numbers_of(str(table["snr-db"]), names)
        check_own(str(table["data"]), names)


def _become(command: list[str], insecure: bool, environment: Mapping[str, str]) -> None:
    """Replace this program by another, so that a supervisor sees one process."""
    from camu.deploy.host.processes import INSECURE

    if insecure:
        warn(INSECURE)
    os.execve(command[0], command, environment)
