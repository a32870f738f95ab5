"""OBDA: one bit per parameter over the air; the server takes the majority."""

from dataclasses import dataclass, replace

import numpy as np

from camu.arrays import Float32, Float64
from camu.planning.air import Amplitudes, Reception, Senders, Truncated, aligned
from camu.planning.codecs import Encoded
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import NonNegative, Plan, Positive, Scheme, World
from camu.seeding import Stream


@dataclass(frozen=True)
class Majority(Truncated):
    """Units send signs, two per symbol as 4-QAM, all received equally loud.

    With a difference of S votes, and received power rho, the majority is read wrongly with
    probability Q(|S| sqrt(rho / sigma^2)).
    """

    report_bits = 0  # all signs have one norm
    step: float = 1e-3  # that the server takes in the direction of the majority

    def encode(self, update: Float32, memory: Float32 | None, stream: Stream) -> Encoded:
        return _signs(update).astype(np.float32), None

    def amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        return aligned(replace(senders, weight=np.ones(len(squares))), squares)

    def estimate(self, received: Reception) -> Float64:
        return self.step * _signs(received.noisy())


def _signs(numbers: Float32 | Float64) -> Float64:
    """The signs; that of 0 is 1, and nan stays what it is."""
    return np.where(np.isnan(numbers), np.nan, np.where(numbers < 0, -1.0, 1.0))


@dataclass(frozen=True)
class OneBitAir(Scheme):
    """Devices transmit the signs of their updates at once; the model follows the majority."""

    step: Positive = 1e-3
    truncation: NonNegative = 0.2
    name = "one-bit-air"
    family = "over the air"
    citation = (
        "Zhu, Du, Gunduz and Huang, One-bit over-the-air aggregation for communication-efficient "
        "federated edge learning, TWC 2021"
    )
    simplified = [
        "one coefficient of flat fading per device and round; the original fades per sub-channel",
        "the broadcast costs as much as that of a model; the original sends one bit per parameter",
    ]
    choices = [
        "power is limited in every round, not on average over the fading",
        "sign(0) is 1; `step` is the rate of the server",
    ]

    def plan(self, world: World) -> Plan:
        groups = single_devices(world)
        plan = make_plan(self, groups, [1 / len(groups)] * len(groups))
        return plan.over_the_air(Majority(self.truncation, self.step))
