"""Over-the-air aggregation: units that transmit at once, and one rule for their amplitudes.

What such units send adds up on its way. The server receives the sum, with noise that is added once,
in the time of one update however many send. A complex symbol carries two real numbers; each unit
divides by its own channel, so that its numbers arrive with the amplitude that the rule gives them.
Signals are received with one antenna, because the combining of several would suit one unit only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from camu.arrays import Float32, Float64, Int64, sum_of_squares
from camu.planning.codecs import Encoded
from camu.plugins import import_object, importable_name
from camu.seeding import Stream
from camu.world.links import Links

TOGETHER = "together"  # the access of a plan whose units transmit at once


class Signal(NamedTuple):
    """What each of those sends that transmit at once."""

    symbols: int  # complex, all at the same time
    report_bits: int  # one after the other before that, at the rates of digital messages


@dataclass(frozen=True, eq=False)
class Senders:
    """The units of a burst as the server knows them before it, one array entry per unit."""

    weight: Float64  # w_k of the plan; together they may be less than 1
    power_watts: Float64  # P_k, the largest mean power over the burst
    gain: Float64  # g_k = |h_k|^2 in this round, at one antenna
    mean_gain: Float64  # without fading
    noise_watts: float  # sigma^2 in the band
    symbols: int  # complex symbols of a burst
    leaders: Int64  # the devices that send
    links: Links
    round: int

    def only(self, rows: npt.NDArray[np.bool_] | Int64) -> Senders:
        """Some of these units."""
        names = ("weight", "power_watts", "gain", "mean_gain", "leaders")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


class Amplitudes(NamedTuple):
    """How the signals of a burst arrive; estimates are these sums divided by the units' weight."""

    factors: Float64  # b_k: the sum has b_k times the numbers of unit k
    noise: float  # standard deviation of the noise on every real number of the sum
    power_watts: Float64  # mean power over the burst with which each unit sends, at most P_k


class Reception(NamedTuple):
    """What the server has of a burst."""

    total: Float64  # the sum of b_k times the numbers that each unit sent, without noise
    weight: float  # the sum of the weights w_k of the units that sent
    amplitudes: Amplitudes
    noise_stream: Stream

    def noisy(self) -> Float64:
        """The sum with noise on every number."""
        if not self.amplitudes.noise > 0:
            return self.total
        draws = self.noise_stream.numpy().standard_normal(len(self.total))
        return np.asarray(self.total + self.amplitudes.noise * draws)


@dataclass(frozen=True)
class Air:
    """A rule of amplitudes: all units aligned, as loud as the weakest of them can be.

    Unit k arrives with amplitude sqrt(eta) w_k, where eta = min_k n P_k g_k / (w_k^2 ||s_k||^2) for
    n complex symbols: exactly one unit sends with all its power. The error of the weighted mean is
    E||e||^2 = max_k w_k^2 ||s_k||^2 sigma^2 / (P_k g_k).

    Other rules are subclasses: frozen dataclasses of numbers, which replace some of the methods.
    """

    combines: ClassVar[bool] = False  # whether it combines antennas by the exact channels
    # A unit reports the norm of what it sends, and that it will; 0: nobody needs to know.
    report_bits: ClassVar[int] = 64

    def symbols(self, parameters: int) -> int:
        """Complex symbols of a burst for a model of so many parameters."""
        return math.ceil(parameters / 2)

    def signal(self, parameters: int) -> Signal:
        """What each unit sends for a model of so many parameters."""
        return Signal(self.symbols(parameters), self.report_bits)

    def silent(self, senders: Senders) -> npt.NDArray[np.bool_]:
        """The units that train but do not send in this round."""
        return np.zeros(len(senders.weight), dtype=bool)

    def encode(self, update: Float32, memory: Float32 | None, stream: Stream) -> Encoded:
        """The numbers that a unit sends, (q,) or others, and what it keeps for its next update."""
        return update, None

    def squares(self, sent: Float32) -> float:
        """||s_k||^2: the sum of squares of the real numbers that a unit sends before scaling."""
        return sum_of_squares(sent)

    def amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        """How loud each unit is, given the squares of what they send."""
        return aligned(senders, squares)

    def true_over_known(self, senders: Senders) -> npt.NDArray[np.complex128]:
        """h_k / h'_k, what arrives of each unit over what it means; h' are estimated channels."""
        own = senders
        known = own.links.known_channels(own.round)[own.leaders, 0]
        return np.asarray(own.links.channels(own.round)[own.leaders, 0] / known)

    def estimate(self, received: Reception) -> Float64:
        """What the server takes for the weighted mean of the updates (q,)."""
        return np.asarray(received.noisy() / received.weight)


ALIGNED = Air()


def aligned(senders: Senders, squares: Float64) -> Amplitudes:
    """Units arrive with amplitudes in proportion to their weights; the weakest sends at P_k."""
    own = senders
    need = own.weight**2 * squares / (own.symbols * own.power_watts * own.gain)  # of 1 / eta
    worst = float(need.max())
    power = own.power_watts * (need / worst) if worst > 0 else np.zeros(len(need))
    return Amplitudes(own.weight, math.sqrt(own.noise_watts * worst / 2), power)


@dataclass(frozen=True)
class Truncated(Air):
    """Aligned units; those whose channel is below a share of its mean gain are silent."""

    threshold: float = 0.0

    def silent(self, senders: Senders) -> npt.NDArray[np.bool_]:
        return np.asarray(senders.gain < self.threshold * senders.mean_gain)


def air_to_dict(air: Air) -> dict[str, Any]:
    """The rule as plain data: `module:Class`, and its fields."""
    kind = type(air)
    return {"name": f"{importable_name(kind.__module__)}:{kind.__name__}", **asdict(air)}


def air_from_dict(data: Mapping[str, Any] | None) -> Air | None:
    """The rule from plain data."""
    if data is None:
        return None
    kind = import_object(str(data["name"]), "air")
    air: Air = kind(**{key: value for key, value in data.items() if key != "name"})
    return air
