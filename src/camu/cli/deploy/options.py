"""The options that the commands of `camu deploy` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Granularity = Annotated[
    Literal["leader", "device"],
    typer.Option(
        "--granularity",
        help="leader: a node is a cluster's gateway and holds its members' data. device: a node is "
        "one device, or several; the server averages a cluster's members after every update.",
    ),
]
Deadline = Annotated[
    float,
    typer.Option("--deadline", metavar="SECONDS", help="How long to wait for a reply."),
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for nodes to connect.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain text, and no keys. Only for trials.")
]
Authority = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Certificate of the authority.")
]
Superlink = Annotated[
    str, typer.Option("--superlink", metavar="HOST:PORT", help="Address of the SuperLink.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Run directory [default: below runs/]."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue from the checkpoint in the run directory.")
]
