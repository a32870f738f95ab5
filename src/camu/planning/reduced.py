"""Units without some of their members: the others go on, under another leader if need be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64
from camu.planning.costs import in_a_row
from camu.planning.unit import Unit


def with_members(unit: Unit, there: Sequence[int], uplink_gain: Float64) -> Unit:
    """A unit with some of its members; the best uplink leads if the leader is missing.

    The weights of the missing members are shared among the others.
    """
    share = dict(zip(unit.members, unit.member_weights, strict=True))
    total = sum(share[device] for device in there)
    weights = (
        tuple(share[device] / total for device in there)
        if total > 0
        else (1.0 / len(there),) * len(there)
    )
    leader = unit.leader
    if leader not in there:
        leader = max(there, key=lambda device: uplink_gain[device])
    return replace(
        unit, members=tuple(there), member_weights=weights, leader=leader, slow_down=None
    )


class Reduction:
    """Takes devices out of units; a unit that lost the same members before is not made again."""

    def __init__(self, uplink_gain: Float64) -> None:
        self.uplink_gain = uplink_gain
        self._made: dict[int, tuple[Unit, bytes, Unit]] = {}

    def without(self, units: Mapping[int, Unit], away: npt.NDArray[np.bool_]) -> Mapping[int, Unit]:
        """These units without the devices that are away (K,); a unit without members is left out.

        Only units that lose a member cost time in Python.
        """
        if not units or not away.any():
            return units
        numbers = list(units)
        flat, starts = in_a_row([unit.members for unit in units.values()])
        gone = away[flat]
        lost = np.add.reduceat(gone, starts, dtype=np.int64)
        if not lost.any():
            return units
        ends = np.append(starts[1:], len(flat))
        found = dict(units)
        for place in np.flatnonzero(lost).tolist():
            number, mask = numbers[place], gone[starts[place] : ends[place]]
            if mask.all():
                del found[number]
            else:
                found[number] = self._one(number, units[number], mask)
        return found

    def _one(self, number: int, unit: Unit, gone: npt.NDArray[np.bool_]) -> Unit:
        made, key = self._made.get(number), gone.tobytes()
        if made is not None and made[0] is unit and made[1] == key:
            return made[2]
        there = [device for device, out in zip(unit.members, gone, strict=True) if not out]
        reduced = with_members(unit, there, self.uplink_gain)
        self._made[number] = (unit, key, reduced)
        return reduced
