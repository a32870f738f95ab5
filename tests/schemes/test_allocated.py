"""Schemes that train with an answer per device: what they spend is what the answer says."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from camu.allocation.fedl import FedlProblem, solve_fedl
from camu.allocation.ofdma import OfdmaEnergy, OfdmaTime
from camu.allocation.ofdma_exact import solve_ofdma_energy, solve_ofdma_time
from camu.allocation.resource_blocks import BlocksProblem, solve_blocks
from camu.errors import InputError
from camu.planning.dvfs import full_speed_costs
from camu.planning.plan import Plan
from camu.schemes import SCHEMES
from camu.schemes.allocated import _allocated
from camu.schemes.device_problems import device_problem, equal_shares
from camu.schemes.plans import plan
from camu.simulation import simulate
from camu.world import World

Tiny = Callable[..., World]


def planned(world: World, name: str, **parameters: Any) -> Plan:
    kind: Any = SCHEMES[name]
    return plan(kind(**parameters), world)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("name", ["ofdma-energy", "ofdma-time", "fedl", "resource-blocks"])
def test_the_snr_of_an_uplink_is_that_within_its_own_band(
    tiny: Tiny, name: str, access: str
) -> None:
    """Noise is white, so that a device with a tenth of the band has a tenth of the noise."""
    world = tiny(radio__access=access, radio__uplink="packet", radio__noise_dbm=-80.0)
    found = planned(world, name)
    costs = full_speed_costs(world, found.units, found.parameters)
    for unit, snr in zip(found.units, costs.uplink_snr, strict=True):
        if unit.bandwidth_hz is not None:
            noise = 1e-11 * unit.bandwidth_hz / world.config.radio.bandwidth_hz
            gain = world.links.uplink_gain[unit.leader]
            assert snr == pytest.approx(unit.power_watts * gain / noise)
    assert any(unit.bandwidth_hz is not None for unit in found.units)
    shares = {row["bandwidth_hz"] for row in csv.DictReader(found.to_csv(world).splitlines())}
    assert name == "fedl" or len(shares) > 1  # what the file says is what each has


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_least_energy_costs_less_than_equal_shares_in_as_long_a_round(
    tiny: Tiny, access: str
) -> None:
    equal = planned(tiny(radio__access="ofdma"), "local-sgd")
    best = planned(world := tiny(radio__access=access), "ofdma-energy")
    assert best.access == "ofdma"
    assert best.round_seconds == pytest.approx(equal.round_seconds, rel=1e-6)
    assert best.round_joules < 0.999 * equal.round_joules
    assert best.arrival_seconds == pytest.approx(best.round_seconds, rel=1e-6)  # all at once
    assert best.column("bandwidth_hz").sum() == pytest.approx(world.links.radio.bandwidth_hz)
    final = simulate(world, SCHEMES["ofdma-energy"]()).history.final
    assert final.total_joules == pytest.approx(final.round * best.round_joules)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_the_shortest_round_costs_no_more_than_equal_shares(tiny: Tiny, access: str) -> None:
    equal = planned(tiny(radio__access="ofdma"), "local-sgd")
    best = planned(world := tiny(radio__access=access), "ofdma-time")
    assert best.access == "ofdma"
    assert best.round_seconds < 0.999 * equal.round_seconds
    assert busy_joules(best).sum() == pytest.approx(busy_joules(equal).sum(), rel=1e-6)
    assert best.column("bandwidth_hz").sum() == pytest.approx(world.links.radio.bandwidth_hz)
    final = simulate(world, SCHEMES["ofdma-time"]()).history.final
    assert final.virtual_seconds == pytest.approx(final.round * best.round_seconds)
    assert final.total_joules == pytest.approx(final.round * best.round_joules)


REAL_WORLDS: dict[str, dict[str, Any]] = {
    "ideal": {},
    "lossy": {"radio__circuit_watts": 0.5, "radio__amplifier_efficiency": 0.3},
    "leaky": {"fleet__static_watts": 0.2, "fleet__idle_watts": 0.07},
    "all": {
        "radio__circuit_watts": 0.2,
        "radio__amplifier_efficiency": 0.35,
        "fleet__static_watts": 2.0,
        "fleet__idle_watts": 0.3,
        "radio__max_bits_per_hz": 6.0,
    },
}


def busy_joules(plan: Plan) -> Any:
    """What the price counts for computing and sending, by unit."""
    return plan.column("compute_joules") + plan.column("uplink_joules")


@pytest.mark.parametrize("keys", REAL_WORLDS.values(), ids=REAL_WORLDS)
def test_the_plan_of_an_answer_costs_what_the_answer_says(tiny: Tiny, keys: Any) -> None:
    world = tiny(**keys)
    equal = equal_shares(planned(world, "fedsgd"), world)
    deadline = equal.round_seconds - equal.column("downlink_seconds").max()

    least = device_problem("ofdma-energy", equal, world)
    assert isinstance(least, OfdmaEnergy)
    least = replace(least, deadline_seconds=max(deadline, least.shortest_deadline))
    cheapest = solve_ofdma_energy(least)
    own = busy_joules(_allocated(equal, world, cheapest))
    assert own == pytest.approx(cheapest.device_joules, rel=1e-6)
    assert own.sum() <= busy_joules(equal).sum() * (1 + 1e-9)

    timed = device_problem("ofdma-time", equal, world)
    assert isinstance(timed, OfdmaTime)
    assert timed.energy_joules == pytest.approx(busy_joules(equal).sum())
    fastest = _allocated(equal, world, solve_ofdma_time(timed))
    assert busy_joules(fastest).sum() <= timed.energy_joules * (1 + 1e-6)
    assert fastest.round_seconds <= equal.round_seconds * (1 + 1e-6)
    assert fastest.round_joules <= equal.round_joules * (1 + 1e-6)  # idle power is then less too

    for kind, solve in ((FedlProblem, solve_fedl), (BlocksProblem, solve_blocks)):
        problem = device_problem(kind.kind, equal, world)
        found: Any = solve(problem)  # type: ignore[operator]
        sends = found.bandwidth_hz > 0.0
        priced = busy_joules(_allocated(equal, world, found))
        assert priced[sends] == pytest.approx(found.device_joules[sends], rel=1e-6)


def test_the_price_of_seconds_moves_fedl_from_slow_to_fast(tiny: Tiny) -> None:
    world = tiny()
    plans = [planned(world, "fedl", joules_per_second=price) for price in (1e-6, 1.0, 1e3)]
    seconds = [own.round_seconds for own in plans]
    joules = [own.round_joules for own in plans]
    assert seconds == sorted(seconds, reverse=True)
    assert joules == sorted(joules)
    assert plans[-1].column("cpu_share").max() == 1.0
    assert plans[0].column("cpu_share") == pytest.approx(0.1)
    for price, own in zip((1e-6, 1.0, 1e3), plans, strict=True):
        value = own.round_joules + price * sum(
            [own.column("compute_seconds").max(), *own.column("uplink_seconds")]
        )
        others = [
            one.round_joules
            + price * sum([one.column("compute_seconds").max(), *one.column("uplink_seconds")])
            for one in plans
        ]
        assert value == min(others)


def test_blocks_are_for_those_whose_samples_arrive(tiny: Tiny) -> None:
    world = tiny(run__rounds=2)
    own = planned(world, "resource-blocks", block_share=0.5)
    chosen = [unit for unit in own.units if unit.bandwidth_hz is not None]
    assert len(chosen) == 3
    assert {unit.bandwidth_hz for unit in chosen} == {world.links.radio.bandwidth_hz / 3}
    assert simulate(world, SCHEMES["resource-blocks"]()).history.final.units == 3


def test_blocks_with_interference_go_to_those_who_can_stand_it(tiny: Tiny) -> None:
    """Against every way to give the blocks away, with the paper's formulas written out."""
    most = 2e-12
    world = tiny(
        radio__uplink="packet", radio__noise_dbm=-80.0, radio__access="ofdma", run__rounds=4
    )
    own = planned(world, "resource-blocks", block_share=1 / 3, interference_watts=most)
    free = planned(world, "resource-blocks", block_share=1 / 3)
    equal = planned(world, "local-sgd")
    radio, leaders = world.links.radio, equal.column("leader")
    gains = world.links.uplink_gain[leaders]
    assert (radio.amplifier_efficiency, radio.circuit_watts) == (1.0, 0.0)
    snr = np.zeros((6, 2))
    worth = np.zeros((6, 2))
    for i, j in np.ndindex(6, 2):
        unit, noise = equal.units[i], 1e-11 / 2 + most * (j + 1) / 2

        def air(power: float, i: int = i, noise: float = noise) -> float:
            bits = np.log2(1 + power * gains[i] / noise / 10 ** (radio.snr_gap_db / 10))
            return float(equal.units[i].payload_bits / (radio.bandwidth_hz / 2 * bits))

        left = busy_joules(equal).max() - unit.compute_joules
        most_watts = brentq(lambda p, left=left, air=air: p * air(p) - left, 1e-3, 100.0)
        power = min(most_watts, world.devices.max_power_watts[leaders[i]])
        # Blocks are three times as wide as equal shares, so that all are in time.
        assert unit.compute_seconds + air(power) <= equal.round_seconds
        snr[i, j] = power * gains[i] / noise
        worth[i, j] = unit.samples * np.exp(-(10**0.0023) / snr[i, j])
    ways = itertools.permutations(range(6), 2)
    best = max(ways, key=lambda rows: sum(worth[i, j] for j, i in enumerate(rows)))
    found = full_speed_costs(world, own.units, own.parameters).uplink_snr
    for j, i in enumerate(best):
        assert own.units[i].interference_watts == pytest.approx(most * (j + 1) / 2)
        assert found[i] == pytest.approx(snr[i, j])
        assert own.units[i].uplink_seconds > free.units[i].uplink_seconds
    assert sum(unit.interference_watts > 0 for unit in own.units) == 2
    assert Plan.from_dict(own.to_dict(world)) == own
    trained = simulate(
        world, SCHEMES["resource-blocks"](block_share=1 / 3, interference_watts=most)
    )
    quiet = simulate(world, SCHEMES["resource-blocks"](block_share=1 / 3))
    assert trained.history.final.total_joules > quiet.history.final.total_joules
    assert trained.history.final.virtual_seconds > quiet.history.final.virtual_seconds


