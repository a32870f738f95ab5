"""What a deployment is told beside its configuration, and how it travels in Flower's run config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from camu.config import Config
from camu.errors import InputError

Granularity = Literal["leader", "device"]


@dataclass(frozen=True)
class Settings:
    """A deployment: the run's configuration, and how nodes are asked."""

    config: Config
    out: str  # run directory, on the machine of the SuperLink
    granularity: Granularity = "leader"
    nodes: int = 0  # nodes of a trial; 0: as many as hold the fleet's devices
    deadline_seconds: float = 60.0  # longest wait for an answer
    wait_seconds: float = 300.0  # longest wait for nodes to come
    measured: bool = False  # plan with the nodes' measured compute times
    test_data: str = ""  # own test data; empty: that of the configured data set
    resume: bool = False

    def __post_init__(self) -> None:
        if self.granularity not in get_args(Granularity):
            raise InputError(
                f"--granularity {self.granularity}: choose {' or '.join(get_args(Granularity))}"
            )
        for name in ("deadline_seconds", "wait_seconds"):
            if not 0 < getattr(self, name) <= 86_400:
                raise InputError(f"{name} = {getattr(self, name)}: seconds, up to a day")

    def to_run_config(self) -> dict[str, str | int | float | bool]:
        """As Flower carries it: one flat table of plain values."""
        table = {key: value for key, value in vars(self).items() if key != "config"}
        return {"config": self.config.to_toml(), **table}

    @classmethod
    def from_run_config(cls, table: Mapping[str, Any]) -> Settings:
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
