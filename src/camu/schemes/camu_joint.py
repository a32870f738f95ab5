"""Configuration 5: powers and update counts optimised together under an energy budget."""

import math
from dataclasses import dataclass, replace

import numpy as np

from camu.allocation.bound import Bound, CorrectedBound, Theorem1
from camu.allocation.p1 import Problem, round_up
from camu.allocation.solve import solve
from camu.arrays import Int64
from camu.config import Config
from camu.errors import CamuError, InputError
from camu.planning.cells import refuse_cells
from camu.planning.codecs import parameter_count
from camu.planning.contribution import extra_updates, gate
from camu.planning.groups import Groups, clusters, make_plan
from camu.planning.queues import arrivals
from camu.schemes.compute_rounds import energy_budget, within_budget
from camu.schemes.contract import CountFromZero, Plan, Scheme, Share, Threshold, World
from camu.schemes.device_problems import refuse_link_types
from camu.world.rates import useful_snr

# mu and L of the bound where nothing is measured; they move its value more than its optimum.
_CONVEXITY, _SMOOTHNESS = 0.01, 1.0


@dataclass(frozen=True)
class CamuJoint(Scheme):
    """Configuration 5: CAMU with powers and updates that minimise the bound within a budget.

    allocation.solver chooses the exact solver, the paper's PPO, or your own.
    """

    threshold: Threshold | None = None
    threshold_quantile: Share = 0.5
    max_extra_updates: CountFromZero = 4
    name = "camu-joint"
    family = "paper"
    citation = "Sun et al., CAMU, section IV"
    choices = [
        "the budget is what `compute-rounds` spends, unless allocation.energy_joules says "
        "otherwise",
        "the bound is the corrected one, unless readings.bound says otherwise",
    ]

    def plan(self, world: World) -> Plan:
        """Solve P1 for the clusters that may update repeatedly; the plan keeps the answer."""
        groups = clusters(world)
        budget = energy_budget(groups, self.max_extra_updates)
        first = paid_first(groups)
        smallest = self.problem(groups, first + 1.0).smallest_budget_joules  # of any budget
        least = first + smallest
        while least - first < smallest:  # where others take nearly all, the sum may round down
            least = math.nextafter(least, math.inf)

        def solved(joules: float) -> Plan:
            if joules < least:
                needed = max(least, self.solved(groups, least, "exact").round_joules)
                raise CamuError(
                    f"scheme camu-joint: a budget of {budget:.10g} J is too small: "
                    f"{round_up(needed)} J would do (allocation.energy_joules)"
                )
            return self.solved(groups, joules, world.config.allocation.solver)

        return within_budget(budget, solved, least)

    def solved(self, groups: Groups, joules: float, solver: str) -> Plan:
        """The plan that P1 gives for so many joules."""
        world, problem = groups.world, self.problem(groups, joules)
        allocation, readings = world.config.allocation, world.config.readings
        answer = solve(
            problem,
            solver,
            seed=world.seed,
            steps=allocation.ppo_steps,
            reward=readings.ppo_reward,
        )
        plan = make_plan(
            self,
            groups,
            groups.contribution_weights,
            1 + answer.extra_updates,
            answer.power_watts,
            problem.multi_update,
        )
        return replace(plan, allocation=answer)

    def problem(self, groups: Groups, joules: float | None = None) -> Problem:
        """P1 of clusters that are formed already; only those that pass the gate may update more.

        The energy is that of the budget unless it is given.
        """
        multi = gate(groups.log_contribution, self.threshold, self.threshold_quantile)
        extra = extra_updates(groups.step_seconds, self.max_extra_updates)
        if joules is None:
            joules = energy_budget(groups, self.max_extra_updates)
        return problem_of(groups, multi, extra, joules)


