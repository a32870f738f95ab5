"""The way of a unit's update to the server: encoded, sent, received and checked.

All of it runs on the worker that trained the unit, so that the server is left with a sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float32, Float64, from_decibels, sum_of_squares
from camu.errors import InputError
from camu.learning.job import Trained
from camu.learning.native import noisy_change
from camu.learning.weights import Weights
from camu.planning.codecs import Codec, Raw
from camu.plugins import import_object, is_plugin, user_code
from camu.seeding import Stream, derive
from camu.simulation.attendance import Attendance
from camu.simulation.run import Run, Update

_WATERFALL_DB = 0.023  # Chen et al. 2021


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
    outage_snr_db: float | None
    max_update_norm: float
    keep_trained: bool
    keep_change: bool
    updates: Sequence[Update]  # of the jobs, to be filled in
    snr: Float64  # (jobs,), linear
    scales: Float64  # (jobs,), factors on updates
    codecs: Sequence[Codec]
    memory: Mapping[int, Float32]  # what senders kept of their last updates, by job
    corrupt: Mapping[int, str]  # jobs whose update will be "nan" or "huge"

    def start_of(self, job: int) -> Weights:
        """The model that a job starts from."""
        return self.start if isinstance(self.start, Weights) else self.start[job]

    def __call__(self, job: int, trained: Trained) -> Update:
        """The update of a job, as the server receives it."""
        own = self.updates[job]
        own.loss, own.lost = trained.loss, self.lost(job)
        if own.lost:
            return own
        snr, leader, start = float(self.snr[job]), own.leader, self.start_of(job)
        begin, end = start.parameters, trained.weights.parameters
        buffers = trained.weights.buffers - start.buffers
        noise = derive(self.seed, "noise", self.round, leader)
        if type(self.codecs[job]) is Raw and self.scales[job] == 1.0 and job not in self.corrupt:
            update, squares = receive(end, begin, snr, self.uplink, noise)
        else:
            sent, own.memory = self._encoded(job, end - begin, leader)
            if corrupt := self.corrupt.get(job):
                update = sent + np.float32(np.nan if corrupt == "nan" else 1e30)
                squares = sum_of_squares(update)
            else:
                update, squares = receive(sent, None, snr, self.uplink, noise)
        own.fault = refuse(squares, buffers, self.max_update_norm)
        if own.fault is None:
            for array in (update, buffers):
                array.setflags(write=False)
            own.update, own.buffers = update, buffers
            own.trained = trained.weights.copied() if self.keep_trained else None
            own.change = end - begin if self.keep_change else None
        return own

    def lost(self, job: int) -> str:
        """Why the update of a job does not arrive; empty: it does."""
        snr = float(self.snr[job])
        if in_outage(snr, self.outage_snr_db):
            return "outages"
        if self.uplink == "packet":
            draw = (
                derive(self.seed, "packet", self.round, self.updates[job].leader).numpy().random()
            )
            if draw < packet_error(snr):
                return "lost_packets"
        return ""

    def _encoded(self, job: int, update: Float32, leader: int) -> tuple[Float32, Float32 | None]:
        """What is sent, and what the sender keeps for its next update."""
        if self.scales[job] != 1.0:
            update = np.float32(self.scales[job]) * update
        codec = self.codecs[job]
        if type(codec) is Raw:
            return update, None
        stream = derive(self.seed, "codec", self.round, leader)
        return encode(codec, update, self.memory.get(job), stream)


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
    keep_change: bool,
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
        outage_snr_db=config.radio.outage_snr_db,
        max_update_norm=config.training.max_update_norm,
        keep_trained=keep_trained,
        keep_change=keep_change,
        updates=[
            Update(number, run.round, leader=unit.leader)
            for number, unit in attendance.units.items()
        ],
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


def receive(
    model: Float32, start: Float32 | None, snr: float, uplink: str, stream: Stream
) -> tuple[Float32, float]:
    """The update as the base station reads it, at this linear SNR, and the sum of its squares.

    What is sent is the change of a model since its start, or an update if `start` is None.

    `update`: the leader sends the update scaled to unit power, so its noise relative to the update
    is 1/sqrt(SNR). `weights`: the leader sends raw weights, so the noise of standard deviation
    1/sqrt(SNR) per weight is the same however small the update is (as printed in Appendix I).
    `digital`: bits arrive without error; so they do under `packet` where the update is not lost.
    Otherwise `uplink` names the user's own function
    (update, snr, generator) -> update, with numpy's random generator of this uplink and round.
    """
    if uplink in ("update", "weights"):
        scale = 1.0 / math.sqrt(snr) if snr else math.inf
        return noisy_change(model, start, scale, uplink == "update", stream)
    update = model if start is None else model - start
    if is_plugin(uplink):
        update = _own_uplink(update, snr, uplink, stream)
    return update, sum_of_squares(update)


def _own_uplink(update: Float32, snr: float, name: str, stream: Stream) -> Float32:
    function = import_object(name, "radio.uplink")
    with user_code(f"radio.uplink = {name}", function, "(update, snr, generator)"):
        received = function(update.copy(), snr, stream.numpy())
    array = np.asarray(received)
    if array.shape != update.shape or array.dtype.kind != "f":
        raise InputError(
            f"radio.uplink = {name}: it returned {array.dtype} of shape {array.shape}; return the "
            f"received update, floats of shape {update.shape}"
        )
    return array.astype(np.float32)


def in_outage(snr: float, outage_snr_db: float | None) -> bool:
    """Whether an uplink at this linear SNR fails."""
    return outage_snr_db is not None and 10.0 * np.log10(snr) < outage_snr_db


def packet_error(snr: float) -> float:
    """Probability that an update is lost: 1 - exp(-m (I + N) / (p g)), Chen et al. 2021, eq. (7).

    m is the waterfall threshold, 0.023 dB, and the linear SNR is p g / (I + N).
    """
    return -math.expm1(-float(from_decibels(_WATERFALL_DB)) / snr) if snr else 1.0


def refuse(squares: float, buffers: Float32, limit: float) -> str | None:
    """Why an update with this sum of squares must not touch the model, or None."""
    norm = math.sqrt(squares)
    # Squares of single precision are finite in double precision, and so is their sum.
    if not (math.isfinite(norm) and np.isfinite(buffers).all()):
        return "it has entries that are not finite"
    if norm > limit:
        return f"its norm {norm:.3g} exceeds training.max_update_norm = {limit:g}"
    return None
