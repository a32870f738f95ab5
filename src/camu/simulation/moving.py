"""Devices that move in a run: links and prices follow them, and now and then the plan."""

from __future__ import annotations

import numpy as np

from camu.arrays import Float64
from camu.errors import InputError
from camu.planning.plan import Plan
from camu.planning.replanning import Replanning, replanning_costs
from camu.planning.rotation import rotated
from camu.schemes import plans
from camu.schemes.contract import Scheme
from camu.simulation.hooks import overrides
from camu.simulation.ledger import KINDS, Ledger
from camu.simulation.run import Run, Update


def uplink_gain(run: Run) -> Float64:
    """The gains of this round's uplinks (K,)."""
    links = run.world.links
    return links.uplink_gain * links.fading(run.round)


def move(run: Run) -> None:
    """Let the devices be where they are now; links and prices of the plan follow."""
    movement, now = run.world.movement, run.clock.now_seconds
    if movement is None:
        return
    if now > movement.end_seconds and not run.has_all_rounds:
        end, path = movement.end_seconds, run.world.config.fleet.position_trace
        raise InputError(
            f"fleet.position_trace = {path}: round {run.round + 1} begins at second {now:.6g}, but "
            f"the trace ends at second {end:.15g}; write rows until the run ends, or end it with "
            f"run.max_virtual_seconds = {end:.15g}"
        )
    world = run.world.at(now)
    if world is not run.world:
        run.world, run.plan, run.revised = world, run.plan.repriced(world), True
    run.batteries.move_to(world)


def replan(run: Run, scheme: Scheme) -> list[Update]:
    """Plan again for the world as it is now if it is time, at the expense of the devices.

    A plan that a scheme has tried out or revised stays as long as the units have the same members.
    Otherwise the scheme starts again, as with devices that join a deployment: its own state and
    what units keep are forgotten, and units on their way are given up; these are returned.
    """
    every = run.world.config.clustering.replan_every
    if every is None or run.round == 0 or run.round % every:
        return []
    move(run)
    plan = _with_leaders(plans.plan(scheme, run.world), run)
    _pay(run, _messages(run, plan))
    given_up: list[Update] = []
    if [unit.members for unit in plan.units] == [unit.members for unit in run.plan.units]:
        if overrides(scheme, "pilot") or overrides(scheme, "revise"):
            return []
    else:
        given_up = list(run.in_flight.values())
        run.clock.clear()
        run.in_flight.clear()
        run.state.clear()
        run.kept.clear()
    run.plan, run.revised = plan, True
    return given_up


def _with_leaders(plan: Plan, run: Run) -> Plan:
    """The plan with the leaders whose turn it is, where leaders take turns."""
    if run.world.config.clustering.leader != "rotating":
        return plan
    charge, gone = run.batteries.charge_joules, run.batteries.gone
    turned = rotated(plan, run.world, charge, run.device_joules, gone)
    return plan if turned is plan else turned.repriced(run.world)


def _messages(run: Run, plan: Plan) -> Replanning:
    """The reports of the devices that can pay for them, and the broadcast of the plan."""
    there, gain = ~run.batteries.gone, uplink_gain(run)
    while True:
        costs = replanning_costs(run.world, plan, gain, there)
        poor = there & (costs.joules > run.batteries.charge_joules)
        if not poor.any():
            return costs
        there &= ~poor


def _pay(run: Run, costs: Replanning) -> None:
    """Charge time, energy and bits of the messages; what is on its way waits meanwhile."""
    run.clock.skip(costs.seconds)
    paid = Ledger.new(len(costs.transmit_joules))
    for row, kind in enumerate(KINDS[1:], start=1):
        paid.devices[row] = getattr(costs, f"{kind}_joules")
        if kind == "idle":  # units on their way pay for theirs when they arrive
            for update in run.in_flight.values():
                paid.devices[row, list(update.members)] = 0.0
        paid.totals[kind] = float(paid.devices[row].sum())
    paid.totals["base_station"] = costs.base_station_joules
    paid.bits["uplink"], paid.bits["downlink"] = costs.uplink_bits, costs.downlink_bits
    run.ledger.add(paid)
    run.batteries.draw(np.arange(paid.devices.shape[1]), paid.device_joules)
