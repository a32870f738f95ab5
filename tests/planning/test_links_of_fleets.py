"""Link types of a fleet: air time, energy and queues against computations of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

import camu
from camu.config.radio_section import LINKS
from camu.live.downloads import fleet_csv
from camu.planning.groups import assess, clusters, within_hearing
from camu.planning.link_words import unsendable
from camu.planning.plan import Plan
from camu.planning.prices import unit_costs
from camu.planning.queues import Queue, arrivals, latest_ready
from camu.schemes import SCHEMES
from camu.simulation.clock import Clock
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.dry_run import dry_run
from camu.world import World
from camu.world.link_types import LINK_NAMES, LINK_TYPES

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "links.csv"
HEADER = "id,x,y,samples,link,rate_bps"
FORM_GROUPS = ("camu-balanced", "clustered", "dsc", "hierfavg", "label-kmeans", "random-clusters")


def config_of(**changes: Any) -> camu.Config:
    names = {key.replace("__", "."): value for key, value in changes.items()}
    return camu.load_config(preset="demo", overrides=names)


def fleet_of(path: Path, rows: Sequence[str], **changes: Any) -> World:
    path.write_text("\n".join((HEADER, *rows)) + "\n")
    return camu.build_world(config_of(fleet__file=str(path), **changes))


def mixed(**changes: Any) -> World:
    return camu.build_world(config_of(fleet__file=str(EXAMPLE), **changes))


def one_type(link: str, devices: int = 1, **changes: Any) -> World:
    region = {"name": "I", "devices": devices, "x": [-10.0, 0.0], "y": [-5.0, 5.0]}
    counts = np.ones((devices, 10), dtype=int)
    plain = {"fleet__regions": [region], "data__noniid_devices": 0}
    config = config_of(**plain, radio__link=link, **changes)
    return camu.build_world(config, label_counts=counts)


def plan_of(name: str, world: World) -> Plan:
    return camu.plan(camu.make_scheme(world.config, name), world)


def lora_frame_seconds(payload_bytes: int, factor: int, crc: int = 1) -> float:
    """Semtech's formula at 125 kHz, coding rate 4/5, with an explicit header."""
    slow = 1 if factor >= 11 else 0
    bits = 8 * payload_bytes - 4 * factor + 28 + 16 * crc
    symbols = 8 + max(math.ceil(bits / (4 * (factor - 2 * slow))) * 5, 0)
    return (12.25 + symbols) * 2**factor / 125e3


def test_the_configuration_knows_all_link_types() -> None:
    assert LINKS == LINK_NAMES


def test_a_model_of_21880_parameters_takes_four_hours_over_lora_at_one_percent() -> None:
    world = one_type("lora-sf7")
    power = world.devices.power_watts
    costs = unit_costs(world, [[0]], [0], power, 32 * 21_880, 21_880)
    size = 4 * 21_880
    full, rest = divmod(size, 222)
    air = full * lora_frame_seconds(222 + 13, 7) + lora_frame_seconds(rest + 13, 7)
    assert costs.uplink_seconds[0] == pytest.approx(100 * air, rel=1e-12)
    assert costs.uplink_seconds[0] / 3600 == pytest.approx(4.0, abs=0.05)
    acks = (full + 1) * lora_frame_seconds(13, 7, crc=0)
    states = 3.3 * (28e-3 * air + 11.2e-3 * acks + 1.5e-6 * 99 * air)
    assert costs.uplink_joules[0] == pytest.approx(states, rel=1e-12)


def test_another_duty_cycle_changes_the_wait_only() -> None:
    world, faster = one_type("lora-sf9"), one_type("lora-sf9", radio__duty_cycle=0.1)
    one, ten = plan_of("fedavg", world).units[0], plan_of("fedavg", faster).units[0]
    assert one.uplink_seconds == pytest.approx(10 * ten.uplink_seconds, rel=1e-12)
    assert (one.channels, ten.channels) == (800, 80)


