"""Answers to problems, each with a certificate of its quality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from camu.allocation.p1 import Problem
from camu.allocation.p2 import P2Problem
from camu.arrays import Float64, Int64
from camu.notebook import html_table


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """What all answers have; `energy_joules` is of a round, and of a run in P2."""

    rows: ClassVar[str] = "clusters"
    columns: ClassVar[tuple[str, ...]]  # the fields with an entry per row
    solver: str
    objective: float
    lower_bound: float
    energy_joules: float
    seconds: float = 0.0
    power_watts: Float64
    binding: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """The share of the objective that a better answer could still save."""
        return max(0.0, 1.0 - self.lower_bound / self.objective)

    def to_dict(self) -> dict[str, Any]:
        """The answer as `camu allocate --json` prints it, with a row per cluster or device."""
        values = {own.name: getattr(self, own.name) for own in fields(self)}
        binding, details = values.pop("binding"), values.pop("details")
        columns = [values.pop(name).tolist() for name in self.columns]
        rows = [dict(zip(self.columns, row, strict=True)) for row in zip(*columns, strict=True)]
        end = {"gap": self.gap, "binding": list(binding), **details, self.rows: rows}
        return {**values, **end}


@dataclass(frozen=True, eq=False, kw_only=True)
class Allocation(Answer):
    """An answer to P1: powers and extra updates, with a certificate.

    Attributes:
        solver: name of the solver.
        objective: the value that P1 minimises, at this answer.
        lower_bound: no feasible answer has a smaller objective.
        energy_joules: the energy that a round spends.
        seconds: wall time of the solver.
        power_watts: power of each cluster's leader.
        binding: the keys of the constraints that hold with equality.
        details: results of this solver alone.
        extra_updates: local updates of each cluster beyond the first.
        shadow_price: how much the objective falls per extra joule.
    """

    columns = ("power_watts", "extra_updates")
    extra_updates: Int64
    shadow_price: float = 0.0

    @classmethod
    def of(
        cls,
        problem: Problem,
        solver: str,
        power_watts: ArrayLike,
        extra_updates: ArrayLike,
        *,
        lower_bound: float = 0.0,
        **more: Any,
    ) -> Allocation:
        """These powers and updates, with the objective, the energy and the binding constraints.

        `more` are the fields `seconds`, `shadow_price` and `details`.
        """
        power = np.asarray(power_watts, dtype=np.float64)
        extra = np.asarray(extra_updates, dtype=np.int64)
        objective = float(problem.objective(power, extra))
        return cls(
            solver=solver,
            objective=objective,
            lower_bound=min(lower_bound, objective),
            energy_joules=float(problem.spent_joules(power, extra)),
            power_watts=power,
            extra_updates=extra,
            binding=problem.binding(power, extra),
            **more,
        )

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
        columns = zip(self.power_watts, self.extra_updates, strict=True)
        rows = [(str(c), f"{watts:.4g}", str(1 + n)) for c, (watts, n) in enumerate(columns)]
        binding = ", ".join(self.binding) or "nothing"
        caption = (
            f"{self.solver}: objective {self.objective:.6g}, at most {self.gap:.2g} (relative) "
            f"above the optimum, {self.energy_joules:.4g} J; binding: {binding}"
        )
        return html_table(("cluster", "power (W)", "updates"), rows, caption)


@dataclass(frozen=True, eq=False, kw_only=True)
class P2Answer(Answer):
    """An answer to P2: rounds, updates, powers and frequencies."""

    columns = ("power_watts", "updates")
    rounds: int  # T
    updates: Int64  # N_c
    ready_seconds: float  # m, when all clusters of a round are ready to send
    cpu_hz: Float64  # f_k of every device
    run_seconds: float  # of the whole run
    joule_price: float = 0.0  # how much the objective falls per extra joule, at this T
    second_price: float = 0.0  # and per extra second

    @classmethod
    def of(
        cls,
        problem: P2Problem,
        solver: str,
        rounds: int,
        updates: ArrayLike,
        power_watts: ArrayLike,
        ready_seconds: float,
        *,
        lower_bound: float = 0.0,
        **more: Any,
    ) -> P2Answer:
        """These decisions, with what they cost and what the bound says about them.

        `more` are the fields `seconds`, `joule_price`, `second_price` and `details`.
        """
        counts, power = np.asarray(updates, np.int64), np.asarray(power_watts, np.float64)
        joules = rounds * float(problem.round_joules(counts, power, ready_seconds))
        spent = rounds * float(problem.round_seconds(power, ready_seconds))
        objective = float(problem.objective(rounds, counts, power))
        used = {
            "energy_joules": joules / problem.energy_joules,
            "seconds": spent / problem.seconds,
            "max_power_watts": float((power / problem.max_power_watts).max()),
            "max_updates": float((counts / problem.max_updates).max()),
            "max_rounds": rounds / problem.max_rounds,
        }
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
            binding=tuple(name for name, share in used.items() if share >= 1 - 1e-5),
            **more,
        )

    def to_dict(self) -> dict[str, Any]:
        """The answer as `camu allocate --json` prints it, with a row per cluster."""
        return {"kind": "P2", **super().to_dict(), "cpu_hz": self.cpu_hz.tolist()}
