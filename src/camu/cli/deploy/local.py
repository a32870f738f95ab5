"""`camu deploy local`: a whole deployment on this machine."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from camu.cli.deploy.display import ProgressDisplay
from camu.cli.deploy.options import (
    Deadline,
    Granularity,
    Insecure,
    Out,
    Resume,
    Wait,
)
from camu.cli.options import ConfigFile, Json, Preset, Scheme, Seed, Settings
from camu.cli.run import default_directory, run_config, show_summary


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
    """Start a SuperLink and nodes on this machine, run a plan on them, and end all of them.

    Gives the weights that `camu run` gives with the same configuration and seed. Nodes that die are
    started again; Ctrl-C ends everything, and --resume continues from the last round.
    """
    from camu.deploy.deployment import Deployment
    from camu.deploy.host.local import run_local

    config = run_config(out, resume, file, preset, settings, seed, scheme)
    folder = out or default_directory(config, resume)
    wanted = Deployment(
        config, str(folder), granularity, nodes, deadline, wait, measured, resume=resume
    )
    try:
        with ProgressDisplay(config) as display:
            directory = run_local(wanted, display, insecure)
    except KeyboardInterrupt:
        Console(stderr=True).print(
            f"stopped; continue with: camu deploy local --resume --nodes {nodes} "
            f"--granularity {granularity} --out {folder}",
            soft_wrap=True,
        )
        raise typer.Exit(130) from None
    show_summary(directory, as_json)