def wifi_of_four(bits: int, snr_db: float) -> tuple[float, float]:
    """Seconds and joules of an upload among four stations of Wi-Fi 4, after Bianchi."""

    def tau(p: float) -> float:
        return 2 * (1 - 2 * p) / ((1 - 2 * p) * 17 + p * 16 * (1 - (2 * p) ** 6))

    p = brentq(lambda p: p - 1 + (1 - tau(p)) ** 3, 1e-9, 0.49, xtol=1e-15)
    t, thresholds = tau(p), [0.93, 3.95, 6.44, 9.71, 12.81, 17.05, 18.38, 19.64]
    mcs = max(k for k, least in enumerate(thresholds) if k == 0 or snr_db >= least)
    per_symbol = [26, 52, 78, 104, 156, 208, 234, 260][mcs]
    idle, one = (1 - t) ** 4, 4 * t * (1 - t) ** 3
    tries = 1 / (1 - 0.1 * 10 ** (-max(snr_db - thresholds[mcs], 0) / 0.9))
    size, packets = math.ceil(bits / 8), math.ceil(math.ceil(bits / 8) / 1500)
    seconds = air = 0.0
    for number, payload in ((packets - 1, 1500), (1, size - 1500 * (packets - 1))):
        frame = 36e-6 + 4e-6 * math.ceil((22 + 8 * (payload + 36)) / per_symbol)
        slot = idle * 9e-6 + one * (frame + 78e-6) + (1 - idle - one) * (frame + 34e-6)
        seconds += tries * number * slot / one
        air += tries * number * frame / (1 - p)
    acks = tries * packets * 28e-6
    heard = min(max(4 * seconds - air - acks, 0), 3 * (air + acks))
    waiting = max(4 * seconds - air - acks - heard, 0)
    return seconds, 3.3 * (0.29 * air + 0.09 * (acks + heard) + 0.03 * waiting)


def independent(world: World, unit: camu.planning.unit.Unit) -> tuple[float, float]:
    """Seconds and joules of the upload of a single device of the example."""
    k, bits = unit.leader, unit.payload_bits
    hertz = {"lora-sf7": 125e3, "nb-iot": 15e3, "wifi-n": 20e6, "lte": 9e5, "shannon": 1e6}
    noise_dbm = -174 + 7 + 10 * math.log10(hertz[unit.link])
    received = unit.power_watts * float(world.links.uplink_gain[k])
    snr_db = 10 * math.log10(received) + 30 - noise_dbm
    if unit.link == "shannon":
        rate = 1e6 * min(7.4, math.log2(1 + 10 ** ((snr_db - 1.8) / 10)))
        return bits / rate, (unit.power_watts / 0.35 + 0.1) * bits / rate
    if unit.link == "lora-sf7":  # four stations on eight channels
        size = math.ceil(bits / 8)
        full, rest = divmod(size, 222)
        tries = math.exp(2 * 3 * 0.01 / 8)
        air = tries * (full * lora_frame_seconds(235, 7) + lora_frame_seconds(rest + 13, 7))
        acks = tries * (full + 1) * lora_frame_seconds(13, 7, crc=0)
        return 100 * air, 3.3 * (28e-3 * air + 11.2e-3 * acks + 1.5e-6 * 99 * air)
    if unit.link == "nb-iot":
        repeats = 2 ** max(0, math.ceil((9.3 - snr_db) / (10 * math.log10(2))))
        air, waiting = bits / 16.9e3 * repeats, 3.8 * 20e-3 * 10
        joules = 3.8 * 220e-3 * air + waiting
        if world.devices.ids[k] == "meter-2":  # measured at 9000 bit/s
            return bits / 9000, joules * bits / 9000 / air
        return air, joules
    if unit.link == "lte":
        table = [-6.93, -5.15, -3.18, -1.25, 0.76, 2.7, 4.7, 6.53, 8.58, 10.37, 12.3, 14.18, 15.89]
        table += [17.82, 19.83]
        per_hertz = [*(2 * r for r in (78, 120, 193, 308, 449, 602)), *(4 * r for r in (378, 490))]
        per_hertz += [4 * 616, *(6 * r for r in (466, 567, 666, 772, 873, 948))]
        best = max(k for k, least in enumerate(table) if snr_db >= least)
        blocks = math.ceil(bits / (144 / 180 * 9e5 * per_hertz[best] / 1024 * 1e-3))
        return blocks * 1e-3 / 0.9, 2.0 * blocks * 1e-3 / 0.9 + 2 * 3 / 7 * blocks * 1e-3 / 14
    return wifi_of_four(bits, snr_db)


