"""The way of a unit's update to the server: encoded, sent, received and checked.

All of it runs on the worker that trained the unit, so that the server is left with a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.arrays import Float32, Float64
from camu.errors import InputError
from camu.learning.job import Trained
from camu.learning.sums import sum_of_squares
from camu.learning.weights import Weights
from camu.planning.codecs import Codec, Raw
from camu.plugins import user_code
from camu.seeding import Stream, derive
from camu.simulation.channel import in_outage, packet_error, receive, receive_change, refuse
from camu.simulation.faults import Attendance
from camu.simulation.run import Run


@dataclass(frozen=True, eq=False)
class Received:
    """The outcome of a unit's round, as the server has it."""

    loss: float  # mean training loss over its steps
    lost: str = ""  # why the update did not arrive: "outages", "lost_packets"; "": it did
    fault: str | None = None  # why the server refuses the update
    update: Float32 | None = None  # change of the parameters; None: lost or refused
    buffers: Float32 | None = None  # change of the buffers, noise-free
    memory: Float32 | None = None  # what the sender keeps for its next update
    trained: Weights | None = None  # the unit's own model, where it was asked for


@dataclass(frozen=True, eq=False)
class Delivery:
    """Delivers the results of one round's jobs; jobs count from 0.

    What happens to a job depends on the seed, the round and its leader alone, so that any worker
    may deliver it. A value of plain data, so that it can be sent to other processes.
    """

    start: Weights | Sequence[Weights]  # the model that all jobs start from, or one for each
    seed: int
    round: int
    uplink: str
    waterfall_db: float
    outage_snr_db: float | None
    max_update_norm: float
    keep_trained: bool
    leaders: npt.NDArray[np.int64]  # (jobs,)
    snr: Float64  # (jobs,), linear
    scales: Float64  # (jobs,), factors on updates
    codecs: Sequence[Codec]
    memory: Mapping[int, Float32]  # what senders kept of their last updates, by job
    corrupt: Mapping[int, str]  # jobs whose update will be "nan" or "huge"

    def __call__(self, job: int, trained: Trained) -> Received:
        """The outcome of a job."""
        snr, leader = float(self.snr[job]), int(self.leaders[job])
        if in_outage(snr, self.outage_snr_db):
            return Received(trained.loss, lost="outages")
        if self.uplink == "packet":
            draw = derive(self.seed, "packet", self.round, leader).numpy().random()
            if draw < packet_error(snr, self.waterfall_db):
                return Received(trained.loss, lost="lost_packets")
        start = self.start if isinstance(self.start, Weights) else self.start[job]
        begin, end = start.parameters, trained.weights.parameters
        buffers = trained.weights.buffers - start.buffers
        noise, kept = derive(self.seed, "noise", self.round, leader), None
        if type(self.codecs[job]) is Raw and self.scales[job] == 1.0 and job not in self.corrupt:
            update, squares = receive_change(end, begin, snr, self.uplink, noise)
        else:
            sent, kept = self._encoded(job, end - begin, leader)
            update = self._received(job, sent, snr, noise)
            squares = sum_of_squares(update)
        if fault := refuse(squares, buffers, self.max_update_norm):
            return Received(trained.loss, fault=fault, memory=kept)
        for array in (update, buffers):
            array.setflags(write=False)
        model = trained.weights if self.keep_trained else None
        return Received(trained.loss, "", None, update, buffers, kept, model)

    def _encoded(self, job: int, update: Float32, leader: int) -> tuple[Float32, Float32 | None]:
        """What is sent, and what the sender keeps for its next update."""
        if self.scales[job] != 1.0:
            update = np.float32(self.scales[job]) * update
        codec = self.codecs[job]
        if type(codec) is Raw:
            return update, None
        stream = derive(self.seed, "codec", self.round, leader)
        return encode(codec, update, self.memory.get(job), stream)

    def _received(self, job: int, sent: Float32, snr: float, noise: Stream) -> Float32:
        corrupt = self.corrupt.get(job)
        if corrupt == "nan":
            return np.full_like(sent, np.nan)
        if corrupt == "huge":
            return sent + np.float32(1e30)
        return receive(sent, snr, self.uplink, noise)


def encode(
    codec: Codec, update: Float32, memory: Float32 | None, stream: Stream
) -> tuple[Float32, Float32 | None]:
    """The encoded update of a unit and the memory of its sender; a wrong answer is refused."""
    name = f"codec {type(codec).__name__}"
    with user_code(name, codec):
        sent, kept = codec.encode(update, memory, stream)
    for what, array in (("an update", sent), ("a memory", kept)):
        if what == "a memory" and array is None:
            continue
        found = np.asarray(array)
        if found.shape != update.shape or found.dtype.kind != "f":
            raise InputError(
                f"{name}: encode() returned {what} of {found.dtype} and shape {found.shape}; it "
                f"must be floats of shape {update.shape}"
            )
    return np.asarray(sent, np.float32), None if kept is None else np.asarray(kept, np.float32)


def delivery_of(
    run: Run,
    attendance: Attendance,
    gain: Float64,
    noise_watts: float,
    start: Weights | Sequence[Weights],
    keep_trained: bool,
) -> Delivery:
    """What happens to the updates of this round's units, at these uplink gains (K,)."""
    config = run.world.config
    units = list(attendance.units.values())
    leaders = np.array([unit.leader for unit in units])
    power_watts = np.array([unit.power_watts for unit in units])
    return Delivery(
        start=start,
        seed=run.world.seed,
        round=run.round,
        uplink=config.radio.uplink,
        waterfall_db=config.radio.waterfall_db,
        outage_snr_db=config.radio.outage_snr_db,
        max_update_norm=config.training.max_update_norm,
        keep_trained=keep_trained,
        leaders=leaders,
        snr=power_watts * gain[leaders] / noise_watts,
        scales=np.array([unit.update_scale for unit in units]),
        codecs=[unit.codec for unit in units],
        memory={
            job: run.memory[unit.leader]
            for job, unit in enumerate(units)
            if unit.leader in run.memory
        },
        corrupt={
            job: attendance.corrupt[number]
            for job, number in enumerate(attendance.units)
            if number in attendance.corrupt
        },
    )
