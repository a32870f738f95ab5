"""The way of a unit's update to the server: encoded, sent, received and checked.

All of it runs on the worker that trained the unit, so that the server is left with a sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camu.arrays import Float32, Float64, sum_of_squares
from camu.config import Config
from camu.errors import InputError
from camu.learning.job import Trained
from camu.learning.native import noisy_change
from camu.learning.weights import Weights
from camu.planning.air import Air
from camu.planning.codecs import Codec, Raw
from camu.planning.packets import drawn_tries, packet_error
from camu.planning.unit import Unit
from camu.plugins import import_object, is_plugin, user_code
from camu.seeding import Stream, derive
from camu.simulation.attendance import Attendance
from camu.simulation.run import Run, Update


@dataclass(frozen=True, eq=False)
class Delivery:
    """Delivers the results of one round's jobs; jobs count from 0.

    What happens to a job depends on the seed, the round and its leader alone, so that any worker
    may deliver it. A value of plain data, so that it can be sent to other processes.
    """

    start: Weights | Sequence[Weights]  # the model that all jobs start from, or one for each
    config: Config
    round: int
    keep_trained: bool
    keep_change: bool
    updates: Sequence[Update]  # of the jobs, to be filled in
    units: Sequence[Unit]  # of the jobs
    snr: Float64  # (jobs,), linear
    memory: Mapping[int, Float32]  # what senders kept of their last updates, by job
    corrupt: Mapping[int, str]  # jobs whose update will be "nan" or "huge"
    air: Air | None = None  # the rule by which all jobs send at once; None: each on its own
    silent: frozenset[int] = frozenset()  # jobs whose unit does not send then
    outage: npt.NDArray[np.bool_] | None = None  # (jobs,) rates that are too high; None: none is

    def start_of(self, job: int) -> Weights:
        """The model that a job starts from."""
        return self.start if isinstance(self.start, Weights) else self.start[job]

    def __call__(self, job: int, trained: Trained) -> Update:
        """The update of a job, as the server receives it."""
        own, unit, uplink = self.updates[job], self.units[job], self.config.radio.uplink
        own.loss, own.lost, own.states = trained.loss, self.lost(job), trained.states
        if own.lost:
            return own
        snr, start = float(self.snr[job]), self.start_of(job)
        begin, end = start.parameters, trained.weights.parameters
        buffers = trained.weights.buffers - start.buffers
        if self.air is not None:
            own.update, own.squares, own.buffers = *self._sent(job, end - begin), buffers
            own.change = self._kept_change(trained, end - begin)
            return own
        noise = derive(self.config.run.seed, "noise", self.round, unit.leader)
        if type(unit.codec) is Raw and unit.update_scale == 1.0 and job not in self.corrupt:
            update, squares = receive(end, begin, snr, uplink, noise)
        else:
            sent, own.memory = self._encoded(job, end - begin)
            if corrupt := self.corrupt.get(job):
                update = sent + np.float32(np.nan if corrupt == "nan" else 1e30)
                squares = sum_of_squares(update)
            else:
                update, squares = receive(sent, None, snr, uplink, noise)
        own.fault = refuse(squares, buffers, self.config.training.max_update_norm)
        if own.fault is None:
            for array in (update, buffers):
                array.setflags(write=False)
            own.update, own.buffers = update, buffers
            own.trained = trained.weights.copied() if self.keep_trained else None
            own.change = self._kept_change(trained, end - begin)
        return own

    def _kept_change(self, trained: Trained, change: Float32) -> Float32 | None:
        """What the scheme's `keep` is shown, if it has one."""
        if not self.keep_change:
            return None
        return change if trained.own is None else trained.own

    def _sent(self, job: int, update: Float32) -> tuple[Float32, float]:
        """What a job sends over the air, clean, and the sum of squares of its numbers."""
        assert self.air is not None
        unit = self.units[job]
        if unit.update_scale != 1.0:
            update = np.float32(unit.update_scale) * update
        stream = derive(self.config.run.seed, "codec", self.round, unit.leader)
        with user_code(f"air {type(self.air).__name__}", self.air):
            sent, self.updates[job].memory = self.air.encode(update, self.memory.get(job), stream)
            if corrupt := self.corrupt.get(job):
                sent = sent + np.float32(np.nan if corrupt == "nan" else 1e30)
            return sent, self.air.squares(sent)

    def lost(self, job: int) -> str:
        """Why the update of a job does not arrive; empty: it does."""
        if self.air is not None:
            return "truncated" if job in self.silent else ""
        snr, radio = float(self.snr[job]), self.config.radio
        too_fast = self.outage is not None and bool(self.outage[job])
        if too_fast or in_outage(snr, radio.outage_snr_db):
            return "outages"
        if radio.uplink != "packet":
            return ""
        leader, error = self.units[job].leader, packet_error(np.array([snr]))
        tries = drawn_tries(self.config, self.round, leader, error)
        return "lost_packets" if np.isinf(tries[0]) else ""

    def _encoded(self, job: int, update: Float32) -> tuple[Float32, Float32 | None]:
        """What is sent, and what the sender keeps for its next update."""
        unit = self.units[job]
        if unit.update_scale != 1.0:
            update = np.float32(unit.update_scale) * update
        if type(unit.codec) is Raw:
            return update, None
        stream = derive(self.config.run.seed, "codec", self.round, unit.leader)
        return encode(unit.codec, update, self.memory.get(job), stream)