def test_a_round_of_a_mixed_fleet_by_seconds_and_radio_states() -> None:
    world = mixed()
    plan, total = plan_of("fedavg", world), 0.0
    ends: dict[str, list[float]] = {}
    for unit in sorted(plan.units, key=lambda unit: unit.ready_seconds):
        seconds, joules = independent(world, unit)
        assert unit.uplink_seconds == pytest.approx(seconds, rel=1e-9), unit.link
        assert unit.uplink_joules == pytest.approx(joules, rel=1e-9), unit.link
        total += joules + unit.compute_joules
        before = ends.setdefault(unit.link, [])
        in_turn = unit.link in ("shannon", "wifi-n")  # of the others all have a channel
        begin = max([unit.ready_seconds, *before]) if in_turn else unit.ready_seconds
        before.append(begin + seconds)
    last = max(end for own in ends.values() for end in own)
    total += 0.07 * world.devices.count * last  # all wait for the last one
    assert plan.round_seconds == pytest.approx(last, rel=1e-9)
    assert plan.round_joules == pytest.approx(total, rel=1e-9)
    final = dry_run(world, camu.make_scheme(world.config, "fedavg"), 2).final
    assert final.virtual_seconds == pytest.approx(2 * last, rel=1e-9)
    assert final.total_joules == pytest.approx(2 * total, rel=1e-9)


def slot_by_slot(ready: np.ndarray, air: np.ndarray, queues: list[Queue]) -> list[float]:
    """First come, first served: whoever begins counts how many of its type still send."""
    ends = [0.0] * len(ready)
    for link in {queue.link for queue in queues}:
        own = sorted((float(ready[k]), k) for k, queue in enumerate(queues) if queue.link == link)
        channels = queues[own[0][1]].channels
        done: list[float] = []
        for time, k in own:
            begin = time
            while sum(end > begin for end in done) >= channels:
                begin = min(end for end in done if end > begin)
            done.append(begin + float(air[k]))
            ends[k] = done[-1]
    return ends


def some_queues(seed: int) -> tuple[np.ndarray, np.ndarray, list[Queue]]:
    draw = np.random.default_rng(seed)
    kinds = [Queue("lora-sf7", 3), Queue("wifi-n", 1), Queue("lte", 2)]
    queues = [kinds[k] for k in draw.integers(3, size=20)]
    return draw.uniform(0, 5, 20), draw.uniform(0.1, 3, 20), queues


@pytest.mark.parametrize("seed", range(20))
def test_each_link_type_queues_for_its_own_channels(seed: int) -> None:
    ready, air, queues = some_queues(seed)
    ends = arrivals(ready, air, "tdma", queues)
    assert ends.tolist() == pytest.approx(slot_by_slot(ready, air, queues), rel=1e-12)
    clock = Clock(in_turn=True)
    for unit, one in enumerate(zip(ready.tolist(), air.tolist(), queues, strict=True)):
        clock.start(unit, *one)
    found = {}
    for _ in queues:  # as after a checkpoint, at every arrival
        clock = Clock.restore(True, clock.state())
        unit = clock.next_arrival()
        assert unit is not None
        found[unit] = clock.now_seconds
    assert [found[unit] for unit in range(20)] == ends.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_units_may_be_late_as_long_as_their_channels_end_in_time(seed: int) -> None:
    ready, air, queues = some_queues(seed)
    end = arrivals(ready, air, "tdma", queues).max()
    latest = latest_ready(ready, air, "tdma", queues)
    assert (latest >= ready).all()
    # All at their latest moments, each type alone: no more send at once than it has channels.
    for link in {queue.link for queue in queues}:
        own = [k for k, queue in enumerate(queues) if queue.link == link]
        for moment in latest[own] + 1e-9:
            busy = sum(latest[k] <= moment < latest[k] + air[k] for k in own)
            assert busy <= queues[own[0]].channels
    assert (latest + air).max() == pytest.approx(end, rel=1e-12)


def test_lora_members_send_side_by_side_and_wifi_members_in_turn() -> None:
    for link, together in (("lora-sf7", True), ("wifi-n", False)):
        world = one_type(link, 3)
        power = world.devices.power_watts
        costs = unit_costs(world, [[0, 1, 2]], [0], power[:1], 8000, 250)
        snr_db = world.links.device_snr_db([0], [1, 2])[0]
        kind: Any = LINK_TYPES[link]
        heard = replace(kind, gateway_channels=1) if together else kind
        alone = heard.send(8000, snr_db, 2)
        answer = kind.send(8000, snr_db.min()).seconds
        sending = alone.seconds.max() if together else alone.seconds.sum()
        assert costs.gather_seconds[0] == pytest.approx(sending + answer, rel=1e-9)
        joules = (alone.transmit_joules + alone.receive_joules).tolist()
        assert costs.member_gather_joules[1:].tolist() == pytest.approx(joules, rel=1e-9)


