"""A deployment: its configuration, how nodes are asked, and the Flower app that carries both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from camu.config import Config
from camu.data import dataset_spec, is_own
from camu.data.own import shape_name
from camu.deploy.bundles import Table, project_file
from camu.errors import InputError
from camu.files import write_text
from camu.schemes import Scheme, make_scheme

Granularity = Literal["leader", "device"]

LONGEST_SECONDS = 86_400
LARGEST_MULTIPLE = 1e6


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
        if self.granularity not in get_args(Granularity):
            raise InputError(
                f"--granularity {self.granularity}: choose {' or '.join(get_args(Granularity))}"
            )
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


def make_deployable_scheme(config: Config) -> Scheme:
    """The configured scheme; refused if only a simulation can carry it out."""
    scheme = make_scheme(config)
    if scheme.uses_oracle:
        raise InputError(
            f"scheme.name = {config.scheme.name}: it needs exact losses or gradients on all data, "
            "which only a simulation has; choose another scheme for a deployment"
        )
    return scheme


def make_bundle(deployment: Deployment) -> bytes:
    """The deployment as the bundle that a SuperLink takes."""
    from camu.deploy.flower_compat import build_bundle  # it needs the extra `flower`

    return build_bundle(project_file(deployment.to_run_config()))


def write_app(folder: Path, deployment: Deployment) -> None:
    """Write the Flower app as a directory for `flwr run`."""
    write_text(folder / "pyproject.toml", project_file(deployment.to_run_config()))
