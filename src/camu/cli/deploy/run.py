"""`camu deploy run` and `camu deploy app`: a run on a SuperLink, or in Flower's simulator."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camu.cli.console import plain_console
from camu.cli.deploy.options import (
    AlarmCommand,
    Authority,
    Deadline,
    Granularity,
    Insecure,
    Out,
    ProgressDisplay,
    Quorum,
    Resume,
    Superlink,
    Wait,
)
from camu.cli.options import ConfigFile, Json, Preset, Scheme, Seed, Settings, StartModel
from camu.cli.run import default_directory, run_config, show_summary
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.deploy.deployment import Deployment

TestData = Annotated[
    str,
    typer.Option(
        "--test-data",
        metavar="DIR|MODULE:FUNCTION",
        help="Test samples of your own, under the name `test` [default: the data set's].",
    ),
]
RunDirectoryThere = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Run directory on the SuperLink's machine.")
]
Partitions = Annotated[
    int, typer.Option("--partitions", metavar="N", min=0, help="Nodes of a trial; 0: own data.")
]
Clip = Annotated[
    float,
    typer.Option(
        "--clip", metavar="X", help="Clip updates to X times the round's median norm; 0: never."
    ),
]
MostSamples = Annotated[
    float,
    typer.Option(
        "--most-samples",
        metavar="X",
        help="Refuse a node that claims a device with more than X times the samples of the other "
        "nodes' median device; 0: never.",
    ),
]
ConfiguredSpeed = Annotated[
    bool,
    typer.Option(
        "--configured-speed",
        help="Plan with the configured models of time and energy, not measured values.",
    ),
]


def run(
    out: RunDirectoryThere,
    address: Superlink = "127.0.0.1:8000",
    authority: Authority = None,
    granularity: Granularity = "leader",
    partitions: Partitions = 0,
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    resume: Resume = False,
    deadline: Deadline = 60.0,
    wait: Wait = 300.0,
    quorum: Quorum = "50%",
    clip: Clip = 5.0,
    most_samples: MostSamples = 10.0,
    configured_speed: ConfiguredSpeed = False,
    test_data: TestData = "",
    start: StartModel = None,
    alarm: AlarmCommand = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Run a plan on the nodes of a SuperLink; to be started on the SuperLink's machine.

    Ctrl-C does not end the run. If the run has ended early, the same command with --resume
    continues it from its last round.
    """
    from camu.deploy.deployment import Deployment

    config = run_config(out, resume, file, preset, settings, seed, scheme)
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
        start=str(start.absolute()) if start else "",
        quorum=quorum,
        clip=clip,
        most_samples=most_samples,
    )
    _follow(wanted, address, None if insecure else authority, alarm, as_json)


def _follow(
    wanted: Deployment, address: str, authority: Path | None, alarm: str | None, as_json: bool
) -> None:
    """Start a run and show it to its end."""
    from camu.deploy.host.control import run_remote
    from camu.deploy.watching import Alarm

    alarms = None if alarm is None else Alarm(alarm)
    with contextlib.suppress(KeyboardInterrupt):
        with ProgressDisplay(wanted.config) as display:
            directory = run_remote(wanted, address, authority, display, alarms)
        show_summary(directory, as_json)
        return
    plain_console(stderr=True).print(
        f"the run continues; its rounds are in {Path(wanted.out) / 'rounds.jsonl'}"
    )
    raise typer.Exit(130)


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
    from camu.deploy.deployment import Deployment, write_app
    from camu.deploy.host.local import check_trial

    if folder.exists():
        raise InputError(f"{folder}: it exists already; give a new directory")
    config = run_config(out, False, file, preset, settings, seed, scheme)
    run_directory = (out or default_directory(config, False)).absolute()
    wanted = Deployment(config, str(run_directory), granularity, nodes, deadline, wait)
    check_trial(wanted)
    write_app(folder, wanted)
    command = f"flwr run {shlex.quote(str(folder))} local --stream"
    print(f"{command} --federation-config 'num-supernodes={nodes}'")
    print(f"runs it in Flower's simulator and writes {run_directory}")


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
        bool, typer.Option("--measured", help="Plan with measured compute times and joules.")
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
        plain_console(stderr=True).print(
            f"stopped; continue with: camu deploy local --resume --nodes {nodes} "
            f"--granularity {granularity} --out {folder}",
            soft_wrap=True,
        )
        raise typer.Exit(130) from None
    show_summary(directory, as_json)