def test_units_of_one_link_type_wait_for_each_other_and_for_no_other_type() -> None:
    world = mixed()
    link = world.devices.link
    halls = [k for k, name in enumerate(link) if name == "wifi-n"]
    fields = [k for k, name in enumerate(link) if name == "lora-sf7"]
    both = world.with_devices(sample_seconds=np.ones(len(link)))  # all are ready at once
    power = both.devices.power_watts

    def waits(units: list[list[int]]) -> list[float]:
        leaders = [unit[0] for unit in units]
        costs = unit_costs(both, units, leaders, power[leaders], 8000, 250)
        return list(costs.ready_seconds(1.0) - costs.busy_seconds(1.0))

    alone = waits([halls[:2], halls[2:]])
    assert alone[0] == pytest.approx(0.0, abs=1e-12)
    assert alone[1] > 0
    together = waits([halls[:2], halls[2:], fields[:2], fields[2:]])
    assert together == pytest.approx([*alone, 0.0, 0.0], abs=1e-12)


@pytest.mark.parametrize("name", FORM_GROUPS)
def test_units_have_one_link_type_whose_devices_hear_each_other(name: str) -> None:
    world = mixed()
    units = plan_of(name, world).units
    for unit in units:
        assert {world.devices.link[k] for k in unit.members} == {unit.link}
        if unit.link in ("nb-iot", "lte"):
            assert len(unit.members) == 1
    assert any(len(unit.members) > 1 for unit in units) or name == "label-kmeans"


