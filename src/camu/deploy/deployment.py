"""A deployment: its configuration, how nodes are asked, and the Flower bundle that carries both.

Flower installs the code of a bundle and runs it. camu's server and nodes run their own apps, each
from its own installation, and take nothing but a table of plain values from a bundle.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
import tomllib
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tomli_w

from camu import __version__
from camu.config import Config, keys_affecting
from camu.data import dataset_spec, is_own
from camu.data.own import shape_name, shape_spec
from camu.deploy.array_records import Refusal
from camu.deploy.status import OWN_FILES
from camu.errors import InputError
from camu.plugins import is_path
from camu.schemes import Scheme, make_scheme
from camu.simulation.directory import RunDirectory, check_directory
from camu.simulation.manifest import INPUT_FILES, Manifest
from camu.simulation.result import Start, read_start
from camu.world.movement import key_of_movement

Granularity = Literal["leader", "device"]
Table = dict[str, str | int | float | bool]

SERVER_APP = "camu.deploy.server.app:app"
NODE_APP = "camu.deploy.node_app:app"
COMPONENTS = {"serverapp": SERVER_APP, "clientapp": NODE_APP}
PROJECT = "pyproject.toml"
FILES = frozenset({PROJECT, ".info/CONTENT"})  # Flower adds a list of the files
LARGEST_BUNDLE_BYTES = 10_000_000  # Flower takes no larger bundle
LONGEST_SECONDS = 86_400
LARGEST_MULTIPLE = 1e6

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Deployment:
    """A deployment: the run's configuration, and how nodes are asked."""

    config: Config
    out: str  # run directory, on the machine of the SuperLink
    granularity: Granularity = "leader"
    nodes: int = 0  # nodes of a trial; 0: as many as hold the fleet's devices
    deadline_seconds: float = 60.0  # longest wait for a reply
    wait_seconds: float = 300.0  # longest wait for nodes to connect
    measured: bool = False  # plan with the nodes' measured compute times
    test_data: str = ""  # own test data; empty: that of the configured data set
    resume: bool = False
    start: str = ""  # model.safetensors to begin with, on the machine of the SuperLink
    shape: str = ""  # own data set: only its shape, for nodes that do not have it
    quorum: str = "100%"  # devices without which no run starts: a share, or a number
    clip: float = 0.0  # multiple of the median norm to which updates are clipped; 0: not at all
    # Samples that a device may claim, as a multiple of the other nodes' median; 0: any number.
    most_samples: float = 0.0

    def __post_init__(self) -> None:
        for option, seconds in (("deadline", self.deadline_seconds), ("wait", self.wait_seconds)):
            if not 0 < seconds <= LONGEST_SECONDS:
                raise InputError(
                    f"--{option} {seconds:g}: give seconds above 0, up to {LONGEST_SECONDS}"
                )
        for option, multiple in (("clip", self.clip), ("most-samples", self.most_samples)):
            if not (multiple == 0 or 1 <= multiple <= LARGEST_MULTIPLE):
                raise InputError(
                    f"--{option} {multiple:g}: give a multiple of the median from 1 to "
                    f"{LARGEST_MULTIPLE:g}, or 0 for no limit"
                )
        self.devices_needed(1_000_000)

    def with_shape(self) -> Deployment:
        """The same deployment, with the shape of the data if the data set is the user's own."""
        data = self.config.data
        return replace(self, shape=shape_name(dataset_spec(data))) if is_own(data.dataset) else self

    def devices_needed(self, count: int) -> int:
        """The quorum among so many devices."""
        share, number = self.quorum.removesuffix("%"), self.quorum
        try:
            if share != number and 0 < float(share) <= 100:
                return max(1, math.ceil(float(share) / 100 * count - 1e-9))
            if number.isdecimal() and int(number) > 0:
                return min(int(number), count)
        except ValueError:
            pass
        raise InputError(
            f"--quorum {self.quorum}: give a share of the devices, such as 50%, or a number of "
            "them from 1"
        )

    def to_run_config(self) -> Table:
        """The deployment as Flower carries it: one flat table of plain values."""
        table = {key: value for key, value in vars(self).items() if key != "config"}
        return {"config": self.config.to_toml(), **table}

    @property
    def is_secure(self) -> bool:
        """Whether members of units mask what they send."""
        return self.config.training.secure_sum != "none"

    @property
    def identity(self) -> str:
        """What nodes call the run in what they keep; the same when it is continued."""
        decisive = keys_affecting("result")
        values = {key: repr(v) for key, v in self.config.flat().items() if key in decisive}
        text = "\n".join([self.out, *(f"{key} = {values[key]}" for key in sorted(values))])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def from_run_config(cls, table: Mapping[str, Any]) -> Deployment:
        """The deployment that a run config describes."""
        known = {key: table[key] for key in cls.__dataclass_fields__ if key in table}
        try:
            config = Config.from_toml(str(known.pop("config")))
        except (KeyError, InputError) as error:
            raise InputError(
                f"the run config holds no valid configuration ({error}); start the run with the "
                "same version of camu as the nodes have"
            ) from None
        return cls(config=config, **known)


