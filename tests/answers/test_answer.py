"""What `camu answer` finds, against plans that are made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from camu.answers.answer import Rounds, answer
from camu.answers.assumptions import moved
from camu.answers.budget import Budget, options
from camu.answers.dry import DryPlan
from camu.answers.leaders import leaders, rules
from camu.answers.upgrades import holdups, purchase, reference, upgraded
from camu.errors import InputError
from camu.planning.central import send_data
from camu.world import World, build_world
from helpers.configs import small

SNR_DB = (14.0, 1.0, 12.0, -4.0, 15.0, 13.0)
CLOCK = (1.0, 0.9, 0.01, 1.1, 1.2, 0.8)  # GHz


def fleet(folder: Path, **keys: object) -> World:
    """Six devices: d2 computes slowly, d3 and d1 send slowly."""
    head = "id,x,y,snr_db,cpu_hz,label_0,label_1"
    rows = [
        f"d{k},{10 * k},0,{snr},{clock}e9,{40 - 6 * k},{6 * k}"
        for k, (snr, clock) in enumerate(zip(SNR_DB, CLOCK, strict=True))
    ]
    path = folder / "fleet.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    own = {"fleet__file": str(path), "scheme__name": "fedsgd", "radio__uplink": "digital"}
    return build_world(small(**{**own, **keys}))


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> DryPlan:
    """FedAvg on the fleet."""
    return DryPlan.of(fleet(tmp_path_factory.mktemp("fleet")))


def seconds_with(dry: DryPlan, device: int, like: int) -> float:
    """A round after a device was replaced, by a file that is written anew."""
    world = dry.world
    path = Path(str(world.config.fleet.file)).with_name(f"other-{device}.csv")
    rows = Path(str(world.config.fleet.file)).read_text().splitlines()
    cells, model = rows[device + 1].split(","), rows[like + 1].split(",")
    cells[3] = str(max(float(cells[3]), float(model[3])))
    cells[4] = model[4]
    rows[device + 1] = ",".join(cells)
    path.write_text("\n".join(rows) + "\n")
    return DryPlan.of(build_world(world.config.replace({"fleet.file": str(path)}))).cost.seconds


def test_the_devices_that_hold_a_round_up_are_those_of_a_search_over_all(dry: DryPlan) -> None:
    like = reference(dry.world, dry.plan)
    found = {one.device: one.saved_seconds for one in holdups(dry, like, count=6)}
    assert len(found) == 5  # not the one that others are made like
    for device, saved in found.items():
        expected = dry.cost.seconds - seconds_with(dry, device, like)
        assert saved == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert set(list(found)[:2]) == {2, 3}


def test_an_upgrade_is_like_the_slowest_of_the_fastest_quarter(dry: DryPlan) -> None:
    like = reference(dry.world, dry.plan)
    assert dry.world.devices.ids[like] == "d0"  # d4 is the fastest, of 6 two are in the quarter


def test_a_better_uplink_of_one_s_own_is_kept(dry: DryPlan) -> None:
    after = upgraded(dry.world, [1, 4], 0)
    gain = dry.world.links.uplink_gain
    assert after.links.uplink_gain[4] == gain[4] > gain[0] == after.links.uplink_gain[1]
    assert after.devices.cpu_hz[4] == dry.world.devices.cpu_hz[0]
    assert after.devices.samples.tolist() == dry.world.devices.samples.tolist()


def test_a_purchase_is_as_good_as_the_best_pair(dry: DryPlan) -> None:
    like = reference(dry.world, dry.plan)
    bought = purchase(dry, like, 2)
    others = [k for k in range(6) if k != like]
    best = min(
        DryPlan.of(upgraded(dry.world, [a, b], like)).cost.seconds
        for a in others
        for b in others
        if a < b
    )
    assert bought.seconds == pytest.approx(best)
    assert set(bought.devices) == {2, 3}


def test_a_budget_says_how_many_rounds_fit(dry: DryPlan) -> None:
    cost = dry.cost
    assert Budget(seconds=7.5 * cost.seconds).rounds(dry) == 7
    assert Budget(seconds=7 * cost.seconds, joules=3.1 * cost.joules).rounds(dry) == 3
    assert Budget(megabytes=2 * cost.megabytes).rounds(dry) == 2
    assert Budget(round_joules=0.9 * cost.joules).rounds(dry) == 0
    assert Budget().rounds(dry) == np.inf


def test_plans_that_fit_do_and_nothing_milder_does(dry: DryPlan) -> None:
    budget, rounds = Budget(joules=0.4 * dry.bill(10).joules), 10
    found = options(dry, budget, rounds)
    fitting = [one for one in found if one.rounds >= rounds]
    assert fitting
    for one in fitting:
        assert one.bill.joules <= 0.4 * dry.bill(10).joules
        assert one.changes > 0
    assert [one.used for one in fitting] == sorted(one.used for one in fitting)
    own = [one for one in fitting if one.scheme == "fedsgd" and one.devices == 6]
    assert [one.bits for one in own] in ([16], [8], [])
    config = dry.world.config.replace({"radio.bits_per_parameter": 8})
    again = DryPlan.of(build_world(config)).bill(10)
    eight = [o for o in options(dry, Budget(joules=again.joules), 10) if o.bits == 8]
    same = next(one for one in eight if one.scheme == "fedsgd" and one.devices == 6)
    assert same.bill == pytest.approx(again)


def test_fewer_devices_are_the_quickest_ones(dry: DryPlan) -> None:
    found = options(dry, Budget(seconds=0.2 * dry.bill(10).seconds), 10)
    kept = next(one for one in found if one.scheme == "fedsgd" and one.devices == 3)
    path = Path(str(dry.world.config.fleet.file))
    rows = path.read_text().splitlines()
    chosen = [rows[0], rows[1], rows[5], rows[6]]  # d0, d4 and d5; d2 computes slowly
    few = path.with_name("few.csv")
    few.write_text("\n".join(chosen) + "\n")
    changes = {"fleet.file": str(few), "radio.bits_per_parameter": kept.bits}
    again = DryPlan.of(build_world(dry.world.config.replace(changes)))
    assert kept.bill == pytest.approx(again.bill(10))
    assert kept.samples_share == pytest.approx(0.5)


def test_every_assumption_moves_what_it_should(dry: DryPlan) -> None:
    found = {one.what: one for one in moved(dry, 10)}
    learning = dry.bill(10)
    assert found["rounds"].learning[1].seconds == pytest.approx(2 * learning.seconds)
    data = send_data(dry.world).bill
    assert found["bytes per sample"].sending[1].megabytes == pytest.approx(2 * data.megabytes)
    assert found["bytes per sample"].learning[0] == learning
    slow = dry.world.with_devices(cycles_per_sample=2 * dry.world.devices.cycles_per_sample)
    assert found["cycles per sample"].learning[1] == DryPlan.of(slow).bill(10)
    assert "CPU clock" not in found  # the file has it
    assert "uplink gain" not in found  # it was measured
    # A measured SNR stays as it is: more power is only more energy.
    louder = found["transmit power"].learning
    assert louder[1].seconds == pytest.approx(learning.seconds)
    assert louder[1].joules > learning.joules > louder[0].joules


def test_leaders_are_listed_with_the_members_that_are_heard_better(tmp_path: Path) -> None:
    dry = DryPlan.of(fleet(tmp_path, scheme__name="camu", clustering__count=2))
    listed = leaders(dry)
    assert {one.device for one in listed} == {unit.leader for unit in dry.plan.units}
    for one in listed:
        unit = next(unit for unit in dry.plan.units if unit.leader == one.device)
        assert one.better == sum(SNR_DB[k] > SNR_DB[one.device] for k in unit.members)
    config = dry.world.config.replace({"clustering.leader": "best-uplink"})
    best = DryPlan.of(replace(dry.world, config=config))
    found = {rule.name: rule.seconds for rule in rules(dry)}
    assert found["best-uplink"] == best.cost.seconds
    assert next(iter(found)) == "exemplar"


def test_an_unknown_device_to_be_like_is_refused(dry: DryPlan) -> None:
    with pytest.raises(InputError, match="--like d9: no device has this id"):
        answer(dry, Rounds(1, "asked"), like="d9")


def test_megabytes_per_device_add_up_to_what_is_sent(tmp_path: Path) -> None:
    for name in ("fedsgd", "clustered", "camu"):
        dry = DryPlan.of(fleet(tmp_path, scheme__name=name, clustering__count=2))
        sent = (dry.cost.uplink_bits + dry.cost.gather_bits) / 8e6
        assert dry.device_megabytes.sum() == pytest.approx(sent)


def test_rounds_at_an_interval_cost_what_is_drawn_above_resting(tmp_path: Path) -> None:
    keys = {"fleet__idle_watts": 0.5, "fleet__sleep_watts": 0.1}
    plain = DryPlan.of(fleet(tmp_path, **keys))
    hourly = DryPlan.of(fleet(tmp_path, run__every_seconds=3600.0, **keys))
    found, at_once = hourly.bill(10), plain.bill(10)
    assert found.seconds == pytest.approx(10 * 3600)
    # While a device takes part it would have slept otherwise.
    asleep = 10 * 6 * 0.1 * plain.cost.seconds
    assert found.joules == pytest.approx(at_once.joules - asleep, rel=1e-6)
    sent, apart = send_data(plain.world), send_data(hourly.world)
    assert apart.idle_joules.sum() == pytest.approx(0.8 * sent.idle_joules.sum())
    assert hourly.at_once().cost.seconds == pytest.approx(plain.cost.seconds)
    assert plain.at_once() is plain


def test_rules_and_upgrades_count_the_same_energy_as_a_round(tmp_path: Path) -> None:
    keys = {"fleet__idle_watts": 0.5, "fleet__sleep_watts": 0.1, "scheme__name": "camu"}
    hourly = DryPlan.of(fleet(tmp_path, run__every_seconds=3600.0, clustering__count=2, **keys))
    found = answer(hourly, Rounds(10, "asked"))
    round_joules = hourly.bill(1).joules - hourly.bill(0).joules
    assert found.rules[0].joules == pytest.approx(round_joules, rel=1e-6)
    world = upgraded(hourly.world, [found.holdups[0].device], found.like)
    after = DryPlan.of(world, hourly.scheme).bill(1).joules
    assert found.holdups[0].saved_joules == pytest.approx(round_joules - after, rel=1e-6)


def test_rules_of_leading_are_priced_with_all_devices(tmp_path: Path) -> None:
    """With batteries for a round and a half, most devices are soon away in a dry run."""
    plain = DryPlan.of(fleet(tmp_path, scheme__name="camu", clustering__count=2))
    own = 1.5 * plain.cost.joules / 6
    tiny, ample = (plain.world.with_devices(battery_joules=np.full(6, own * k)) for k in (1, 1e4))
    assert rules(DryPlan.of(tiny)) == rules(DryPlan.of(ample))
    config = tiny.config.replace({"clustering.leader": "rotating"})
    alone = DryPlan.of(replace(tiny, config=config)).cost.joules
    assert alone < 0.9 * rules(DryPlan.of(tiny))[2].joules


def test_a_unit_of_slow_devices_is_replaced_as_a_whole() -> None:
    path = Path(__file__).parents[2] / "docs" / "examples" / "links.csv"
    dry = DryPlan.of(build_world(small(fleet__file=str(path), scheme__name="camu")))
    like = reference(dry.world, dry.plan)
    assert holdups(dry, like)[0].saved_seconds < 0.01 * dry.cost.seconds
    bought = purchase(dry, like, 4)
    ids = {dry.world.devices.ids[k] for k in bought.devices}
    assert ids == {"field-1", "field-2", "field-3", "field-4"}  # all with LoRa
    assert bought.seconds < 0.01 * dry.cost.seconds
