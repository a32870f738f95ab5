"""Every scheme in worlds that differ in what a price may depend on: one number, wherever it is.

The price of a design is that of the plan, and the costs of a dry run are those of the run; budgets
are kept, joules and bits add up, what devices keep is free of noise, and normalised updates have no
bias.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu
from camu.planning.contribution import label_bias
from camu.schemes import SCHEMES, CamuBalanced, clusters
from camu.schemes.compute_rounds import energy_budget
from camu.simulation import Callback, Record, Run
from camu.simulation.dry_run import dry_run
from camu.world import World
from helpers.configs import IDEAL

ROUNDS = 3
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
LINKS, BOARDS = EXAMPLES / "links.csv", EXAMPLES / "boards.csv"
BASE: dict[str, Any] = {
    "fleet.regions": [
        {"name": name, "devices": 5, "x": [x, x + 10.0], "y": [-5.0, 5.0]}
        for name, x in (("I", -10.0), ("II", 10.0))
    ],
    "fleet.cpu_hz": (2e8, 2e9),
    "data.noniid_devices": 8,
    "data.samples_per_device": 20,
    "training.model": "logistic",
    "run.rounds": ROUNDS,
    "run.eval_every": ROUNDS,
    "machine.workers": 1,
}
DOWNLINK = {"radio.downlink": True, "radio.receive_watts": 2.0}
UNEQUAL = {"data.partition": "dirichlet", "data.size_exponent": 0.7}
EPOCHS = {"training.local_update": "epoch", "training.batch_samples": 8}
BATTERIES = {"clustering.leader": "rotating", "fleet.battery_joules": 100.0}
POWER = {
    "fleet.idle_watts": 0.05,
    "fleet.static_watts": 0.3,
    "fleet.min_hz": 1e8,
    "fleet.dvfs": True,
    "radio.amplifier_efficiency": 0.35,
    "radio.circuit_watts": 0.1,
}
INTERVAL = {
    "run.every_seconds": 5.0,
    "fleet.idle_watts": 0.2,
    "fleet.sleep_watts": 0.01,
    "fleet.battery_joules": 100.0,
}
MISSED = {"radio.phase_error_rad": 0.2, "radio.time_offset_symbols": 0.1}  # over the air
# Clusters of a region do not hear those of the others, but disturb them.
FAR = {
    "radio.carrier_sense_dbm": -60.0,
    "radio.snr_gap_db": 3.0,
    "radio.max_bits_per_hz": 7.4,
}
# Rounds take a tenth of a second: so fast that devices get somewhere.
MOVING = {"fleet.speed_mps": (20.0, 60.0), "fleet.pause_seconds": 0.01}
STATIONS = {"fleet.base_station_file": str(Path(__file__).parent / "two_stations.csv")}
WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ideal devices": IDEAL,
    "downlink": DOWNLINK,
    "4 bits": {"radio.bits_per_parameter": 4},
    "8 bits, downlink, ofdma": {"radio.bits_per_parameter": 8, "radio.access": "ofdma", **DOWNLINK},
    "epochs, unequal data": {**EPOCHS, **UNEQUAL},
    "momentum, clipping, schedule": {
        "training.momentum": 0.9,
        "training.clip_norm": 1.0,
        "training.weight_decay": 0.01,
        "training.optimiser_state": "keep",
        "training.schedule": "cosine",
        "training.schedule_by": "step",
        **UNEQUAL,
    },
    "noise": {"radio.noise_dbm": -80.0, "radio.uplink": "hybrid"},
    "noise on raw weights": {"radio.uplink": "hybrid-weights", "radio.noise_dbm": -110.0},
    "digital, unequal data": {"radio.uplink": "digital", **UNEQUAL},
    "analog": {"radio.uplink": "analog", "radio.noise_dbm": -80.0, **UNEQUAL, **MISSED},
    "packets and tries": {
        "radio.uplink": "packet",
        "radio.packet_tries": 3,
        "radio.noise_dbm": -85.0,
    },
    "packets, ofdma": {"radio.uplink": "packet", "radio.noise_dbm": -85.0, "radio.access": "ofdma"},
    "dvfs": {"fleet.dvfs": True, "radio.access": "ofdma"},
    "free medium": {"radio.d2d": "free"},
    "free medium, fading between devices": {
        "radio.d2d": "free",
        "radio.fading": "rayleigh",
        "radio.d2d_fading": True,
    },
    "static power": POWER,
    "idle power, downlink": {"fleet.idle_watts": 0.2, **DOWNLINK},
    "asleep between rounds": {**INTERVAL, **DOWNLINK},
    "interference, capped rates": FAR,
    "cqi table": {"radio.rate": "table", **UNEQUAL},
    "fading between devices": {
        "radio.fading": "rayleigh",
        "radio.fading_correlation": 0.5,
        "radio.d2d_fading": True,
        **UNEQUAL,
    },
    "rates from estimates": {
        "radio.fading": "rician",
        "radio.antennas": 2,
        "radio.noise_dbm": -85.0,
        "radio.pilot_symbols": 4,
        "radio.csi_correlation": 0.9,
        **DOWNLINK,
    },
    "mixed links": {"fleet.file": str(LINKS), "fleet.dvfs": True, **DOWNLINK},
    "boards, auto": {
        "fleet.file": str(BOARDS),
        "fleet.cycles_per_sample": "auto",
        "fleet.dvfs": True,
        **DOWNLINK,
    },
    "wifi": {"radio.link": "wifi-n", "fleet.dvfs": True, **UNEQUAL},
    "rotating leaders": BATTERIES,
    "empty batteries": {"fleet.battery_joules": 0.05, **DOWNLINK},
    "moving": {**MOVING, "fleet.dvfs": True, **DOWNLINK},
    "moving and replanned": {**MOVING, **BATTERIES, "clustering.replan_every": 1},
    "several cells": {**STATIONS, "radio.cells": "interfering", "fleet.dvfs": True},
    "cells apart, ofdma, moving": {
        **(STATIONS | MOVING | DOWNLINK),
        "radio.cells": "apart",
        "radio.access": "ofdma",
        "clustering.replan_every": 2,
    },
    "secure sums": {"training.secure_sum": "unit", "radio.bits_per_parameter": 16, **DOWNLINK},
    "all at once": {
        **POWER,
        "radio.bits_per_parameter": 4,
        "fleet.dvfs": True,
        **DOWNLINK,
        **UNEQUAL,
        **EPOCHS,
        **BATTERIES,
    },
}
# A batch does not change the time of an epoch, and pilots leave nothing in small batteries.
REFUSED = {("adaptive-batch", name) for name in WORLDS if EPOCHS.items() <= WORLDS[name].items()}
REFUSED |= {("cost-effective", "empty batteries"), ("fedsa", "empty batteries")}
# No bits are sent: neither codecs nor P1 have a meaning.
WITHOUT_BITS = (
    "camu-joint",
    "fedl",
    "fedlamp",
    "fedpaq",
    "ef21",
    "hier-local-qsgd",
    "ofdma-energy",
    "ofdma-time",
    "resource-blocks",
)
REFUSED |= {(name, "analog") for name in (*WITHOUT_BITS, "width-scaled", "fedper", "fedrep")}
REFUSED |= {("fedrep", "momentum, clipping, schedule")}  # parts of a model take plain steps
# They divide one band at Shannon's rate.
SHANNON_ONLY = ("camu-joint", "fedl", "ofdma-energy", "ofdma-time", "resource-blocks")
OTHER_BANDS = ("mixed links", "wifi", "several cells", "cells apart, ofdma, moving")
REFUSED |= {(name, where) for name in SHANNON_ONLY for where in OTHER_BANDS}
REFUSED |= {("camu-joint", "packets and tries")}  # P1 sends every update once
# Packets are sent one by one, and radios of link types have modulations of their own.
AIR = {name for name, kind in SCHEMES.items() if kind.family == "over the air"}
ALONE = ("packets and tries", "packets, ofdma", *OTHER_BANDS)
REFUSED |= {(name, where) for name in AIR for where in ALONE}
REFUSED -= {("cluster-air", where) for where in ALONE}  # its leaders send bits
REFUSED |= {("cluster-air", where) for where in OTHER_BANDS[:2]}
# P2 knows TDMA, and steps of which each takes a mini-batch; its pilot needs everyone.
P2_REFUSES = (
    *OTHER_BANDS,
    "downlink",
    "8 bits, downlink, ofdma",
    "epochs, unequal data",
    "analog",
    "packets and tries",
    "packets, ofdma",
    "dvfs",
    "idle power, downlink",
    "asleep between rounds",
    "rates from estimates",
    "boards, auto",
    "moving",
    "empty batteries",
    "all at once",
)
REFUSED |= {("camu-p2", where) for where in P2_REFUSES}
# Members that send bits to a leader: elsewhere a unit is a device, or members transmit at once.
HIDDEN = {
    "clustered",
    "compute-rounds",
    "camu",
    "dsc",
    "camu-joint",
    "hti",
    "camu-nova",
    "cluster-scaffold",
    "cluster-nova",
    "hierfavg",
    "random-clusters",
    "label-kmeans",
    "hier-local-qsgd",
    "hti-dynamic",
    "camu-balanced",
    "camu-air",
}
REFUSED |= {(name, "secure sums") for name in SCHEMES if name not in HIDDEN}
# Worlds, plans and runs are made once; under xdist all tests of a world share a process.
IN_WORLD = {where: pytest.param(where, marks=pytest.mark.xdist_group(where)) for where in WORLDS}
PAIRS = [
    pytest.param(name, where, marks=IN_WORLD[where].marks)
    for where in WORLDS
    for name in SCHEMES
    if (name, where) not in REFUSED
]
# These choose by what training shows, so that no forecast can know their rounds.
LEARN = {
    *("adaptive-tau", "age-scheduling", "cost-effective", "fedsa", "near-iid-bandit", "oort"),
    *("camu-p2", "camu-auto"),
}
# Where devices leave, leaders change or links fade, a round costs another sum than the plan's.
CHANGING = {"rotating leaders", "empty batteries", "all at once", "packets and tries"}
CHANGING |= {
    "fading between devices",
    "free medium, fading between devices",
    "rates from estimates",
}
CHANGING |= {"moving", "moving and replanned", "cells apart, ofdma, moving"}
CHOICES = ("pilot", "select", "ready", "deadline", "revise")


@cache
def world_of(where: str) -> World:
    return camu.build_world(camu.load_config(preset="demo", overrides={**BASE, **WORLDS[where]}))


@cache
def scheme_of(name: str) -> camu.Scheme:
    return camu.make_scheme(world_of("plain").config, name)


@cache
def plan_of(name: str, where: str) -> camu.Plan:
    return camu.plan(scheme_of(name), world_of(where))


def overrides(scheme: camu.Scheme, *hooks: str) -> bool:
    return any(getattr(type(scheme), hook) is not getattr(camu.Scheme, hook) for hook in hooks)


class Watch(Callback):
    """The joules of each device and what units keep, at the end of a run."""

    def on_round(self, run: Run, record: Record) -> None:
        self.device_joules = run.device_joules
        self.kept = {unit: np.array(own) for unit, own in run.kept.items()}


@cache
def run_of(name: str, where: str) -> tuple[camu.History, Watch]:
    watch = Watch()
    return camu.simulate(world_of(where), scheme_of(name), [watch]).history, watch


def costs_of(record: Record) -> list[float]:
    return [record.virtual_seconds, *record.joules.values(), *(record.bits or {}).values()]


def joules_of(record: Record, name: str) -> dict[str, float]:
    """The joules of a record; those of sending are not known before where units send at once."""
    return {k: v for k, v in record.joules.items() if name not in AIR or k != "transmit"}


def seconds_asleep(plan: camu.Plan, where: str) -> float:
    """How long all devices sleep in a run."""
    if where != "asleep between rounds":
        return 0.0
    period = 5.0 * np.ceil(plan.round_seconds / 5.0)
    return float((ROUNDS - 1) * (period - plan.round_seconds))


def gather_of(members: int, where: str, model: int) -> int:
    """The bits of a gather: all members but the leader send, and the leader answers."""
    if members == 1:
        return 0
    if where != "secure sums" or members == 2:
        return members * model
    # Of each: keys and signature, 94 bytes to each other, 32 bits per entry, a share of each.
    sent = 160 + 94 * (members - 1) + 4 * (model // 16 + 1) + 33 * members
    told = 160 * members + 94 * (members - 1) ** 2
    return (members - 1) * 8 * sent + 8 * told + members + model


@pytest.mark.parametrize(("name", "where"), PAIRS)
def test_a_run_costs_what_was_forecast(name: str, where: str) -> None:
    history, _ = run_of(name, where)
    if name in LEARN:
        return
    forecast = dry_run(world_of(where), scheme_of(name))
    assert [one.round for one in forecast.records] == [one.round for one in history.records]
    for dry, real in zip(forecast.records, history.records, strict=True):
        assert real.joules["transmit"] <= dry.joules["transmit"] * (1 + 1e-9)
        if name in AIR and where == "empty batteries" and dry.units < real.units:
            return  # what a burst did not radiate is left in a battery, and a device goes on
        dry = replace(dry, joules=joules_of(dry, name))
        real = replace(real, joules=joules_of(real, name))
        assert costs_of(dry) == pytest.approx(costs_of(real), rel=1e-9)


@pytest.mark.parametrize(("name", "where"), PAIRS)
def test_a_run_costs_what_was_planned(name: str, where: str) -> None:
    """Where all units take part in every round; bits are those of its members and leaders."""
    scheme, world, plan = scheme_of(name), world_of(where), plan_of(name, where)
    if where in CHANGING or overrides(scheme, *CHOICES):
        return
    final = run_of(name, where)[0].final
    asleep = seconds_asleep(plan, where)
    seconds = ROUNDS * plan.round_seconds + asleep
    joules = ROUNDS * plan.round_joules + 10 * 0.01 * asleep
    assert final.virtual_seconds == pytest.approx(seconds, rel=1e-9)
    if name in AIR:
        assert final.total_joules <= joules * (1 + 1e-9)
        final = replace(final, joules=dry_run(world, scheme).final.joules)
    assert final.total_joules == pytest.approx(joules, rel=1e-9)
    model = world.config.radio.bits_per_parameter * plan.parameters
    gathers = sum(u.local_updates * gather_of(len(u.members), where, model) for u in plan.units)
    assert final.bits == {
        "uplink": ROUNDS * sum(unit.payload_bits for unit in plan.units),
        "downlink": ROUNDS * len({unit.link for unit in plan.units}) * model,
        "gather": ROUNDS * gathers,
    }


@pytest.mark.parametrize(("name", "where"), PAIRS)
def test_joules_of_devices_and_units_add_up(name: str, where: str) -> None:
    history, watch = run_of(name, where)
    if not overrides(scheme_of(name), "pilot"):
        assert watch.device_joules.sum() == pytest.approx(history.final.total_joules, rel=1e-9)
    plan = plan_of(name, where)
    members = [device for unit in plan.units for device in unit.members]
    idle = world_of(where).devices.idle_watts[members].sum() * plan.round_seconds
    total = sum(unit.joules for unit in plan.units) + idle
    assert plan.round_joules == pytest.approx(total, rel=1e-12)
    for unit in plan.units:
        saved = unit.dvfs.joules if unit.dvfs else 0.0
        each = unit.fixed_joules + unit.local_updates * unit.update_joules
        each += unit.interference_joules + unit.interference_listening_joules
        assert unit.joules == pytest.approx(each - saved, rel=1e-9)


@pytest.mark.parametrize(("name", "where"), sorted(REFUSED))
def test_a_scheme_without_an_answer_says_so(name: str, where: str) -> None:
    with pytest.raises(camu.CamuError, match=f"scheme {name}: "):
        run_of(name, where)


@pytest.mark.parametrize("where", IN_WORLD.values())
def test_the_design_of_camu_balanced_costs_what_its_plan_costs(where: str) -> None:
    design = CamuBalanced().design(world_of(where))
    plan = scheme_of("camu-balanced").plan(world_of(where))
    assert plan.round_joules == pytest.approx(design.joules, rel=1e-9)
    assert plan.round_seconds == pytest.approx(design.seconds, rel=1e-9)


@pytest.mark.parametrize("where", IN_WORLD.values())
@pytest.mark.parametrize("name", ["compute-rounds", "camu-joint", "hti", "hti-dynamic"])
def test_a_budget_is_never_exceeded(name: str, where: str) -> None:
    if (name, where) in REFUSED:
        pytest.skip("refused with words")
    world, scheme = world_of(where), scheme_of(name)
    budget = energy_budget(clusters(world), 4)
    assert scheme.plan(world).round_joules <= budget * (1 + 1e-9)
    if where not in CHANGING:
        final = run_of(name, where)[0].final
        asleep = 10 * 0.01 * seconds_asleep(plan_of(name, where), where)  # no part of a round
        assert final.total_joules <= (ROUNDS * budget + asleep) * (1 + 1e-9)
    if name == "compute-rounds":  # its own round is the budget
        return
    least = scheme_of("clustered").plan(world).round_joules
    for share in (1.1, 1.3, 2.0):
        config = world.config.replace({"allocation.energy_joules": share * least})
        plan = scheme.plan(replace(world, config=config))
        assert plan.round_joules <= share * least * (1 + 1e-9)


@pytest.mark.parametrize("where", [IN_WORLD["noise"], IN_WORLD["plain"]])
@pytest.mark.parametrize("name", ["scaffold", "cluster-scaffold", "feddyn"])
def test_what_devices_keep_is_not_changed_by_noise(name: str, where: str) -> None:
    """In the first round all start from the same model, whatever the uplink does later."""
    kept = []
    for uplink in ("hybrid", "digital"):
        changes = {"radio.uplink": uplink, "run.rounds": 1, "run.eval_every": 1}
        watch = Watch()
        world = camu.build_world(world_of(where).config.replace(changes))
        camu.simulate(world, scheme_of(name), [watch])
        kept.append(watch.kept)
    assert kept[0].keys() == kept[1].keys() != set()
    for unit, exact in kept[1].items():
        assert (kept[0][unit] == exact).all()


@pytest.mark.parametrize("where", IN_WORLD.values())
@pytest.mark.parametrize("name", ["fednova", "cluster-nova", "camu-nova"])
def test_normalised_updates_add_no_bias(name: str, where: str) -> None:
    if (name, where) in REFUSED:
        pytest.skip("refused with words")
    found = label_bias(plan_of(name, where), world_of(where))
    assert found.distance == pytest.approx(found.distance_of_weights, abs=1e-12)
    if name == "fednova":  # its weights are those of the data
        assert found.distance == pytest.approx(0, abs=1e-12)
