"""What a node keeps on its disk between rounds: the states of its devices' optimisers.

Each device has one file per run, with what its optimiser kept after the last training of the
present round and after that of the round before it. So a server that is started again, and asks for
the present round once more, gets the same result.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors.numpy import load_file

from camu.arrays import Float32
from camu.deploy.messages import AT_NODE
from camu.errors import CamuError, InputError
from camu.learning.job import Job, Trained
from camu.sealed import check_tensors, write_sealed_tensors

log = logging.getLogger(__name__)

Place = tuple[int, int]  # round, and number of the first local update
_LOST = "the optimiser begins anew"


@dataclass(frozen=True)
class OptimiserStates:
    """The states of one run, in a directory."""

    folder: Path

    @classmethod
    def of(cls, folder: str, run: str) -> OptimiserStates:
        """The states of a run in the directory of a node."""
        if not folder:
            raise InputError(
                "training.optimiser_state = keep: this node has no directory for it; start it with "
                "camu deploy node, which has --state"
            )
        return cls(Path(folder) / "optimisers" / run)

    def ready(self, job: Job, name_of: Mapping[int, str], round_number: int) -> Job:
        """The job with what its members' optimisers have kept; as it is where none is to be kept.

        What the server does not know of is left alone: that device has not trained in its run.
        """
        if job.states is None:
            return job
        place = (round_number, job.first)
        states = tuple(
            None if mark is None else self._before(name_of[device], place)
            for device, mark in zip(job.members, job.states, strict=True)
        )
        return replace(job, states=states)

    def keep(
        self,
        asked: Job,
        ready: Job,
        trained: Trained,
        name_of: Mapping[int, str],
        round_number: int,
    ) -> Trained:
        """Write what the optimisers keep; the result has marks in its place, None where lost."""
        if asked.states is None or ready.states is None:
            return trained
        place = (round_number, asked.first)
        states = trained.states or (AT_NODE,) * len(asked.members)  # a rule without momentum
        for device, state in zip(asked.members, states, strict=True):
            self._write(name_of[device], place, AT_NODE if state is None else state)
        lost = zip(asked.states, ready.states, strict=True)
        marks = (None if mark is not None and own is None else AT_NODE for mark, own in lost)
        return trained._replace(states=tuple(marks))

    def _before(self, device: str, place: Place) -> Float32 | None:
        """What a device kept before this place; None if that is not here."""
        known = {at: state for at, state in self._read(device).items() if at < place}
        if not known:
            log.warning(
                "device %s: nothing is kept from before round %d; %s", device, place[0] + 1, _LOST
            )
        return known[max(known)] if known else None

    def _write(self, device: str, place: Place, state: Float32) -> None:
        known = {at: own for at, own in self._read(device).items() if at[0] < place[0]}
        last = {max(known): known[max(known)]} if known else {}
        path = self._path(device)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        arrays = {f"{at[0]}.{at[1]}": own for at, own in {**last, place: state}.items()}
        write_sealed_tensors(path, arrays, {})

    def _read(self, device: str) -> dict[Place, Float32]:
        path = self._path(device)
        if not path.exists():
            return {}
        try:
            check_tensors(path, _LOST)
        except CamuError as error:
            log.warning("%s", error)
            return {}
        found = {}
        for name, array in load_file(path).items():
            at, _, first = name.partition(".")
            found[int(at), int(first)] = array
        return found

    def _path(self, device: str) -> Path:
        name = hashlib.sha256(device.encode()).hexdigest()[:32]
        return self.folder / f"{name}.safetensors"