def encode(
    codec: Codec, update: Float32, memory: Float32 | None, stream: Stream
) -> tuple[Float32, Float32 | None]:
    """The encoded update of a unit and the memory of its sender; a wrong answer is refused."""
    name = f"codec {type(codec).__name__}"
    with user_code(name, codec):
        sent, kept = codec.encode(update, memory, stream)
    coded = _floats(sent, update, f"{name}: encode() returned an update,")
    if kept is None:
        return coded, None
    return coded, _floats(kept, update, f"{name}: encode() returned a memory,")


def _floats(answer: object, update: Float32, what: str) -> Float32:
    """The answer of a user's code, which must be floats of the shape of the update."""
    found = np.asarray(answer)
    if found.shape != update.shape or found.dtype.kind != "f":
        raise InputError(
            f"{what} {found.dtype} of shape {found.shape}; return floats of shape {update.shape}"
        )
    return np.asarray(found, np.float32)


def delivery_of(
    run: Run,
    attendance: Attendance,
    snr: Float64,
    start: Weights | Sequence[Weights],
    keep_trained: bool,
    keep_change: bool,
) -> Delivery:
    """What happens to the updates of this round's units, at these SNRs of their uplinks."""
    units = list(attendance.units.values())
    return Delivery(
        start=start,
        config=run.world.config,
        round=run.round,
        keep_trained=keep_trained,
        keep_change=keep_change,
        updates=[
            Update(number, run.round, leader=unit.leader, members=unit.members)
            for number, unit in attendance.units.items()
        ],
        units=units,
        snr=snr,
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

    `analog`, `hybrid`: the leader sends the update scaled to unit power, so its noise relative to
    the update is 1/sqrt(SNR). `hybrid-weights`: the leader sends raw weights, so the noise of
    standard deviation 1/sqrt(SNR) per weight is the same however small the update is (as printed in
    Appendix I).
    `digital`: bits arrive without error; so they do under `packet` where the update is not lost.
    Otherwise `uplink` names the user's own function
    (update, snr, generator) -> update, with numpy's random generator of this uplink and round.
    """
    if uplink in ("analog", "hybrid", "hybrid-weights"):
        scale = 1.0 / math.sqrt(snr) if snr else math.inf
        return noisy_change(model, start, scale, uplink != "hybrid-weights", stream)
    update = model if start is None else model - start
    if is_plugin(uplink):
        update = _own_uplink(update, snr, uplink, stream)
    return update, sum_of_squares(update)


def _own_uplink(update: Float32, snr: float, name: str, stream: Stream) -> Float32:
    function = import_object(name, "radio.uplink")
    with user_code(f"radio.uplink = {name}", function, "(update, snr, generator)"):
        received = function(update.copy(), snr, stream.numpy())
    return _floats(received, update, f"radio.uplink = {name}: it returned").copy()


def in_outage(snr: float, outage_snr_db: float | None) -> bool:
    """Whether an uplink at this linear SNR fails."""
    return outage_snr_db is not None and 10.0 * np.log10(snr) < outage_snr_db


def refuse(squares: float, buffers: Float32, limit: float) -> str | None:
    """Why an update with this sum of squares must not touch the model, or None."""
    norm = math.sqrt(squares)
    # Squares of single precision are finite in double precision, and so is their sum.
    if not (math.isfinite(norm) and np.isfinite(buffers).all()):
        return "it has entries that are not finite"
    if norm > limit:
        return f"its norm {norm:.3g} exceeds training.max_update_norm = {limit:g}"
    return None
