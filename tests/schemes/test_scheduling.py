"""Scheduling: who trains under a deadline, in turn, by the channel, and fairly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from camu.errors import InputError
from camu.planning.queues import arrivals
from camu.schemes import SCHEMES
from camu.schemes.contract import State, View
from camu.schemes.plans import plan
from camu.simulation import simulate
from camu.world import World

Tiny = Callable[..., World]


def chosen_by(world: World, name: str, **parameters: Any) -> list[list[int]]:
    """The units that a scheme selects in each round of a run."""
    kind: Any = SCHEMES[name]
    found: list[list[int]] = []

    class Watched(kind):  # type: ignore[misc]
        def select(self, view: View, state: State) -> Iterable[int]:
            found.append(list(super().select(view, state)))
            return found[-1]

    simulate(world, Watched(**parameters))
    return found


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("share", [0.7, 0.85, 1.0])
def test_those_of_fedcs_arrive_before_the_deadline(tiny: Tiny, share: float, access: str) -> None:
    world = tiny(run__rounds=3, radio__access=access)
    scheme = SCHEMES["fedcs"](round_share=share)  # type: ignore[call-arg]
    whole = plan(scheme, world)
    chosen = chosen_by(world, "fedcs", round_share=share)
    assert all(own == chosen[0] for own in chosen)
    history = simulate(world, scheme).history
    assert [record.units for record in history.records[1:]] == [len(chosen[0])] * 3
    limit = max(share * whole.round_seconds, whole.column("seconds").min())
    assert history.final.virtual_seconds <= 3 * limit * (1 + 1e-6)
    if share == 1.0:
        assert len(chosen[0]) == len(whole.units)


def test_a_deadline_that_nobody_meets_is_refused_with_the_least_that_will_do(tiny: Tiny) -> None:
    with pytest.raises(InputError, match=r"round_share = 1e-06: no device .* set round_share to"):
        plan(SCHEMES["fedcs"](round_share=1e-6), tiny())  # type: ignore[call-arg]
    made = plan(SCHEMES["local-sgd"](), world := tiny())
    least = made.column("seconds").min() / made.round_seconds
    kept = plan(SCHEMES["fedcs"](round_share=1.001 * least), world)  # type: ignore[call-arg]
    assert len(chosen_by(world, "fedcs", round_share=1.001 * least)[0]) == 1
    assert kept.round_seconds == made.round_seconds
    with pytest.raises(InputError, match=f"to {least:.2f}"):
        plan(SCHEMES["fedcs"](round_share=0.999 * least), world)  # type: ignore[call-arg]


def test_fedcs_goes_on_where_all_devices_are_late(tiny: Tiny) -> None:
    """Deep fades make updates late; they arrive in a later round, and nobody waits for them."""
    world = tiny(run__rounds=40, run__eval_every=40, radio__fading="rayleigh")
    made = plan(SCHEMES["local-sgd"](), world)
    least = made.column("seconds").min() / made.round_seconds
    scheme: Any = SCHEMES["fedcs"](round_share=least)  # type: ignore[call-arg]
    limit = plan(scheme, world).column("seconds").max()
    records = simulate(world, scheme).history.records
    assert len(records) == 41
    assert {record.units for record in records[1:]} > {0, 1}
    seconds = np.diff([record.virtual_seconds for record in records])
    assert (seconds <= limit * (1 + 1e-6)).all()


def test_the_greedy_choice_of_fedcs_is_near_the_most_that_fit(tiny: Tiny) -> None:
    """Of all subsets of the devices; greedy is no optimum, but at most one device short here."""
    world = tiny(run__rounds=1)
    for share in (0.5, 0.55, 0.6, 0.7, 0.8):
        whole = plan(SCHEMES["fedcs"](round_share=share), world)  # type: ignore[call-arg]
        ready, air = whole.column("ready_seconds"), whole.column("uplink_seconds")
        limit = max(share * whole.round_seconds, (ready + air).min())
        most = max(
            size
            for size in range(1, len(ready) + 1)
            for own in itertools.combinations(range(len(ready)), size)
            if arrivals(ready[list(own)], air[list(own)], "tdma").max() <= limit * (1 + 1e-12)
        )
        (chosen,) = chosen_by(world, "fedcs", round_share=share)
        assert most - 1 <= len(chosen) <= most


def test_nobody_waits_longer_than_a_turn_in_round_robin(tiny: Tiny) -> None:
    chosen = chosen_by(tiny(run__rounds=9), "round-robin", share=0.7)  # 4 of 6 devices
    for device in range(6):
        rounds = [number for number, own in enumerate(chosen) if device in own]
        assert max(np.diff([-1, *rounds])) <= 2
    assert {len(own) for own in chosen} == {4}


def test_the_best_channels_have_the_largest_sum_of_rates(tiny: Tiny) -> None:
    world = tiny(run__rounds=5, radio__fading="rayleigh")
    for round_, own in enumerate(chosen_by(world, "best-channel", share=0.5)):
        gain = world.links.uplink_gain * world.links.fading(round_)
        rate = world.links.rate_bps(world.devices.power_watts, gain)
        most = max(rate[list(three)].sum() for three in itertools.combinations(range(6), 3))
        assert rate[own].sum() == pytest.approx(most)


def test_of_forgotten_channels_the_best_ones_are_those_on_average(tiny: Tiny) -> None:
    """A scheduler knows no more of a channel than those who choose its rate."""
    keys = {"run__rounds": 5, "radio__fading": "rayleigh", "radio__antennas": 1}
    forgotten = chosen_by(tiny(radio__csi_correlation=0.0, **keys), "best-channel", share=0.5)
    assert all(own == forgotten[0] for own in forgotten)
    known = chosen_by(tiny(**keys), "best-channel", share=0.5)
    assert any(own != known[0] for own in known)


def test_proportional_fairness_gives_equal_turns_to_unequal_devices(tiny: Tiny) -> None:
    """Over channels that fade alike; best-channel prefers those that are near."""
    world = tiny(run__rounds=1, radio__fading="rayleigh", fleet__power_watts=1e-6)
    rounds = 4000
    scheme: Any = SCHEMES["proportional-fair"](share=0.5)  # type: ignore[call-arg]
    best: Any = SCHEMES["best-channel"](share=0.5)  # type: ignore[call-arg]
    own = plan(scheme, world)
    state: State = {}
    fair, greedy = np.zeros(6), np.zeros(6)
    for round_ in range(rounds):
        view = at_round(world, own, round_)
        fair[list(scheme.select(view, state))] += 1
        greedy[list(best.select(view, {}))] += 1
    assert fair / rounds == pytest.approx(0.5, rel=0.03)
    assert np.ptp(greedy / rounds) > 0.1


def at_round(world: World, own: Any, round_: int) -> View:
    nothing: Any = None
    zeros = np.zeros(world.devices.count)
    return View(world, own, round_, 0.0, 0.0, zeros, zeros, nothing, nothing)
