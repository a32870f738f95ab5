"""adaptive-tau against its published algorithm, written out once more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from camu.learning.weights import Weights
from camu.schemes import AdaptiveTau, Plan, State, View
from camu.schemes.adaptive_tau import control_value
from camu.simulation import simulate
from camu.world import World
from helpers.scheme_runs import Quadratics, ends_at

Tiny = Callable[..., World]
SEEN: list[dict[str, Any]] = []


@dataclass(frozen=True)
class Watched(AdaptiveTau):
    """Notes everything that the rule may depend on, and its answer."""

    def revise(self, view: View, state: State) -> Plan | None:
        oracle = view.oracle
        assert oracle is not None
        rows = []
        for arrival in view.arrived:
            assert arrival.trained is not None
            k = [arrival.unit]
            own, both = arrival.trained, view.weights
            rows.append(
                {
                    "samples": int(view.world.devices.samples[arrival.unit]),
                    "losses": (oracle.loss(own, k), oracle.loss(both, k)),
                    "gradients": (oracle.gradient(own, k), oracle.gradient(both, k)),
                    "apart": own.parameters.astype(float) - both.parameters.astype(float),
                }
            )
        before = view.plan.units[0].local_updates
        plan = super().revise(view, state)
        assert plan is not None
        counts = {unit.local_updates for unit in plan.units}
        assert len(counts) == 1
        SEEN.append(
            {
                "rows": rows,
                "spent": view.joules,
                "before": before,
                "after": counts.pop(),
                "last": bool(state.get("last")),
                "finished": bool(state.get("finished")),
            }
        )
        return plan


def published(
    seen: dict[str, Any], rate: float, phi: float, c: float, b: float, R: float, cap: int
) -> int:
    """tau of the next round by Algorithms 2 and 3, without trimming."""
    total = sum(row["samples"] for row in seen["rows"])
    rho = beta = 0.0
    mean = sum(row["samples"] / total * row["gradients"][1].astype(float) for row in seen["rows"])
    delta = 0.0
    for row in seen["rows"]:
        share, length = row["samples"] / total, math.sqrt(float(row["apart"] @ row["apart"]))
        rho += share * abs(row["losses"][0] - row["losses"][1]) / length
        change = row["gradients"][0].astype(float) - row["gradients"][1].astype(float)
        beta += share * math.sqrt(float(change @ change)) / length
        away = row["gradients"][1].astype(float) - mean
        delta += share * math.sqrt(float(away @ away))

    def bound(t: int) -> float:
        h = delta / beta * ((rate * beta + 1) ** t - 1) - rate * delta * t
        s = (c * t + b) / (2 * rate * phi * (R - b - c) * t)
        return s + math.sqrt(s**2 + rho * h / (rate * phi * t)) + rho * h

    return min(range(1, min(10 * seen["before"], cap) + 1), key=bound)


@pytest.mark.parametrize(("control", "cap"), [(5e-5, 100), (0.025, 100), (5e-5, 4)])
@pytest.mark.parametrize("budget", [None, 0.2])
def test_tau_follows_the_published_algorithm(
    tiny: Tiny, control: float, cap: int, budget: float | None
) -> None:
    world = tiny(
        run__rounds=20,
        run__max_joules=budget,
        data__noniid_devices=6,
        data__size_exponent=1.0,
        data__with_replacement=True,
        radio__uplink="digital",
    )
    SEEN.clear()
    scheme = Watched(control=control, max_updates=cap)
    history = simulate(world, scheme).history
    units = scheme.plan(world).units
    c = sum(unit.compute_joules for unit in units)
    b = sum(unit.uplink_joules for unit in units)
    R = 20 * (c + b) if budget is None else budget  # the same in every round
    assert units[0].local_updates == 1
    training = [seen for seen in SEEN if seen["rows"]]
    assert len(training) >= 2
    for seen in training:
        tau = published(seen, world.config.training.learning_rate, control, c, b, R, cap)
        left = R - seen["spent"]
        trimmed = left < c * (tau + 1) + 2 * b
        assert seen["last"] == trimmed
        if trimmed:
            tau = max(1, min(tau, math.floor((left - b) / c)))
        assert seen["after"] == tau
    # Never above the budget, and after the last round nobody starts.
    assert history.final.total_joules <= R * (1 + 1e-12)
    if any(seen["last"] for seen in training):
        assert SEEN[-1]["finished"]
        assert not SEEN[-1]["rows"] or history.final.round == len(training)
    assert len({seen["after"] for seen in training}) > 1


def by_the_paper(
    trainer: Quadratics, control: float, c: float, b: float, R: float, cap: int
) -> tuple[list[int], np.ndarray]:
    """Algorithms 2 and 3 on quadratics from beginning to end: tau of each round, the best model."""
    share = trainer.samples / trainer.samples.sum()
    count, rate, size = len(share), trainer.rate, trainer.curvature.shape[1]

    def losses(w: np.ndarray) -> np.ndarray:
        found: np.ndarray = 0.5 * (trainer.curvature * (w - trainer.centre) ** 2).sum(axis=1)
        return found

    w, best, best_loss = np.zeros(size), np.zeros(size), math.inf
    tau, taus, spent, stop = 1, [], 0.0, False
    while True:
        own = np.tile(w, (count, 1))
        for _ in range(tau):
            own -= rate * trainer.curvature * (own - trainer.centre)
        taus.append(tau)
        spent += c * tau + b
        w = share @ own
        if share @ losses(w) < best_loss:
            best, best_loss = w, float(share @ losses(w))
        if stop:
            return taus, best
        apart = np.linalg.norm(own - w, axis=1)
        theirs = np.array([losses(own[k])[k] for k in range(count)])
        rho = share @ (np.abs(theirs - losses(w)) / apart)
        there, here = (trainer.curvature * (x - trainer.centre) for x in (own, w))
        beta = share @ (np.linalg.norm(there - here, axis=1) / apart)
        delta = share @ np.linalg.norm(here - share @ here, axis=1)
        values = []
        for t in range(1, min(10 * tau, cap) + 1):
            h = delta / beta * ((rate * beta + 1) ** t - 1) - rate * delta * t
            s = (c * t + b) / (2 * rate * control * (R - b - c) * t)
            values.append(s + math.sqrt(s**2 + rho * h / (rate * control * t)) + rho * h)
        tau = 1 + int(np.argmin(values))
        if R - spent < c * (tau + 1) + 2 * b:
            left = math.floor((R - spent - b) / c)
            if left < 1:
                return taus, best
            tau, stop = min(tau, left), True


@pytest.mark.parametrize(("control", "cap"), [(5e-5, 100), (0.025, 100), (5e-5, 6), (1e-3, 30)])
def test_the_whole_trajectory_on_quadratics(tiny: Tiny, control: float, cap: int) -> None:
    """tau in every round, the end of the run and the model that it returns."""
    world = tiny(
        run__rounds=60,
        run__max_joules=None,
        data__size_exponent=1.0,
        data__with_replacement=True,
        radio__uplink="digital",
        training__learning_rate=0.02,
        training__max_update_norm=1e9,
    )
    taus: list[int] = []

    class Noted(AdaptiveTau):
        def aggregate(self, view: View, state: State) -> Weights:
            taus.append(view.plan.units[0].local_updates)
            return super().aggregate(view, state)

    scheme = Noted(control=control, max_updates=cap)
    found, trainer = ends_at(world, scheme)
    units = scheme.plan(world).units
    c = sum(unit.compute_joules for unit in units)
    b = sum(unit.uplink_joules for unit in units)
    expected, best = by_the_paper(trainer, control, c, b, 60 * (c + b), cap)
    assert taus == expected
    assert len(set(taus)) > 1
    assert np.abs(found - best).max() < 1e-4


def test_the_best_model_is_returned(tiny: Tiny) -> None:
    """At a rate at which training goes up and down, the last model is the best one seen."""
    losses: list[float] = []

    class Noted(AdaptiveTau):
        def revise(self, view: View, state: State) -> Plan | None:
            assert view.oracle is not None
            losses.append(view.oracle.loss(view.weights))
            return super().revise(view, state)

    world = tiny(run__rounds=15, training__learning_rate=3.0, data__noniid_devices=6)
    simulate(world, Noted())
    assert losses[-1] <= min(losses) * (1 + 1e-6)


def best(delta: float, fixed: float, most: int = 100) -> int:
    scores = [
        control_value(tau, (1.5, 2.0, delta), (0.01, fixed, 50.0), 0.1, 0.025)
        for tau in range(1, most + 1)
    ]
    return 1 + int(np.argmin(scores))


@pytest.mark.parametrize("most", [1, 10, 100])
def test_without_divergence_tau_is_the_cap(most: int) -> None:
    assert best(delta=0.0, fixed=0.3, most=most) == most


def test_without_a_price_of_aggregation_tau_is_one() -> None:
    for delta in (0.01, 0.1, 1.0):
        assert best(delta, fixed=0.0) == 1


def test_tau_falls_with_divergence_and_rises_with_the_price_of_aggregation() -> None:
    by_delta = [best(delta, fixed=0.3) for delta in (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)]
    assert by_delta == sorted(by_delta, reverse=True)
    by_price = [best(1e-2, fixed) for fixed in (0.0, 0.01, 0.1, 1.0, 5.0)]
    assert by_price == sorted(by_price)
    assert by_price[-1] > by_price[0]
