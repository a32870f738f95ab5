"""Seconds and joules of a plan and a run against sums by hand: FLOPs, boards, Shannon's rate."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import camu
from camu.config import load_config
from camu.simulation.dry_run import round_cost
from camu.world import World, build_world

# FLOPs per sample of 8x8 digits: two per multiplication; backward twice as many, but for the
# gradient of the images; and the numbers that are trained.
CNN = (64 * 9 * 10, 16 * 90 * 20, 80 * 50, 50 * 10)
RESNET = (
    *(64 * 9 * 16, 64 * 9 * 16 * 16, 64 * 9 * 16 * 16),
    *(16 * 16 * 32, 16 * 9 * 16 * 32, 16 * 9 * 32 * 32),
    *(4 * 32 * 64, 4 * 9 * 32 * 64, 4 * 9 * 64 * 64),
    64 * 10,
)
LAYERS = {"logistic": (64 * 10,), "cnn": CNN, "resnet8": RESNET}
PARAMETERS = {
    "logistic": 65 * 10,
    "cnn": 10 * 10 + 91 * 20 + 2 * 20 + 81 * 50 + 51 * 10,
    # Kernels of convolutions, two numbers per channel of ten norms, and the classes.
    "resnet8": 9 * (16 + 2 * 256 + 48 * 32 + 96 * 64)
    + (16 * 32 + 32 * 64)
    + 2 * (3 * 16 + 3 * 32 + 3 * 64)
    + 65 * 10,
}
BOARDS = {"pi-4": (8.3e9, 2.7, 6.4), "esp32-s3": (0.05e9, 0.105, 0.3), "pi-5": (21.2e9, 3.0, 11.0)}
ROWS = "id,x,y,samples,board\na,0,0,40,pi-4\nb,5,0,60,esp32-s3\nc,9,3,50,pi-5\n"
ROUNDS = 2


def world_of(folder: Path, model: str) -> World:
    (folder / "fleet.csv").write_text(ROWS)
    changes = {
        "fleet.file": str(folder / "fleet.csv"),
        "fleet.cycles_per_sample": "auto",
        "data.partition": "iid",
        "training.model": model,
        "training.batch_fraction": 0.5,
        "radio.receive_watts": 0.0,
        "run.rounds": ROUNDS,
        "run.eval_every": ROUNDS,
        "machine.workers": 1,
    }
    return build_world(load_config(overrides=changes))


@pytest.mark.parametrize("model", ["logistic", "cnn", "resnet8"])
def test_ledger_and_plan_are_those_of_an_independent_computation(
    tmp_path: Path, model: str
) -> None:
    world = world_of(tmp_path, model)
    first, *others = LAYERS[model]
    flops = 2 * (2 * first + 3 * sum(others))
    compute, joules = [], []
    for samples, name in zip((20, 30, 25), world.devices.board, strict=True):
        speed, idle, busy = BOARDS[name]
        compute.append(samples * flops / speed)
        joules.append((busy - idle) * compute[-1])
    radio = world.config.radio
    bits = 32 * PARAMETERS[model]
    noise = 1.380649e-23 * 290 * radio.bandwidth_hz * 10 ** (radio.noise_figure_db / 10)
    air = []
    for gain in world.links.uplink_gain.tolist():
        snr = 0.5 * gain / noise / 10 ** (radio.snr_gap_db / 10)
        air.append(bits / radio.bandwidth_hz / min(math.log2(1 + snr), radio.max_bits_per_hz))
    end = 0.0  # they send in turn: first come, first served
    for device in np.argsort(compute):
        end = max(end, compute[device]) + air[device]
    watts = 0.5 / radio.amplifier_efficiency + radio.circuit_watts
    idle_joules = [BOARDS[name][1] * end for name in world.devices.board]
    each = np.array(joules) + watts * np.array(air) + np.array(idle_joules)

    scheme = camu.schemes.FedAvg()
    plan = camu.plan(scheme, world)
    assert plan.parameters == PARAMETERS[model]
    assert plan.round_seconds == pytest.approx(end, rel=1e-9)
    assert plan.round_joules == pytest.approx(each.sum(), rel=1e-9)
    assert [unit.compute_joules for unit in plan.units] == pytest.approx(joules, rel=1e-9)
    assert [unit.idle_watts for unit in plan.units] == [2.7, 0.105, 3.0]
    forecast = round_cost(world, scheme, plan)
    assert forecast.seconds == pytest.approx(end, rel=1e-9)
    assert forecast.idle_joules == pytest.approx(sum(idle_joules), rel=1e-9)
    history = camu.simulate(world, scheme).history
    assert history.final.virtual_seconds == pytest.approx(ROUNDS * end, rel=1e-9)
    assert history.final.total_joules == pytest.approx(ROUNDS * each.sum(), rel=1e-9)
    assert history.devices is not None
    assert history.devices.compute_joules == pytest.approx(ROUNDS * np.array(joules), rel=1e-9)
    assert history.devices.idle_joules == pytest.approx(ROUNDS * np.array(idle_joules), rel=1e-9)


def test_batteries_know_each_device_s_own_idle_power(tmp_path: Path) -> None:
    """Of two alike but for their idle power the hungrier one is empty first, as arithmetic says."""
    path = tmp_path / "fleet.csv"
    path.write_text(
        "id,x,y,samples,board,idle_watts,battery_joules\n"
        "a,0,0,40,pi-4,1.0,50\nb,0,0.1,40,pi-4,4.0,50\n"
    )
    changes = {"fleet.file": str(path), "run.rounds": 500, "training.model": "logistic"}
    world = build_world(load_config(preset="devices", overrides=changes))
    plan = camu.plan(camu.schemes.FedAvg(), world)
    life = camu.simulation.dry_run.battery_life(world, camu.schemes.FedAvg(), plan)
    hungry, modest = life.round_joules[1], life.round_joules[0]
    assert hungry - modest == pytest.approx(3.0 * plan.round_seconds, rel=0.01)