# Other values of these keys are damage that only a simulation does.
_REAL = {"radio.uplink": "digital", "radio.pilot_symbols": None, "radio.csi_correlation": 1.0}


def for_real_links(config: Config, simulate: bool) -> Config:
    """The configuration for nodes with real links: no damage that only a simulation would do.

    The paper's `hybrid` uplink becomes `digital`, with a sentence. Other noise, lost packets,
    outages and dropouts are refused, unless the user asked for them (`simulate`): updates of nodes
    arrive as they were sent. Devices that move in a simulation are always refused.
    """
    key = key_of_movement(config)
    if key is None and config.clustering.replan_every is not None:
        key = "clustering.replan_every"
    if key is not None:
        raise InputError(f"{key}: real devices move by themselves; leave it out of a deployment")
    if config.run.every_seconds is not None:
        raise InputError(
            f"run.every_seconds = {config.run.every_seconds:g}: rounds of a deployment follow each "
            "other; leave it out, and start runs of a few rounds with --resume when it is time"
        )
    if simulate:
        return config
    if config.radio.uplink == "hybrid":
        log.info("radio.uplink = hybrid: between nodes updates arrive as they are sent (digital)")
        config = config.replace({"radio.uplink": "digital"})
    for key, value in config.flat().items():
        fault = key.startswith(("faults.", "radio.outage")) and value not in (None, 0)
        if fault or value != _REAL.get(key, value):
            raise InputError(
                f"{key} = {value}: it would damage or drop the updates of real nodes, as a "
                "simulation does; leave it out (radio.uplink: digital), or ask for it with "
                "--simulate-faults"
            )
    return config


def with_absolute_paths(config: Config) -> Config:
    """The configuration for processes in other directories, and for a run that is resumed there."""
    values = config.flat()
    keys = [*INPUT_FILES, "data.directory"]
    if is_own(config.data.dataset) and is_path(config.data.dataset):
        keys.append("data.dataset")
    given = {key: Path(values[key]).expanduser() for key in keys if values[key] is not None}
    return config.replace({key: str(path.absolute()) for key, path in given.items()})


class CheckedRun(NamedTuple):
    """A run that can be deployed; `start` is the model that it starts from, if one was given."""

    directory: RunDirectory
    scheme: Scheme
    start: Start | None
    manifest: Manifest


