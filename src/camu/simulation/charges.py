"""Books what units spend: in the ledger of the run, and from the batteries of their devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from camu.planning.batteries import spending_of
from camu.planning.costs import Costs, Spending
from camu.planning.unit import Unit
from camu.simulation.run import Run, Update

_WHOLE = 1 - 1e-9  # of what a device needs: less is not rounding


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

    def rest(self, busy: Iterable[Update]) -> None:
        """Book what all devices draw while they rest, since the last call (`run.every_seconds`).

        Members of busy units pay for idle power instead. A device that cannot pay is empty.
        """
        run = self.run
        if run.world.config.run.every_seconds is None:
            return
        watts = run.world.devices.resting_watts.copy()
        for update in busy:
            watts[list(update.members)] = 0.0
        needed = watts * run.batteries.since(run.clock.now_seconds)
        joules = run.batteries.rest(watts, run.clock.now_seconds)
        everyone = np.arange(len(watts))
        run.ledger.book_idle(everyone, joules)
        dry = everyone[joules < needed * _WHOLE]
        run.batteries.empty[dry] = True
        run.batteries.mark(dry, run.round)
