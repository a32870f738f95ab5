"""What secure sums cost: the bits of the protocol's own messages, sent as any others are."""

from __future__ import annotations

import numpy as np
import pytest

import camu
from camu.errors import InputError
from camu.planning import secure
from camu.planning.prices import unit_costs
from camu.planning.secure_words import not_hidden

OVERRIDES = {"training.model": "logistic", "training.secure_sum": "unit", "radio.d2d": "free"}


def world_of(**more: object) -> camu.World:
    return camu.build_world(camu.load_config(preset="demo", overrides={**OVERRIDES, **more}))


def test_bits_are_those_of_the_messages() -> None:
    """Against the messages that members make: keys, sealed shares, masked vectors, shares."""
    protocol = pytest.importorskip("camu.deploy.secure_sum")
    count, parameters = 5, 40
    names = [f"device {k}" for k in range(count)]
    members = {n: protocol.Member(b"run", n, n.encode().ljust(32), 1) for n in names}
    keys = {n: m.keys(lambda _: bytes(secure.SIGNATURE_BYTES)) for n, m in members.items()}
    dealt = {n: m.deal(keys, lambda *_: True) for n, m in members.items()}
    one = names[0]
    theirs = {n: dealt[n][one] for n in names}
    vector = members[one].mask(0, np.zeros(parameters + 1, np.uint32), keys)
    shares = members[one].reveal(0, names, [], keys, theirs)
    own = keys[one]
    published = len(own.masking[0]) + len(own.sealing) + len(own.signature)
    sealed = [len(dealt[n][m]) for n in names for m in names if m != n]
    sent = published + sum(sealed) // count + vector.nbytes + sum(map(len, shares.values()))
    world = world_of()
    up, down = secure.gather_bits(world, np.array([count]), parameters)
    assert up[0] == 8 * sent
    to_others = sum(len(dealt[n][m]) for n in names for m in names[1:] if m != n)  # one leads
    model = world.config.radio.bits_per_parameter * parameters
    assert down[0] == 8 * (count * published + to_others) + count + model


def test_seconds_and_joules_are_those_of_sending_these_bits() -> None:
    world, members, leader, size = world_of(), (0, 1, 2, 3), 1, 650
    costs = unit_costs(world, [members], [leader], [0.5], 32 * size, size)
    (up,), (down,) = secure.gather_bits(world, np.array([4]), size)
    others, power = np.array([0, 2, 3]), world.devices.power_watts
    gain = world.links.pair_gain(others, np.array([leader] * 3))
    sending = world.links.transmit_seconds(up, power[others], gain)
    answer = float(world.links.transmit_seconds(down, power[leader], gain.min()))
    assert costs.gather_seconds[0] == pytest.approx(sending.sum() + answer, rel=1e-12)
    assert costs.answer_seconds[0] == pytest.approx(answer, rel=1e-12)
    watts = world.links.supply_watts(power)
    joules = (watts[others] * sending).sum() + watts[leader] * answer
    assert costs.gather_joules[0] == pytest.approx(joules, rel=1e-12)
    assert costs.gather_bits[0] == 3 * up + down


def test_pairs_cost_what_they_did_and_are_named() -> None:
    world = world_of()
    model = world.config.radio.bits_per_parameter * 650
    for sizes in ([1], [2]):
        assert [own.tolist() for own in secure.gather_bits(world, np.array(sizes), 650)] == [
            [model],
            [model],
        ]
    plan = camu.plan(camu.make_scheme(world.config, "clustered"), world)
    small = [unit for unit in plan.units if len(unit.members) < 3]
    (sentence,) = not_hidden(plan, world)
    assert f"{sum(len(u.members) for u in small)} of 20 devices: their {len(small)} " in sentence


def test_a_bound_without_sums_is_refused() -> None:
    with pytest.raises(InputError, match=r"training\.secure_clip does nothing without"):
        camu.load_config(preset="demo", overrides={"training.secure_clip": 2.0})
