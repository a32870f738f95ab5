"""`camu deploy local`, `run` and `app`: a plan on nodes; and the options of all these commands."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from camu.cli.console import WorkBar, plain_console
from camu.cli.options import ConfigFile, Json, Preset, Scheme, Seed, Settings, StartModel, to_folder
from camu.cli.run import Resume, RunFolder, default_directory, run_config, show_summary
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.config import Config

Granularity = Annotated[
    Literal["leader", "device"],
    typer.Option(
        "--granularity",
        help="leader: a node is a cluster's gateway and holds its members' data. device: a node is "
        "one device, or several; the server averages a cluster's members after every update.",
    ),
]
Deadline = Annotated[
    float, typer.Option("--deadline", metavar="SECONDS", help="How long to wait for a reply.")
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for nodes to connect.")
]
Quorum = Annotated[
    str,
    typer.Option(
        "--quorum",
        metavar="SHARE%|N",
        help="Devices that are enough to start when --wait is over; the others can join later.",
    ),
]
SimulateFaults = Annotated[
    bool,
    typer.Option(
        "--simulate-faults",
        help="Add the noise, lost packets, outages and dropouts of the configuration to what nodes "
        "send, as camu run does; without it the uplink is digital, and they are refused.",
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain text, and no keys. Only for trials.")
]
Authority = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Certificate of the authority.")
]
OwnAuthority = Annotated[
    Path,
    typer.Option(
        "--ca", metavar="FILE", help="Certificate of the authority; control.token is next to it."
    ),
]
Superlink = Annotated[
    str, typer.Option("--superlink", metavar="HOST:PORT", help="Address of the SuperLink.")
]
TestData = Annotated[
    str,
    typer.Option(
        "--test-data",
        metavar="DIR|MODULE:FUNCTION",
        help="Test samples of your own, under the name `test` [default: the data set's].",
    ),
]
RunDirectoryThere = Annotated[Path, to_folder("--out", "Run directory on the SuperLink's machine.")]
Partitions = Annotated[
    int, typer.Option("--partitions", metavar="N", min=0, help="Nodes of a trial; 0: own data.")
]
Clip = Annotated[
    float,
    typer.Option(
        "--clip",
        metavar="X",
        help="Limit the norm of an update, and the weight of a device, to X times the median of "
        "all; 0: do not.",
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


class ProgressDisplay(WorkBar):
    """Shows a run: a line or a state for each step before the first round, then the rounds."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("round", clock)
        self.title, self.rounds = config.scheme.name, config.run.rounds

    def say(self, state: str) -> None:
        """Show a step before the first round."""
        self.begin(self.title, self.rounds, state)

    def warn(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(text, style="yellow", soft_wrap=True)

    def show(self, status: dict[str, Any]) -> None:
        """Advance the bar to the round of a status."""
        costs = f"{status['joules']:.3g} J  {status['virtual_seconds']:.3g} s"
        score = shown_score(status) or "no score"
        self(self.title, status["round"], status.get("rounds", self.rounds), f"{score}  {costs}")


def shown_score(status: dict[str, Any]) -> str:
    """The score in a status for people; "" where there is none."""
    from camu.learning.metrics import find_metric

    metric = find_metric(str(status.get("metric", "accuracy")))
    score = status.get("score", status.get("accuracy"))
    return "" if score is None else f"{metric.title} {metric.show(score)}"


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
    clip: Clip = 2.0,
    most_samples: MostSamples = 10.0,
    configured_speed: ConfiguredSpeed = False,
    simulate_faults: SimulateFaults = False,
    test_data: TestData = "",
    start: StartModel = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Run a plan on the nodes of a SuperLink; to be started on the SuperLink's machine.

    Updates arrive as nodes sent them; only --simulate-faults adds the configured radio's damage.
    Ctrl-C does not end the run. If the run has ended early, the same command with --resume
    continues it from its last round.
    """
    from camu.deploy.deployment import Deployment, for_real_links, with_absolute_paths
    from camu.deploy.host.control import run_remote

    config = run_config(out, resume, file, preset, settings, seed, scheme)
    config = with_absolute_paths(for_real_links(config, simulate_faults))
    if authority is None and not insecure:
        raise InputError("--ca: give the certificate of the authority, or --insecure")
    if test_data and ":" not in test_data:
        test_data = str(Path(test_data).absolute())
    wanted = Deployment(
        *(config, str(out.absolute()), granularity, partitions, deadline, wait),
        measured=not configured_speed,
        test_data=test_data,
        resume=resume,
        start=str(start.absolute()) if start else "",
        quorum=quorum,
        clip=clip,
        most_samples=most_samples,
    )
    try:
        with ProgressDisplay(config) as display:
            directory = run_remote(wanted, address, None if insecure else authority, display)
    except KeyboardInterrupt:
        rounds = out.absolute() / "rounds.jsonl"
        plain_console(stderr=True).print(f"the run continues; its rounds are in {rounds}")
        raise typer.Exit(130) from None
    if directory.summary.exists():
        show_summary(directory, as_json)
    else:
        print("the run was stopped before its first round; --resume continues it")


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
    out: RunFolder = None,
    deadline: Deadline = 60.0,
    wait: Wait = 300.0,
    simulate_faults: SimulateFaults = False,
) -> None:
    """Write a run as a Flower app, for Flower's own simulator or a SuperLink of your own.

    With --simulate-faults or radio.uplink=digital, the simulator (flwr run, which needs ray) gives
    the weights of `camu run` with the same configuration and seed, to 1e-6.
    """
    from camu.deploy.deployment import PROJECT, Deployment, for_real_links, project_file
    from camu.deploy.host.local import check_trial
    from camu.files import write_text

    if folder.exists():
        raise InputError(f"{folder}: it exists already; give a new directory")
    config = run_config(out, False, file, preset, settings, seed, scheme)
    config = for_real_links(config, simulate_faults)
    run_directory = (out or default_directory(config, False)).absolute()
    wanted = Deployment(config, str(run_directory), granularity, nodes, deadline, wait)
    check_trial(wanted)
    write_text(folder / PROJECT, project_file(wanted))
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
    out: RunFolder = None,
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

    It is a simulation on processes: with the noise and faults of the configuration, it gives the
    weights of `camu run` with the same configuration and seed, to 1e-6. Nodes that die are started
    again; Ctrl-C ends everything, and --resume continues from the last round.
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
