"""An answer to problem P2, with the lower bound that certifies it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from camu.allocation.horizon import HorizonProblem
from camu.allocation.horizon_prices import Prices
from camu.arrays import Float64, Int64


@dataclass(frozen=True, eq=False)
class HorizonAnswer:
    """Rounds, updates, powers and frequencies.

    Attributes:
        solver: name of the solver.
        objective: the bound on the gap at the end of the run.
        lower_bound: no feasible answer has a smaller one.
        rounds: T.
        updates: N_c.
        power_watts: p_c.
        ready_seconds: m, when all clusters of a round are ready to send.
        cpu_hz: f_k of every device.
        energy_joules: of the whole run.
        run_seconds: of the whole run.
        joule_price: how much the objective falls per extra joule, at this T.
        second_price: how much it falls per extra second.
        seconds: wall time of the solver.
        binding: the keys of the budgets and caps that hold with equality.
        details: results of this solver alone.
    """

    solver: str
    objective: float
    lower_bound: float
    rounds: int
    updates: Int64
    power_watts: Float64
    ready_seconds: float
    cpu_hz: Float64
    energy_joules: float
    run_seconds: float
    joule_price: float
    second_price: float
    seconds: float
    binding: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        problem: HorizonProblem,
        solver: str,
        rounds: int,
        updates: ArrayLike,
        power_watts: ArrayLike,
        ready_seconds: float,
        *,
        lower_bound: float = 0.0,
        prices: Prices | None = None,
        seconds: float = 0.0,
        details: Mapping[str, Any] | None = None,
    ) -> HorizonAnswer:
        """These decisions, with what they cost and what the bound says about them."""
        counts, power = np.asarray(updates, np.int64), np.asarray(power_watts, np.float64)
        joules = rounds * float(problem.round_joules(counts, power, ready_seconds))
        spent = rounds * float(problem.round_seconds(power, ready_seconds))
        objective = float(problem.objective(rounds, counts, power))
        growth = 0.0
        if prices is not None:
            descent, error = problem.recursion(counts, power)
            growth = problem.bend(rounds, float(descent), float(error)).growth / rounds
        binding = [
            name
            for name, used in (
                ("energy_joules", joules / problem.energy_joules),
                ("seconds", spent / problem.seconds),
                ("max_power_watts", float((power / problem.max_power_watts).max())),
                ("max_updates", float((counts / problem.max_updates).max())),
                ("max_rounds", rounds / problem.max_rounds),
            )
            if used >= 1 - 1e-5
        ]
        return cls(
            solver=solver,
            objective=objective,
            lower_bound=min(lower_bound, objective),
            rounds=rounds,
            updates=counts,
            power_watts=power,
            ready_seconds=ready_seconds,
            cpu_hz=problem.cpu_hz(counts, ready_seconds),
            energy_joules=joules,
            run_seconds=spent,
            joule_price=0.0 if prices is None else growth * prices.joule,
            second_price=0.0 if prices is None else growth * prices.second,
            seconds=seconds,
            binding=tuple(binding),
            details=details or {},
        )

    @property
    def gap(self) -> float:
        """The share of the objective that a better answer could still save."""
        return max(0.0, 1.0 - self.lower_bound / self.objective)

    def to_dict(self) -> dict[str, Any]:
        """The answer as `camu allocate --json` prints it."""
        return {
            "kind": "P2",
            "solver": self.solver,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "rounds": self.rounds,
            "ready_seconds": self.ready_seconds,
            "energy_joules": self.energy_joules,
            "run_seconds": self.run_seconds,
            "joule_price": self.joule_price,
            "second_price": self.second_price,
            "seconds": self.seconds,
            "binding": list(self.binding),
            **self.details,
            "clusters": [
                {"power_watts": power, "updates": updates}
                for power, updates in zip(
                    self.power_watts.tolist(), self.updates.tolist(), strict=True
                )
            ],
            "cpu_hz": self.cpu_hz.tolist(),
        }