def problem_of(
    groups: Groups,
    multi_update: np.typing.NDArray[np.bool_],
    max_extra_updates: Int64,
    energy_joules: float,
) -> Problem:
    """P1 of these clusters.

    An update of a cluster costs what its members compute with and what they send to their leader
    with, so that the budget covers the whole round. Receiving the model is paid from it first.
    Everyone waits while a leader sends, so idle power counts as its circuit power; the rest of it
    is that of a round with one update each, and what longer rounds add is left to `within_budget`.
    A gap to Shannon's rate counts as noise, which moves the objective and not its optimum, and no
    leader sends with more power than the highest rate needs.
    """
    world, config = groups.world, groups.world.config
    _check_radio(config, float(world.devices.idle_watts.max()))
    refuse_link_types("scheme camu-joint: P1 sends at Shannon's rate", world)
    refuse_cells(world, "scheme camu-joint: P1 has one band")
    count, leaders = len(groups.members), np.array(groups.leaders)
    parameters = parameter_count(world)
    bound = bound_of(groups, parameters)
    descent, penalty = bound.p1_coefficients()
    share = world.links.share(count)
    once = groups.costs_of_one_update
    waiting, _ = _idle_power(groups)
    first = paid_first(groups)
    if energy_joules <= first:
        raise CamuError(
            f"the plan's problem P1: a budget of {energy_joules:.10g} J is too small: receiving "
            f"the model and idle power take {round_up(first)} J (allocation.energy_joules)"
        )
    gap, useful = useful_snr(config.radio)
    gain, noise = world.links.uplink_gain[leaders], gap * share.noise_watts
    return Problem(
        weight=groups.contribution_weights,
        gain=gain,
        descent=descent,
        penalty=penalty,
        compute_joules=once.update_joules,
        bandwidth_hz=np.full(count, share.bandwidth_hz),
        multi_update=multi_update,
        max_extra_updates=max_extra_updates,
        noise_watts=noise,
        payload_bits=config.radio.bits_per_parameter * parameters,
        energy_joules=energy_joules - first,
        max_power_watts=np.minimum(world.devices.max_power_watts[leaders], useful * noise / gain),
        max_total_power_watts=config.allocation.max_total_power_watts,
        circuit_watts=config.radio.circuit_watts + waiting,
        amplifier_efficiency=config.radio.amplifier_efficiency,
        power_law=config.readings.power_law,
        first_update_free=config.readings.updates_charged == "literal",
        compute_seconds=groups.step_seconds,
        source="the plan's problem P1",
    )


def paid_first(groups: Groups) -> float:
    """Joules of a round's budget that P1 does not divide: those of receiving and of idle power."""
    once = groups.costs_of_one_update
    return float((once.fixed_joules - once.uplink_joules).sum()) + _idle_power(groups)[1]


def _check_radio(config: Config, idle_watts: float) -> None:
    """Refuse what P1 has no words for."""
    if config.radio.uplink == "analog":
        raise InputError(
            "scheme camu-joint: P1 counts the time in which bits are sent, and radio.uplink = "
            '"analog" sends none; set radio.uplink to digital, packet or hybrid'
        )
    if config.radio.uplink == "packet" and config.radio.packet_tries > 1:
        raise InputError(
            "scheme camu-joint: P1 sends every update once, and radio.packet_tries = "
            f"{config.radio.packet_tries} sends some again; write radio.packet_tries = 1"
        )
    power = config.radio.circuit_watts + idle_watts
    if power > 0 and config.allocation.max_total_power_watts is not None:
        raise InputError(
            "scheme camu-joint: with circuit or idle power a leader has a cheapest power, and P1 "
            "cannot also limit the sum of powers; unset allocation.max_total_power_watts, or set "
            "radio.circuit_watts and fleet.idle_watts to 0"
        )


def _idle_power(groups: Groups) -> tuple[float, float]:
    """Idle watts that count as a leader's while it sends, and the other idle joules of a round.

    These are those of a round with one update each, at the leaders' own powers.
    """
    costs, access = groups.costs_of_one_update, groups.world.config.radio.access
    watts = costs.all_idle_watts
    if not watts:
        return 0.0, 0.0
    waiting = watts / (1 if access == "tdma" else len(groups))
    air = costs.uplink_seconds
    seconds = float(arrivals(costs.ready_seconds(1.0), air, access).max())
    return waiting, watts * seconds - waiting * float(air.sum())


def bound_of(groups: Groups, parameters: int) -> Bound:
    """The configured bound with assumed constants; all clusters are taken as alike."""
    config, weight = groups.world.config, groups.contribution_weights
    alike = np.ones(len(weight))
    if config.readings.bound == "theorem1":
        samples = groups.world.devices.samples
        members = [samples[list(own)] / samples[list(own)].sum() for own in groups.members]
        return Theorem1(
            weight=weight,
            member_weight=members,
            delta=1.0,
            delta_c=alike,
            strong_convexity=_CONVEXITY,
            smoothness=_SMOOTHNESS,
            learning_rate=config.training.learning_rate,
        )
    return CorrectedBound(
        weight=weight,
        divergence=np.zeros(len(weight)),
        dissimilarity=alike,
        offset=np.zeros(len(weight)),
        strong_convexity=_CONVEXITY,
        smoothness=_SMOOTHNESS,
        learning_rate=config.training.learning_rate,
        parameters=parameters,
    )
