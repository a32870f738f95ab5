"""Scheduling policies of a cell: in turn, by the best channel, or by the best for each device."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64
from camu.planning.dvfs import full_speed_costs
from camu.schemes.contract import CountFromTwo, PositiveShare, State, View
from camu.schemes.local_sgd import LocalSgd

_CITATION = (
    "Yang, Liu, Quek, Poor, Scheduling policies for federated learning in wireless networks, IEEE "
    "TCOM 2020"
)
_SIMPLIFIED = ["no interference from other cells"]


@dataclass(frozen=True)
class RoundRobin(LocalSgd):
    """A share of the devices trains in each round; they take turns by their numbers."""

    share: PositiveShare = 0.5
    name = "round-robin"
    tunable = {"share": (0.1, 1.0, "log")}
    family = "selection"
    citation = _CITATION
    simplified = _SIMPLIFIED
    choices = []

    def select(self, view: View, state: State) -> Iterable[int]:
        units = len(view.plan.units)
        first = state.setdefault("first", 0)
        turn = sorted(view.powered, key=lambda unit: (unit - first) % units)
        chosen = turn[: _wanted(self.share, view)]
        state["first"] = (chosen[-1] + 1) % units
        return chosen


@dataclass(frozen=True)
class BestChannel(LocalSgd):
    """The share of the devices with the highest rates in this round trains."""

    share: PositiveShare = 0.5
    name = "best-channel"
    tunable = {"share": (0.1, 1.0, "log")}
    family = "selection"
    citation = _CITATION
    simplified = _SIMPLIFIED
    choices = ["without fading the same devices train in every round"]

    def select(self, view: View, state: State) -> Iterable[int]:
        return _highest(_rates(view), _wanted(self.share, view), view)


@dataclass(frozen=True)
class ProportionalFair(LocalSgd):
    """The share of the devices whose rates are highest relative to their mean so far trains."""

    share: PositiveShare = 0.5
    window: CountFromTwo = 20  # t_c, rounds
    name = "proportional-fair"
    tunable = {"share": (0.1, 1.0, "log")}
    family = "selection"
    citation = _CITATION
    simplified = _SIMPLIFIED
    choices = ["the mean rate of a device starts at its rate over its mean channel"]

    def select(self, view: View, state: State) -> Iterable[int]:
        """The highest r_k / R_k; then R_k <- (1 - 1 / t_c) R_k + r_k / t_c, with r_k if chosen."""
        rates = _rates(view)
        mean = state.setdefault("mean", _rates(view, faded=False))
        chosen = _highest(rates / mean, _wanted(self.share, view), view)
        state["mean"] = mean * (1 - 1 / self.window)
        state["mean"][chosen] += rates[chosen] / self.window
        return chosen


def _rates(view: View, faded: bool = True) -> Float64:
    """r_k: the rate of each unit's uplink over the whole band, in this round or without fading."""
    links, leaders = view.world.links, view.plan.column("leader")
    gain = links.uplink_gain * (links.rated_fading(view.round) if faded else 1.0)
    if links.types is not None:
        plan = view.plan
        costs = full_speed_costs(view.world, plan.units, plan.parameters, uplink_gain=gain)
        return np.asarray(plan.column("payload_bits") / costs.uplink_seconds)
    return links.rate_bps(view.plan.column("power_watts"), gain[leaders])


def _wanted(share: float, view: View) -> int:
    return max(1, round(share * len(view.plan.units)))


def _highest(values: Float64, wanted: int, view: View) -> list[int]:
    """The powered units with the highest values; equal ones go by number."""
    able = np.array(view.powered)
    order = able[np.argsort(-values[able], kind="stable")]
    return [int(unit) for unit in order[:wanted]]
