"""P2 as a scheme: rounds, updates, powers and frequencies for the joules and seconds of a run."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace

import numpy as np

from camu.allocation.answer import P2Answer
from camu.allocation.measured import Constants, Look, measured
from camu.allocation.p2 import P2Problem
from camu.allocation.p2_exact import solve_p2
from camu.arrays import Float64
from camu.errors import CamuError, InputError
from camu.learning.job import LocalRule
from camu.planning.groups import clusters, make_plan
from camu.schemes.contract import (
    Count,
    CountFromTwo,
    Pilot,
    Plan,
    Scheme,
    State,
    View,
    World,
)
from camu.schemes.p2_problem import check_p2, problem_of_plan
from camu.schemes.reporter import Reporter

TURNS = 4  # of P2, until its plan is paid for with what P2 does not know
SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15)  # of the time, where power flows all the time


@dataclass(frozen=True)
class CamuP2(Scheme):
    """The paper's clusters with the rounds, updates, powers and frequencies that P2 gives them.

    A pilot measures the bound's constants at a few models. The budgets are run.max_joules and
    run.max_virtual_seconds, else run.min_joules and run.min_virtual_seconds, of which the pilot is
    paid, or what run.rounds rounds with one update cost after it. The run ends after P2's rounds.
    """

    models: CountFromTwo = 4  # at which the pilot looks
    max_updates: Count = 5  # the largest N_c
    bound_rate: bool = False  # True: the learning rate of the bound, below the configured one
    name = "camu-p2"
    family = "clusters"
    citation = "this project: problem P2"
    choices = [
        "weights by samples, so that the bound is about the loss of everyone's data",
        "F* is taken as 0; the constants are those of the models that the pilot met",
        "what P2 does not know (waits on the medium, static and idle power, receiving) is taken "
        "from its budgets until the priced plan is paid for",
    ]

    def plan(self, world: World) -> Plan:
        """A round with one update of every cluster; devices keep to the slowest of their unit."""
        check_p2(world, f"scheme {self.name}", power=False)
        if world.config.radio.uplink == "analog":
            raise InputError(
                f"scheme {self.name}: P2 counts the time in which bits are sent, and radio.uplink ="
                ' "analog" sends none; set radio.uplink to digital, packet or hybrid'
            )
        groups = clusters(world)
        plan = make_plan(self, groups, groups.sample_weights)
        return replace(plan, dvfs="members").repriced(world)

    def pilot(self, pilot: Pilot, state: State) -> Plan | None:
        """Look around, solve P2 with what is left of the budgets, and plan its answer."""
        looks, spent = self.looks(pilot)
        weight = pilot.plan.column("weight")
        if not any(look.gradients.any() for look in looks):  # a dry run: nothing is trained
            return None
        found = measured(looks, np.asarray(weight))
        budgets = self.budgets(pilot, spent)
        if min(budgets) <= 0:
            raise CamuError(
                f"scheme {self.name}: its pilot takes {spent[0]:.4g} J and {spent[1]:.4g} s, more "
                "than the budget; raise it, or lower scheme.parameters.models"
            )
        plan, rounds, answer = self.solved(pilot, found, budgets)
        state.update(rounds=rounds, bound=answer.objective)
        state.update(joules=answer.energy_joules, seconds=answer.run_seconds)
        pilot.go_on_from(pilot.weights.with_parameters(looks[-1].weights.astype(np.float32)))
        return plan

    def looks(self, pilot: Pilot) -> tuple[list[Look], tuple[float, float]]:
        """What the clusters report at the models of the pilot, and the joules and seconds of it.

        At every model there is a round of all data, and one of a mini-batch, whose distance from
        the first is the variance.
        """
        config, world, plan = pilot.world.config, pilot.world, pilot.plan
        rate, at = config.training.learning_rate, pilot.weights
        rule = LocalRule(optimiser="sgd", momentum=0.0, nesterov=False, clip_norm=0.0)
        passes = [
            plan.with_columns(rule=[one] * len(plan.units)).repriced(world)
            for one in (replace(rule, batch=1.0), rule)
        ]
        weight = np.asarray(plan.column("weight"), dtype=np.float64)
        found, joules, seconds = [], 0.0, 0.0
        for _ in range(self.models):
            reports = []
            for one in passes:
                reporter = Reporter()
                run = pilot.train(one, 1, at, reporter)
                reports.append(_report(reporter, len(plan.units), self.name))
                joules, seconds = joules + run.joules, seconds + run.seconds
            (losses, changes), (_, noisy) = reports
            gradients = -changes / rate
            scatter = np.square(noisy / rate + gradients).sum(axis=1)
            here = at.parameters.astype(np.float64)
            found.append(Look(here, losses, gradients, scatter))
            at = at.with_parameters((here - rate * (weight @ gradients)).astype(np.float32))
        return found, (joules, seconds)

    def budgets(self, pilot: Pilot, spent: tuple[float, float]) -> tuple[float, float]:
        """Joules and seconds that are left after the pilot."""
        run, plan = pilot.world.config.run, pilot.plan
        joules = run.max_joules or run.min_joules
        seconds = run.max_virtual_seconds or run.min_virtual_seconds
        return (
            joules - spent[0] if joules else run.rounds * plan.round_joules,
            seconds - spent[1] if seconds else run.rounds * plan.round_seconds,
        )

    def solved(
        self, pilot: Pilot, found: Constants, budgets: tuple[float, float]
    ) -> tuple[Plan, int, P2Answer]:
        """P2's answer as a plan that keeps the budgets by the one price, and its rounds.

        Static and idle power take joules for as long as the run lasts: P2 is given less time and
        what is then left of the joules, and the best of its answers counts.
        """
        joules, seconds = budgets
        devices = pilot.world.devices
        watts = float(devices.idle_watts.sum() + devices.static_watts.sum())
        tries = [(joules - watts * own * seconds, own * seconds) for own in SHARES if watts]
        tries = [given for given in tries or [budgets] if min(given) > 0] or [budgets]
        answers = []
        for given in tries:
            with contextlib.suppress(CamuError):
                answers.append(self.within(pilot, found, budgets, given))
        if not answers:  # the error names what is too small
            answers = [self.within(pilot, found, budgets, tries[-1])]
        return min(answers, key=lambda one: one[2].objective)

    def within(
        self,
        pilot: Pilot,
        found: Constants,
        budgets: tuple[float, float],
        given: tuple[float, float],
    ) -> tuple[Plan, int, P2Answer]:
        """P2 with these budgets, or less of them until its plan keeps the run's."""
        for _ in range(TURNS):
            problem = problem_of_plan(pilot.plan, pilot.world, found, given, self.max_updates)
            answer = solve_p2(problem)
            plan = self.answered(pilot, problem, answer)
            each = plan.round_joules, plan.round_seconds
            over = [answer.rounds * own / all_ for own, all_ in zip(each, budgets, strict=True)]
            if max(over) <= 1 + 1e-9:
                break
            given = given[0] / max(1.0, over[0]), given[1] / max(1.0, over[1])
        told = answer.energy_joules / answer.rounds, answer.run_seconds / answer.rounds
        if np.allclose(told, each, rtol=1e-9, atol=0):
            return plan, answer.rounds, answer
        rounds = min(budget / own for budget, own in zip(budgets, each, strict=True))
        return plan, max(1, math.floor(rounds * (1 + 1e-12))), answer

    def answered(self, pilot: Pilot, problem: P2Problem, answer: P2Answer) -> Plan:
        """The plan with the updates, powers and frequencies of an answer."""
        world, plan = pilot.world, pilot.plan
        slowest = np.zeros(problem.size)
        np.maximum.at(slowest, problem.cluster, problem.cycles / problem.max_hz)
        late = np.zeros(problem.size)
        np.maximum.at(late, problem.cluster, problem.cycles / answer.cpu_hz)
        least = world.config.fleet.min_hz / problem.max_hz.max()
        rate = problem.learning_rate / world.config.training.learning_rate
        rules = [LocalRule(rate=rate if self.bound_rate else 1.0)] * problem.size
        leaders = np.asarray(plan.column("leader"))
        return plan.with_columns(
            local_updates=answer.updates.tolist(),
            multi_update=(answer.updates > 1).tolist(),
            power_watts=np.minimum(
                answer.power_watts, world.devices.max_power_watts[leaders]
            ).tolist(),
            cpu_share=np.clip(slowest / late, min(least, 1.0), 1.0).tolist(),
            rule=rules,
        ).repriced(world)

    def finished(self, view: View, state: State) -> bool:
        """After the rounds of P2; without an answer the configuration decides."""
        return bool(0 < state.get("rounds", 0) <= view.round)


def _report(reporter: Reporter, units: int, name: str) -> tuple[Float64, Float64]:
    """Loss and change of every unit."""
    order = range(units)
    if missing := set(order) - set(reporter.losses):
        raise CamuError(f"scheme {name}: unit {min(missing)} did not report to its pilot")
    losses = np.array([reporter.losses[unit] for unit in order])
    return losses, np.stack([reporter.changes[unit] for unit in order])
