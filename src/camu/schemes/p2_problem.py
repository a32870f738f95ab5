"""P2 of the units of a plan, with measured constants: what of a world it knows, and what not."""

from __future__ import annotations

import numpy as np

from camu.allocation.measured import Constants
from camu.allocation.p2 import P2Problem
from camu.data.batches import batch_samples
from camu.errors import InputError
from camu.planning.cells import refuse_cells
from camu.planning.plan import Plan
from camu.schemes.device_problems import refuse_link_types
from camu.world import World
from camu.world.rates import useful_snr


def problem_of_plan(
    plan: Plan,
    world: World,
    found: Constants,
    budgets: tuple[float, float],
    max_updates: int,
) -> P2Problem:
    """P2 of the units of a plan for these joules and seconds of the whole run.

    The learning rate is the configured one, or the rate at which one update descends most by the
    bound where that is smaller.
    """
    config, devices = world.config, world.devices
    refuse_cells(world, "P2 has one band")
    leaders = np.array([unit.leader for unit in plan.units])
    members = np.concatenate([unit.members for unit in plan.units])
    weight = np.array([unit.weight for unit in plan.units])
    share = world.links.share(len(leaders))
    gap, useful = useful_snr(config.radio)
    gain, noise = world.links.uplink_gain[leaders], gap * share.noise_watts
    best_rate = 1 / (found.smoothness * float(weight @ found.dissimilarity**2))
    batch = batch_samples(config.training.batch, devices.samples)
    constants = {name: value for name, value in vars(found).items() if name != "convexity_from"}
    return P2Problem(
        **constants,
        weight=weight,
        gain=gain,
        bandwidth_hz=np.array(share.bandwidth_hz),
        gather_seconds=np.array([unit.per_update.gather_seconds for unit in plan.units]),
        gather_joules=np.array([unit.per_update.gather_joules for unit in plan.units]),
        max_updates=np.array(max_updates),
        max_power_watts=np.minimum(devices.max_power_watts[leaders], useful * noise / gain),
        circuit_watts=config.radio.circuit_watts,
        amplifier_efficiency=config.radio.amplifier_efficiency,
        cluster=np.repeat(np.arange(len(leaders)), [len(unit.members) for unit in plan.units]),
        cycles=(devices.cycles_per_sample * batch)[members],
        capacitance=devices.capacitance[members],
        max_hz=devices.cpu_hz[members],
        noise_watts=noise,
        payload_bits=float(config.radio.bits_per_parameter * plan.parameters),
        learning_rate=min(config.training.learning_rate, best_rate),
        energy_joules=budgets[0],
        seconds=budgets[1],
        source="the plan's problem P2",
    )


def check_p2(world: World, source: str, power: bool = True) -> None:
    """Refuse settings of which P2 knows nothing; `power`: static and idle power, too."""
    config, devices = world.config, world.devices
    refuse_link_types(f"{source}: problem P2 sends at Shannon's rate", world)
    for key, value, wanted in (
        ("radio.access", config.radio.access, "tdma"),
        ("radio.downlink", config.radio.downlink, False),
        ("fleet.static_watts", float(devices.static_watts.max()) if power else 0.0, 0.0),
        ("fleet.idle_watts", float(devices.idle_watts.max()) if power else 0.0, 0.0),
        ("readings.compute_model", config.readings.compute_model, "cycles"),
        ("training.local_update", config.training.local_update, "step"),
    ):
        if value != wanted:
            raise InputError(
                f"{source}: {key} = {str(value).lower()}: problem P2 knows only "
                f"{str(wanted).lower()}; plan with --set {key}={str(wanted).lower()}"
            )
