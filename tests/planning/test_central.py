"""Sending all data once, against arithmetic that is written out here."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from camu.answers.answer import compare_with_sending
from camu.answers.dry import DryPlan
from camu.planning.central import sample_bytes, send_data
from camu.world import build_world
from camu.world.world import World
from helpers.configs import small

PARAMETERS = 6520  # of the preset's CNN
SNR_DB = (3.0, 7.0, 10.0, 20.0)
HERTZ = 1e6
WATTS = 0.2
ROUND_BYTES = (4 + 1) * 4 * PARAMETERS  # four uploads, and a broadcast
CLOCK, CYCLES, KAPPA, BATCH = 1e9, 2e6, 1e-28, 5


def fleet(
    folder: Path, samples: int, size: float | None, link: str = "shannon", **keys: object
) -> World:
    """Four devices with measured SNR, all with the same computer."""
    rows = [
        f"d{k},{snr},{samples},{CLOCK:g},{CYCLES:g},{KAPPA:g},{WATTS},{link}"
        for k, snr in enumerate(SNR_DB)
    ]
    head = "id,snr_db,samples,cpu_hz,cycles_per_sample,capacitance,power_watts,link"
    path = folder / "fleet.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    own = {
        "fleet__file": str(path),
        "scheme__name": "fedavg",
        "training__batch_samples": BATCH,
        "radio__uplink": "digital",
        "radio__downlink": False,
        "data__sample_bytes": size,
    }
    return build_world(small(**{**own, **keys}))


def shannon_seconds(bits: float) -> list[float]:
    """Alone on the whole band, without a gap to Shannon's rate."""
    return [bits / (HERTZ * math.log2(1 + 10 ** (snr / 10))) for snr in SNR_DB]


def lora_packet_seconds(size: int) -> float:
    """Semtech's time on air at SF9, 125 kHz, coding rate 4/5, eight symbols of preamble."""
    symbol = 2**9 / 125e3
    coded = 8 * size - 4 * 9 + 28 + 16
    return (8 + 4.25 + 8 + max(math.ceil(coded / (4 * 9)) * 5, 0)) * symbol


def lora_upload_seconds(size: int) -> float:
    """Packets of 115 bytes, four senders on eight channels, a duty cycle of 1 %."""
    full, rest = divmod(size, 115)
    air = full * lora_packet_seconds(128) + (lora_packet_seconds(rest + 13) if rest else 0.0)
    return math.exp(2 * 3 * 0.01 / 8) * air / 0.01


def test_few_samples_are_sent_rather_than_learned_from(tmp_path: Path) -> None:
    world, rounds = fleet(tmp_path, samples=20, size=65.0), 10
    found = compare_with_sending(DryPlan.of(world), rounds)
    send, learn = shannon_seconds(20 * 65 * 8), shannon_seconds(32 * PARAMETERS)
    assert found.server is not None
    compute = BATCH * CYCLES / CLOCK
    assert found.sending.seconds == pytest.approx(sum(send) + found.server.seconds)
    assert found.sending.joules == pytest.approx(WATTS * sum(send))
    assert found.sending.megabytes == pytest.approx(4 * 20 * 65 / 1e6)
    assert found.learning.seconds == pytest.approx(rounds * (compute + sum(learn)))
    each = WATTS * sum(learn) + 4 * KAPPA * BATCH * CYCLES * CLOCK**2
    assert found.learning.joules == pytest.approx(rounds * each)
    assert found.learning.megabytes == pytest.approx(rounds * ROUND_BYTES / 1e6)
    assert set(found.cheaper.values()) == {"sending"}


def test_large_data_over_slow_links_are_learned_from_rather_than_sent(tmp_path: Path) -> None:
    world = fleet(tmp_path, samples=3000, size=3000.0, link="lora-sf9")
    rounds = 20
    found = compare_with_sending(DryPlan.of(world), rounds)
    # All channels are free: each device sends at once, as long as its duty cycle lets it.
    send, learn = lora_upload_seconds(3000 * 3000), lora_upload_seconds(4 * PARAMETERS)
    assert found.server is not None
    assert found.sending.seconds == pytest.approx(send + found.server.seconds, rel=1e-6)
    compute = BATCH * CYCLES / CLOCK
    assert found.learning.seconds == pytest.approx(rounds * (compute + learn), rel=1e-6)
    assert found.sending.megabytes == pytest.approx(4 * 9.0)
    assert set(found.cheaper.values()) == {"learning"}
    assert send > 17 * rounds * learn  # 36 MB against 2.6 MB
    assert found.even_rounds.megabytes == pytest.approx(36e6 / ROUND_BYTES)


