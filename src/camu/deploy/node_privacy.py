"""Differential privacy at a node: noise from a secret of its own, and the account of its owner.

The server knows `run.seed`, so mini-batches and noise are drawn from the node's secret, the task
and the data: the same task has the same answer, and any other one has other noise. The account is a
file that is written before an answer leaves, over all runs of the node. It is about a sample that
is exchanged for another, at a delta of its own, whatever the server configures.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from camu.config import Config
from camu.deploy.array_records import bytes_in
from camu.deploy.messages import Task, write_task
from camu.errors import InputError
from camu.learning.engine import Samples
from camu.learning.weights import Weights
from camu.sealed import read_sealed_json, write_sealed_json
from camu.simulation.privacy import check_accountant, epsilon_of_all, released

DELTA = 1e-5  # of the account
ACCOUNT = "privacy.json"
_WHAT = "the account of differential privacy"
_REMEDY = "put back a copy of it: without it nobody knows what was released"


class LimitReached(InputError):
    """The owner's limit does not allow another answer."""


@dataclass(frozen=True)
class Account:
    """What the devices of a node have released, in a file of its directory."""

    folder: Path
    limit: float | None = None  # of epsilon; None: the owner sets none
    label_epsilon: float = 0.0  # that label counts cost each sample, once

    @classmethod
    def of(
        cls, config: Config, folder: str, limit: float | None, labels: float | None, own: bool
    ) -> Account | None:
        """The account of a node in this run; None where nothing is counted.

        `labels` is the epsilon of the noise on label counts, None without noise; `own` is whether
        the data are the node's own, and not those of a trial.
        """
        key = f"training.dp_unit = {config.training.dp_unit}"
        if config.training.dp_unit == "none":
            if limit is not None:
                raise InputError(
                    f"{key}: the owner of this node limits epsilon to {limit:g}; set "
                    "training.dp_unit to sample or update"
                )
            return None
        check_accountant(key)
        if not folder:
            raise InputError(
                f"{key}: this node has no directory for its account; start it with camu deploy "
                "node, which has --state"
            )
        if limit is not None and own and labels is None:
            raise InputError(
                f"{key}: exact label counts leave this node, which no epsilon covers; start it "
                "without --exact-labels, or without --privacy-limit"
            )
        # An exchanged sample changes two counts.
        return cls(Path(folder), limit, 2 * labels if own and labels is not None else 0.0)

    def secret(self) -> bytes:
        """What the noise is drawn from, in a file that is made once."""
        from camu.deploy.host.keys import make_token

        path = self.folder / "noise.secret"
        make_token(path)
        return path.read_bytes()

    def seed_of(self, task: Task, starts: Sequence[Weights], data: Samples) -> tuple[str, int]:
        """A name of this very task on these data, and what its batches and noise are drawn from."""
        members = [device for job in task.jobs for device in job.members]
        if len(set(members)) < len(members):
            raise InputError("the task trains a device twice, which would show its noise")
        if any(job.own for job in task.jobs):
            raise InputError("devices also train for themselves, without noise on what they send")
        digest = hashlib.sha256()
        for piece in bytes_in(write_task(replace(task, nonce=""), starts)):
            digest.update(piece)
        for part in data:
            held = np.asarray(part)
            digest.update(f"{held.dtype} {held.shape}\n".encode() + held.tobytes())
        name = digest.hexdigest()[:32]
        drawn = hmac.new(self.secret(), name.encode(), hashlib.sha256).digest()
        return name, int.from_bytes(drawn, "big")

    def epsilon(self, releases: Iterable[Mapping[str, Any]]) -> float:
        """The epsilon of these releases and of the label counts."""
        rows = tuple(sorted((r["share"], r["times"], r["noise"]) for r in releases))
        found = epsilon_of_all(rows, DELTA) + self.label_epsilon
        return found if math.isfinite(found) else math.inf

    def check(self, devices: Iterable[str]) -> None:
        """Refuse a run where a device has nothing left to release."""
        known = self._read()["devices"]
        for device in devices:
            own = known.get(device, {"releases": []})
            self._check_limit(device, self.epsilon(own["releases"]))

    def charge(self, config: Config, task: Task, name: str, samples: Mapping[int, int]) -> None:
        """Count what the answer to a task releases, before it is given; asked again, it is free.

        `samples` says how many samples each device holds.
        """
        document = self._read()
        if name in document["tasks"]:
            return
        training, devices = config.training, document["devices"]
        for job in task.jobs:
            alone = len(job.members) == 1
            for number in job.members:
                device = task.ids[number]
                own = devices.setdefault(device, {"epsilon": 0.0, "releases": []})
                share, times = released(training, samples[number], job.updates, job.rule, alone)
                _add(own["releases"], training.dp_unit, share, training.dp_noise, times)
                epsilon = self.epsilon(own["releases"])
                self._check_limit(device, epsilon)
                own["epsilon"] = epsilon if math.isfinite(epsilon) else None
        document["tasks"].append(name)
        write_sealed_json(self.folder / ACCOUNT, document)
        numbers = {task.ids[number] for job in task.jobs for number in job.members}
        worst = max(devices[device]["epsilon"] or math.inf for device in numbers)
        limit = "" if self.limit is None else f" of {self.limit:g}"
        # For the owner: what a node prints is in its log.
        print(f"round {task.round + 1}: epsilon {worst:.4g}{limit} at delta {DELTA:g}", flush=True)

    def _check_limit(self, device: str, epsilon: float) -> None:
        if self.limit is not None and epsilon > self.limit:
            raise LimitReached(
                f"device {device} would reach epsilon {epsilon:.4g}, and the owner of its node "
                f"limits it to {self.limit:g}"
            )

    def _read(self) -> dict[str, Any]:
        path = self.folder / ACCOUNT
        if not path.exists():
            return {"schema": 1, "delta": DELTA, "devices": {}, "tasks": []}
        return read_sealed_json(path, _WHAT, _REMEDY)


def _add(releases: list[dict[str, Any]], unit: str, share: int, noise: float, times: int) -> None:
    """Count releases with others of their kind."""
    kind = {"unit": unit, "share": share, "noise": noise}
    for known in releases:
        if kind.items() <= known.items():
            known["times"] += times
            return
    releases.append({**kind, "times": times})