def check_run(deployment: Deployment) -> CheckedRun:
    """Refuse a directory in which the run cannot be, and a scheme that needs a simulation."""
    config, directory = deployment.config, RunDirectory(Path(deployment.out))
    scheme = make_scheme(config)
    if config.training.dp_unit != "none" and deployment.granularity == "device":
        raise InputError(
            f"training.dp_unit = {config.training.dp_unit}: nodes count what they release by "
            "rounds, and with --granularity device each local update leaves them; use "
            "--granularity leader"
        )
    if deployment.is_secure:
        _check_secure(deployment)
    if config.data.validation_share:
        raise InputError(
            f"data.validation_share = {config.data.validation_share:g}: nodes train on all samples "
            "that they hold; leave it out of a deployment"
        )
    if scheme.uses_oracle:
        raise InputError(
            f"scheme.name = {config.scheme.name}: it needs exact losses or gradients on all data, "
            "which only a simulation has; choose another scheme for a deployment"
        )
    if scheme.family == "over the air":
        raise InputError(
            f"scheme.name = {config.scheme.name}: its devices transmit at once, and there is no "
            "air between the sockets of nodes; choose another scheme for a deployment"
        )
    start = read_start(Path(deployment.start), config) if deployment.start else None
    manifest = check_directory(config, directory, deployment.resume, start, OWN_FILES)
    return CheckedRun(directory, scheme, start, manifest)


def _check_secure(deployment: Deployment) -> None:
    """Refuse what cannot be combined with secure sums."""
    training = deployment.config.training
    key = f"training.secure_sum = {training.secure_sum}"
    if deployment.granularity == "device":
        raise InputError(
            f"{key}: with --granularity device the server sees each device's update; use "
            "--granularity leader, where members on several nodes send masked updates"
        )
    if training.dp_unit != "none":
        raise InputError(
            f"{key}: nodes count by rounds what they release, and masked updates leave them after "
            f"each local update; leave out this key or training.dp_unit = {training.dp_unit}"
        )
    if training.optimiser_state == "keep":
        raise InputError(
            f"{key}: the server hears from no single member whether its optimiser was kept; set "
            "training.optimiser_state to reset"
        )


def make_bundle(deployment: Deployment) -> bytes:
    """The deployment as the bundle that a SuperLink takes."""
    from flwr.cli.build import build_fab_from_files  # slow to load

    return build_fab_from_files({PROJECT: project_file(deployment).encode()})[0]


def project_file(deployment: Deployment) -> str:
    """The pyproject.toml of a run; camu itself is installed on every machine before."""
    project = {
        "name": "camu-deployment",
        "version": __version__,
        "description": "A plan of camu on Flower nodes.",
        "license": "Apache-2.0",
        "dependencies": [],
    }
    app = {"publisher": "camu", "components": COMPONENTS, "config": deployment.to_run_config()}
    return tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})


def read_bundle(content: bytes) -> Table:
    """The table of plain values in a bundle; any other bundle is refused, and never unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if strange := sorted(set(archive.namelist()) - FILES):
                raise Refusal(
                    f"its bundle carries {strange[0][:200]!r}; camu runs its own app only"
                )
            if archive.getinfo(PROJECT).file_size > LARGEST_BUNDLE_BYTES:
                raise Refusal(f"the {PROJECT} of its bundle is too large")
            project = tomllib.loads(archive.read(PROJECT).decode())
        app = project["tool"]["flwr"]["app"]
        components = dict(app["components"])
        table = dict(app["config"])
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RecursionError) as error:
        raise Refusal(f"its bundle is not one of camu ({type(error).__name__})") from None
    if components != COMPONENTS:
        named = ", ".join(map(str, components.values()))[:200] or "none"
        raise Refusal(f"its bundle names other apps than camu's own ({named})")
    return {key: value for key, value in table.items() if isinstance(value, str | int | float)}


def check_allowed(config: Config, allowed: Collection[str]) -> None:
    """Refuse a configuration that names code or a download that the node's owner did not allow."""
    for key, name in named_code(config):
        if name not in allowed:
            raise InputError(
                f"{key} = {name}: this node's owner has not allowed it; the node must be started "
                f"with --allow {name}"
            )


def named_code(config: Config) -> list[tuple[str, str]]:
    """The keys and values of a configuration that name code or a download."""
    return [
        (key, name)
        for key, value in config.flat().items()
        for name in _names(value)
        if not (key == "data.dataset" and shape_spec(name) is not None)
    ]


def _names(value: object) -> Iterator[str]:
    """Texts that may name code (module:name) or a data set to download (hf:name)."""
    if isinstance(value, str) and ":" in value:
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _names(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _names(part)
