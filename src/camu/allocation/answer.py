"""An answer to problem P1: powers and update counts, with a certificate of their quality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from camu.allocation.problem import Problem
from camu.arrays import Float64, Int64
from camu.notebook import html_table


@dataclass(frozen=True, eq=False)
class Allocation:
    """An answer to P1: powers and extra updates, with a certificate.

    Attributes:
        solver: name of the solver.
        objective: the value that P1 minimises, at this answer.
        lower_bound: no feasible answer has a smaller objective.
        energy_joules: the energy that a round spends.
        seconds: wall time of the solver.
        power_watts: power of each cluster's leader.
        extra_updates: local updates of each cluster beyond the first.
        shadow_price: how much the objective falls per extra joule.
        binding: the keys of the constraints that hold with equality.
        details: results of this solver alone.
    """

    solver: str
    objective: float
    lower_bound: float
    energy_joules: float
    seconds: float
    power_watts: Float64
    extra_updates: Int64
    shadow_price: float = 0.0
    binding: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        problem: Problem,
        solver: str,
        power_watts: ArrayLike,
        extra_updates: ArrayLike,
        *,
        lower_bound: float = 0.0,
        seconds: float = 0.0,
        shadow_price: float = 0.0,
        details: Mapping[str, Any] | None = None,
    ) -> Allocation:
        """These powers and updates, with the objective, the energy and the binding constraints."""
        power = np.asarray(power_watts, dtype=np.float64)
        extra = np.asarray(extra_updates, dtype=np.int64)
        objective = float(problem.objective(power, extra))
        return cls(
            solver=solver,
            objective=objective,
            lower_bound=min(lower_bound, objective),
            energy_joules=float(problem.spent_joules(power, extra)),
            seconds=seconds,
            power_watts=power,
            extra_updates=extra,
            shadow_price=shadow_price,
            binding=problem.binding(power, extra),
            details=details or {},
        )

    @property
    def gap(self) -> float:
        """The share of the objective that a better answer could still save."""
        return max(0.0, 1.0 - self.lower_bound / self.objective)

    def to_dict(self) -> dict[str, Any]:
        """The answer as `camu allocate --json` prints it; `from_dict` reads it back."""
        return {
            "solver": self.solver,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "energy_joules": self.energy_joules,
            "seconds": self.seconds,
            "shadow_price": self.shadow_price,
            "binding": list(self.binding),
            **self.details,
            "clusters": [
                {"power_watts": power, "extra_updates": extra}
                for power, extra in zip(
                    self.power_watts.tolist(), self.extra_updates.tolist(), strict=True
                )
            ],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Allocation:
        """The answer that `to_dict` wrote."""
        own = ("solver", "objective", "lower_bound", "energy_joules", "seconds", "shadow_price")
        others = (*own, "gap", "binding", "clusters")
        return cls(
            **{name: document[name] for name in own},
            binding=tuple(document["binding"]),
            power_watts=np.array([c["power_watts"] for c in document["clusters"]], np.float64),
            extra_updates=np.array([c["extra_updates"] for c in document["clusters"]], np.int64),
            details={name: value for name, value in document.items() if name not in others},
        )

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        rows = [
            (str(c), f"{power:.4g}", str(1 + int(extra)))
            for c, (power, extra) in enumerate(
                zip(self.power_watts, self.extra_updates, strict=True)
            )
        ]
        binding = ", ".join(self.binding) or "nothing"
        caption = (
            f"{self.solver}: objective {self.objective:.6g}, at most {self.gap:.2g} (relative) "
            f"above the optimum, {self.energy_joules:.4g} J; binding: {binding}"
        )
        return html_table(("cluster", "power (W)", "updates"), rows, caption)