def test_interference_that_no_device_stands_is_refused(tiny: Tiny) -> None:
    with pytest.raises(
        InputError, match=r"scheme\.parameters\.interference_watts = 1 .* give less"
    ):
        planned(tiny(), "resource-blocks", interference_watts=1.0)


def test_bandwidth_and_frequency_of_a_unit_are_priced_saved_and_checked(tiny: Tiny) -> None:
    world = tiny()
    usual = planned(world, "fedsgd")
    half = world.links.radio.bandwidth_hz / 2
    count = len(usual.units)
    slow = usual.with_columns(bandwidth_hz=[half] * count, cpu_share=[0.5] * count).repriced(world)
    assert slow.column("compute_seconds") == pytest.approx(2 * usual.column("compute_seconds"))
    assert slow.column("compute_joules") == pytest.approx(usual.column("compute_joules") / 4)
    gain, power = world.links.uplink_gain, usual.column("power_watts")
    air = world.links.transmit_seconds(usual.column("payload_bits"), power, gain, half)
    assert slow.column("uplink_seconds") == pytest.approx(air)
    assert Plan.from_dict(slow.to_dict(world)) == slow
    assert "cpu_share" not in usual.to_dict(world)["units"][0]
    for change in ({"bandwidth_hz": 0.0}, {"cpu_share": 0.0}, {"cpu_share": 1.5}):
        unit = replace(usual.units[0], **change)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=next(iter(change))):
            replace(usual, units=(unit, *usual.units[1:]))


def test_members_that_slow_down_do_so_from_their_own_frequency(tiny: Tiny) -> None:
    world = tiny(fleet__dvfs=True)
    own = planned(world, "fedl", joules_per_second=1.0)
    for unit in own.units:
        assert unit.dvfs is not None
        full = unit.cpu_share * world.devices.cpu_hz[unit.leader]
        assert unit.dvfs.cpu_hz[0] <= full * (1 + 1e-9)
    assert np.isfinite(own.round_joules)