def test_both_ways_cost_the_same_at_the_break_even(tmp_path: Path) -> None:
    rounds, samples = 10, 400
    size = rounds * ROUND_BYTES / (4 * samples)
    found = compare_with_sending(DryPlan.of(fleet(tmp_path, samples, size)), rounds)
    assert found.cheaper["megabytes"] == "equal"
    assert found.even_rounds.megabytes == pytest.approx(rounds)
    assert found.even_bytes.megabytes == pytest.approx(size)
    # Energy is equal once the data are as much larger than what devices send as computing costs.
    radio, computing = WATTS * sum(shannon_seconds(1.0)), 4 * KAPPA * BATCH * CYCLES * CLOCK**2
    more = rounds * computing / (radio * 8 * samples)
    sent = rounds * 4 * PARAMETERS / samples
    assert found.even_bytes.joules == pytest.approx(sent + more, rel=1e-6)
    again = compare_with_sending(
        DryPlan.of(fleet(tmp_path, samples, found.even_bytes.seconds)), rounds
    )
    assert again.sending.seconds == pytest.approx(again.learning.seconds, rel=1e-6)
    assert again.even_rounds.seconds == pytest.approx(rounds, rel=1e-6)


def test_training_at_the_server_takes_the_flops_of_all_samples(tmp_path: Path) -> None:
    world = fleet(tmp_path, samples=20, size=None)
    found = compare_with_sending(DryPlan.of(world), 10, server="pi-5").server
    assert found is not None
    assert found.samples == 10 * 4 * BATCH
    flops = 222_800  # of the preset's CNN per sample, `camu bench` and docs
    assert found.seconds == pytest.approx(found.samples * flops / 21.2e9, rel=1e-3)
    assert found.joules == pytest.approx(found.seconds * 11.0)


def test_idle_devices_pay_until_their_last_sample_has_arrived(tmp_path: Path) -> None:
    world = fleet(tmp_path, samples=20, size=65.0)
    idle = world.with_devices(idle_watts=np.array([1.0, 0.0, 0.0, 2.0]))
    sent, plain = send_data(idle), send_data(world)
    seconds = shannon_seconds(20 * 65 * 8)
    expected = seconds[0] + 2.0 * sum(seconds)  # d0 sends first, d3 last
    assert sent.bill.joules - plain.bill.joules == pytest.approx(expected)


def test_a_sample_is_as_large_as_the_data_set_stores_it(tmp_path: Path) -> None:
    assert sample_bytes(fleet(tmp_path, 20, None)) == 8 * 8 + 1
    assert sample_bytes(fleet(tmp_path, 20, 1234.5)) == 1234.5


def test_data_are_bits_where_updates_are_analogue(tmp_path: Path) -> None:
    digital = send_data(fleet(tmp_path, 20, 65.0))
    for uplink in ("analog", "packet"):
        same = send_data(fleet(tmp_path, 20, 65.0, radio__uplink=uplink))
        assert same.bill == digital.bill


def test_series_tables_and_texts_have_their_own_sizes(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    kinds = {
        "series": (generator.normal(size=(60, 9, 16)).astype(np.float32), 9 * 16 * 4 + 1),
        "table": (generator.normal(size=(60, 14)).astype(np.float32), 14 * 4 + 1),
        "bytes": (generator.integers(0, 255, (60, 8, 8), dtype=np.uint8), 64 + 1),
    }
    labels = np.arange(60) % 3
    models = {"series": "cnn1d", "table": "mlp", "bytes": "logistic"}
    for name, (inputs, size) in kinds.items():
        path = tmp_path / f"{name}.npz"
        np.savez(
            path,
            train_inputs=inputs,
            train_targets=labels,
            test_inputs=inputs,
            test_targets=labels,
        )
        keys = {"data__dataset": str(path), "training__model": models[name]}
        assert sample_bytes(fleet(tmp_path, 10, None, **keys)) == size
    path = tmp_path / "texts.npz"
    texts = generator.integers(0, 300, (60, 20))
    np.savez(path, train_inputs=texts, test_inputs=texts)
    keys = {"data__dataset": str(path), "training__model": "gru"}
    assert sample_bytes(fleet(tmp_path, 10, None, **keys)) == 20 * 2  # of 300 tokens each two bytes
