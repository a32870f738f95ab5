"""Books what units spend: in the ledger of the run, and from the batteries of their devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from camu.planning.batteries import spending_of
from camu.planning.costs import Costs, Spending
from camu.planning.unit import Unit
from camu.simulation.run import Run, Update


class Charges:
    """The joules of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.spending: tuple[Costs, Spending] | None = None  # of these costs

    def book(self, units: Mapping[int, Unit], costs: Costs, started: npt.NDArray[np.bool_]) -> None:
        """Book the energy of the units that started, in total and per device."""
        own = units.values()
        if self.spending is None or self.spending[0] is not costs:
            self.spending = costs, spending_of(units, costs)
        spent = self.run.ledger.book(
            np.array([float(unit.local_updates) for unit in own]),
            costs,
            self.spending[1],
            [len(unit.members) for unit in own],
            started,
            self.run.world.config.radio.bs_power_watts,
        )
        self.run.batteries.draw(*spent)

    def book_idle(self, found: Sequence[Update], now: float) -> None:
        """Book the idle power of these units from their starts until now."""
        idle_watts = self.run.world.devices.idle_watts
        if not found or not idle_watts.any():
            return
        devices = np.concatenate([np.array(one.members, dtype=np.int64) for one in found])
        seconds = np.repeat(
            [now - one.started_seconds for one in found], [len(one.members) for one in found]
        )
        joules = idle_watts[devices] * seconds
        self.run.ledger.book_idle(devices, joules)
        self.run.batteries.draw(devices, joules)
