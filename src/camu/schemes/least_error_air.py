"""Power control over the air that makes the error of the sum least."""

import math
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64
from camu.planning.air import Air, Amplitudes, Senders
from camu.schemes.contract import Plan, World
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class LeastError(Air):
    """Weak units send with all their power, strong ones invert their channels.

    This minimises sum_k ||s_k||^2 (b_k - w_k)^2 / n + sigma^2 / eta, the error of one symbol if the
    units' numbers are uncorrelated.
    """

    def amplitudes(self, senders: Senders, squares: Float64) -> Amplitudes:
        own = senders
        wanted = own.weight * np.sqrt(squares / own.symbols)  # amplitude of a symbol in the mean
        received = own.power_watts * own.gain
        if not wanted.any():
            return Amplitudes(own.weight, 0.0, np.zeros(len(wanted)))
        size = np.sqrt(received)
        ratio = np.divide(size, wanted, out=np.full_like(size, np.inf), where=wanted > 0)
        order = np.argsort(ratio, kind="stable")
        noise = own.noise_watts + np.cumsum(received[order])
        root = float((noise / np.cumsum((wanted * size)[order])).min())  # sqrt(eta)
        power = np.minimum(own.power_watts, (wanted * root) ** 2 / own.gain)
        weak = size < wanted * root * (1 - 1e-12)  # up to rounding
        factors = own.weight.copy()
        factors[weak] *= size[weak] / (wanted[weak] * root)
        return Amplitudes(factors, math.sqrt(own.noise_watts / 2) / root, power)


@dataclass(frozen=True)
class LeastErrorAir(LocalSgd):
    """Devices transmit at once; powers minimise bias and noise of the sum together."""

    name = "least-error-air"
    family = "over the air"
    citation = (
        "Cao, Zhu, Xu and Huang, Optimized power control for over-the-air computation in fading "
        "channels, TWC 2020"
    )
    simplified = ["power is limited in every round; their limit on its average is left out"]
    choices = [
        "signals are updates of their own sizes with weights by data, not of unit variance",
        "updates count as uncorrelated, as in the analysis; weak devices then count for less",
    ]

    def plan(self, world: World) -> Plan:
        return super().plan(world).over_the_air(LeastError())