def test_a_large_mixed_fleet_is_planned_in_pure_clusters(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    kinds = ("lora-sf7", "lora-sf10", "nb-iot", "wifi-n", "lte", "802.15.4", "")
    places = draw.uniform(-40, 0, (400, 2)).round(2).tolist()
    rows = [f"d{k},{x},{y},50,{kinds[k % 7]}," for k, (x, y) in enumerate(places)]
    world = fleet_of(tmp_path / "fleet.csv", rows, fleet__unreachable="keep")
    groups = clusters(world)
    for group in groups.members:
        assert len({world.devices.link[k] for k in group}) == 1
    assert len(groups) < 400
    plan = plan_of("hierfavg", world)
    assert sum(len(unit.members) for unit in plan.units) == 400


def test_devices_that_do_not_hear_each_other_are_in_groups_of_their_own() -> None:
    world = mixed()
    parts = within_hearing(world, [list(range(world.devices.count))])
    assert sorted(k for part in parts for k in part) == list(range(world.devices.count))
    assert all(len({world.devices.link[k] for k in part}) == 1 for part in parts)
    assert len(parts) == 6  # three types whose devices hear each other, and three others
    assess(world, parts)
    with pytest.raises(camu.InputError, match=r"meter-1 \(nb-iot\).*do not hear each other"):
        assess(world, [[0, 4]], [0])


def test_power_is_at_most_that_of_the_link_type() -> None:
    devices = mixed().devices
    by_link = dict(zip(devices.link, devices.max_power_watts.tolist(), strict=True))
    assert by_link == pytest.approx(
        {"lora-sf7": 10**-1.6, "nb-iot": 0.2, "wifi-n": 0.1, "lte": 0.2, "shannon": 2.0}
    )
    assert devices.power_watts[0] == 0.02


def test_a_measured_snr_counts_in_the_band_of_the_link(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("id,snr_db,samples,link\na,5,10,lora-sf8\nb,7,10,nb-iot\nc,9,10,\n")
    world = camu.build_world(config_of(fleet__file=str(path)))
    assert (10 * np.log10(world.links.uplink_snr())).tolist() == pytest.approx([5, 7, 9])


def test_devices_below_the_lowest_snr_are_named(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    rows = "a,-11,10,lora-sf7\nb,0,10,lora-sf7\nc,-30,10,nb-iot\nd,0,10,lora-sf7\n"
    path.write_text(f"id,snr_db,samples,link\n{rows}")
    kept = config_of(fleet__file=str(path), fleet__unreachable="keep")
    found = " ".join(camu.build_world(kept).warnings())
    assert "device a (-11 dB): out of reach" in found
    assert "device c (-30 dB): out of reach" in found
    assert camu.build_world(kept.replace({"fleet.unreachable": "leave-out"})).left_out


def test_a_warning_of_uploads_speaks_of_the_devices_that_share_the_band(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("id,snr_db,samples,link\na,20,10,lora-sf7\nb,-9,10,\nc,-9,10,\n")
    *_, warning = camu.build_world(config_of(fleet__file=str(path))).warnings()
    assert warning.startswith("devices with the link shannon: the SNR at the base station is about")


def test_words_on_a_model_that_can_hardly_be_sent_are_computed() -> None:
    world = one_type("lora-sf12", 5)
    plan = plan_of("fedavg", world)
    (text,) = unsendable(plan, world)
    unit = sorted(plan.units, key=lambda unit: unit.uplink_seconds)[2]
    packets = math.ceil(unit.payload_bits / 8 / 51)
    assert f"is {packets:,} packets and takes {unit.uplink_seconds / 86400:.1f} days" in text
    fits = int(text.split("%; ")[1].split(" bits fit")[0].replace(",", ""))
    snr = float(world.links.uplink_snr()[unit.leader])
    for bits, enough in ((fits, True), (fits + 1, False)):
        sent = LINK_TYPES["lora-sf12"].send(bits, 10 * math.log10(snr), 5)
        assert (sent.seconds <= 3600) == enough
    entries = fits // (32 + math.ceil(math.log2(plan.parameters)))
    assert f"the {entries} largest entries" in text
    assert f"a model of {fits // 32} parameters" in text
    assert unsendable(plan_of("fedavg", one_type("wifi-n", 3)), one_type("wifi-n", 3)) == []


def test_a_plan_and_a_fleet_file_keep_link_types(tmp_path: Path) -> None:
    world = mixed()
    plan = plan_of("clustered", world)
    assert Plan.from_dict(plan.to_dict(world)).units == plan.units
    path = tmp_path / "again.csv"
    path.write_text(fleet_csv(world.devices))
    again = camu.build_world(config_of(fleet__file=str(path))).devices
    assert again.link == world.devices.link
    np.testing.assert_array_equal(again.rate_bps, world.devices.rate_bps)


@pytest.mark.parametrize(
    "name", ["camu-joint", "fedl", "ofdma-energy", "ofdma-time", "resource-blocks"]
)
def test_schemes_that_divide_one_band_refuse_link_types(name: str) -> None:
    assert name in SCHEMES
    with pytest.raises(camu.InputError, match=f"scheme {name}: .* set radio.link"):
        plan_of(name, one_type("nr", 3))


@pytest.mark.parametrize(
    ("row", "changes", "words"),
    [
        ("a,0,0,10,lora-sf6,", {}, r"line 2, column link: lora-sf6: .* did you mean `lora-sf"),
        ("a,0,0,10,wifi-n,0", {}, r"line 2, column rate_bps: 0; a rate is a positive number"),
        ("a,0,0,10,,9000", {}, r"line 2, column rate_bps: 9000; .* name it in the column link"),
        ("a,0,0,10,nr,", {"radio__uplink": "analog"}, r"radio.uplink = analog: .* to digital"),
        ("a,0,0,10,nr,", {"radio__duty_cycle": 0.0}, "radio.duty_cycle"),
        ("a,0,0,10,nr,", {"radio__link": "wifi"}, r"radio.link = 'wifi': .*did you mean `wifi-"),
    ],
)
def test_bad_links_are_refused_with_their_place(
    tmp_path: Path, row: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(camu.InputError, match=words):
        _ = fleet_of(tmp_path / "fleet.csv", [row], **changes).links.types


def test_fewer_clusters_than_link_types_can_form_are_refused() -> None:
    wished = mixed(clustering__count=3)
    with pytest.raises(camu.InputError, match=r"clustering.count = 3: .* set it to 6 or more"):
        clusters(wished)
    assert len(clusters(mixed(clustering__count=7))) == 7


@pytest.mark.slow
def test_a_run_of_a_mixed_fleet_goes_on_with_updates_on_their_way(tmp_path: Path) -> None:
    """Those over LoRa are on their way for many rounds of the others."""
    changes = {"scheme__name": "fedbuff", "training__model": "logistic", "run__rounds": 8}
    config = mixed(**changes, machine__workers=1).config
    whole = run_in_directory(config, RunDirectory(tmp_path / "whole"))
    out = RunDirectory(tmp_path / "broken")
    run_in_directory(config.replace({"run.rounds": 3}), out)
    again = run_in_directory(config, out, resume=True)
    assert again.final.virtual_seconds == whole.final.virtual_seconds
    assert again.final.joules == whole.final.joules
    assert again.final.accuracy == whole.final.accuracy
