"""What a message costs over each link type: packets, seconds, joules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camu.arrays import Float64
from camu.world import air_time
from camu.world.link_types import (
    LINK_NAMES,
    LINK_TYPES,
    Cellular,
    LoRa,
    LrWpan,
    NbIot,
    Sending,
    Wifi,
)
from camu.world.radio_states import RADIOS

MODEL_BITS = 32 * 21_880  # the paper's model
NAMES = sorted(LINK_TYPES)
WIFI_N = Wifi(ax=False, radio=RADIOS["wifi-n"])
WIFI_AX = Wifi(ax=True, radio=RADIOS["wifi-ax"])


def numbers(sending: Sending) -> Float64:
    """Air, seconds and both energies."""
    parts = sending.air_seconds, sending.seconds, sending.transmit_joules, sending.receive_joules
    return np.array([float(part) for part in parts])


def test_names() -> None:
    assert LINK_NAMES[:2] == ("shannon", "lora-sf7")
    assert {"lora-sf12", "802.15.4", "wifi-n", "wifi-ax", "nb-iot", "lte", "nr"} < set(LINK_NAMES)


def test_a_model_over_lora_takes_four_hours_at_the_fastest_rate() -> None:
    found = LINK_TYPES["lora-sf7"].send(MODEL_BITS, 0.0)
    assert float(found.packets) == 395  # 87,520 bytes in frames of 222
    assert round(float(found.seconds) / 3600, 1) == 4.0
    assert float(found.air_seconds) == pytest.approx(0.01 * float(found.seconds))


def test_the_last_lora_frame_is_as_short_as_its_bytes() -> None:
    one = LINK_TYPES["lora-sf9"].send(8 * 120, 0.0)
    expected = air_time.lora_seconds(115 + 13, 9) + air_time.lora_seconds(5 + 13, 9)
    assert float(one.air_seconds) == pytest.approx(float(expected))
    assert float(one.packets) == 2


def test_lora_frames_that_overlap_are_sent_again() -> None:
    """Frames at random times on eight channels: how many are hit by another?"""
    draw, stations, frame = np.random.default_rng(1), 400, 0.3689
    starts = draw.uniform(0, 2000, round(stations * 0.01 * 2000 / frame))
    channel = draw.integers(0, 8, len(starts))
    lost = 0
    for number in range(8):
        times = np.sort(starts[channel == number])
        near = np.diff(times) < frame
        lost += int((np.append(near, False) | np.insert(near, 0, False)).sum())
    tries = 1 / (1 - lost / len(starts))
    lora = LINK_TYPES["lora-sf7"]
    ratio = lora.send(8 * 222, 0.0, stations).seconds / lora.send(8 * 222, 0.0).seconds
    assert float(ratio) == pytest.approx(tries, rel=0.03)


def test_a_higher_duty_cycle_shortens_the_silence_and_not_the_air_time() -> None:
    slow, fast = (LoRa(7, 222, -130.0, duty_cycle=d).send(MODEL_BITS, 0.0) for d in (0.01, 0.1))
    assert float(slow.air_seconds) == float(fast.air_seconds)
    assert float(slow.seconds) == pytest.approx(10 * float(fast.seconds))


def test_a_full_frame_of_802_15_4_alone() -> None:
    found = LrWpan().send(8 * 116, 40.0)
    assert float(found.seconds) == pytest.approx(6.88e-3)
    assert round(8 * 116 / float(found.seconds) / 1e3, 1) == 134.9  # kbit/s


def test_wifi_alone_is_bianchi_with_one_station() -> None:
    found = WIFI_N.send(12_000, 60.0)
    assert 12e-3 / float(found.seconds) == pytest.approx(32.1, abs=0.05)
    crowd = WIFI_N.send(12_000, 60.0, stations=10)
    assert 12e-3 / float(crowd.seconds) == pytest.approx(30.1, abs=0.05)


def test_wifi_takes_the_fastest_rate_that_its_snr_allows() -> None:
    wifi = WIFI_AX
    assert wifi.mcs(air_time.WIFI_SNR_DB).tolist() == list(range(12))
    assert wifi.mcs(air_time.WIFI_SNR_DB - 1e-9).tolist() == [0, *range(11)]
    assert WIFI_N.mcs(60.0) == 7
    assert wifi.frame_error(air_time.WIFI_SNR_DB) == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["lte", "nr"])
def test_cellular_rates_follow_the_table_and_stay_below_shannon(name: str) -> None:
    cellular = LINK_TYPES[name]
    assert isinstance(cellular, Cellular)
    snr_db = np.linspace(cellular.lowest_snr_db, 60, 500)
    rate = cellular.rate_bps(snr_db)
    assert (np.diff(rate) >= 0).all()
    assert (rate < cellular.bandwidth_hz * np.log2(1 + 10 ** (snr_db / 10))).all()
    assert rate[-1] == pytest.approx(0.8 * cellular.bandwidth_hz * 5.5547, rel=1e-5)
    # A tenth of the blocks is sent again.
    assert float(cellular.send(1e6, 60.0).seconds) == pytest.approx(1e6 / rate[-1] / 0.9, rel=0.01)


def test_nb_iot_repeats_to_reach_a_coupling_loss_of_164_db() -> None:
    nb_iot = NbIot()
    noise_dbm = -174 + 3 + 10 * np.log10(15e3)
    assert nb_iot.lowest_snr_db == pytest.approx(23 - 164 - noise_dbm, abs=0.1)
    assert nb_iot.repeated([20.0, 9.3, 9.2, 6.2, nb_iot.lowest_snr_db]).tolist() == [
        1,
        1,
        2,
        4,
        128,
    ]
    assert float(nb_iot.send(16_900, 20.0).seconds) == pytest.approx(1.0)
    assert float(nb_iot.send(16_900, nb_iot.lowest_snr_db).seconds) == pytest.approx(128.0)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"ethernet"}))
def test_rates_are_below_shannon_and_fall_with_the_snr(name: str) -> None:
    link = LINK_TYPES[name]
    snr_db = np.linspace(link.lowest_snr_db - 10, link.lowest_snr_db + 40, 400)
    found = link.send(np.full(400, 1e6), snr_db)
    # A faster rate begins where it still loses a tenth of its frames.
    assert (found.seconds[1:] * 0.9 < found.seconds[:-1]).all()
    assert found.seconds[-1] <= found.seconds[0]
    heard = snr_db >= link.lowest_snr_db
    capacity = link.bandwidth_hz * np.log2(1 + 10 ** (snr_db / 10))
    assert (1e6 / found.air_seconds < capacity)[heard].all()


@pytest.mark.parametrize("name", NAMES)
@given(bits=st.integers(1, 10**8), above_db=st.floats(0, 60), stations=st.integers(1, 50))
def test_costs_are_positive_and_more_bits_cost_more(
    name: str, bits: int, above_db: float, stations: int
) -> None:
    link = LINK_TYPES[name]
    snr_db = link.lowest_snr_db + above_db
    less, more = (numbers(link.send(n, snr_db, stations)) for n in (bits, 2 * bits))
    assert np.isfinite(more).all()
    assert (less > 0).all()
    assert (more >= less * (1 - 1e-9)).all()
    # A crowd together is never faster than its members one by one with the channel to themselves,
    # but for backoffs that overlap.
    assert less[1] > 0.4 * numbers(link.send(bits, snr_db, 1))[1]


@pytest.mark.parametrize("name", NAMES)
def test_energy_is_that_of_the_states(name: str) -> None:
    found = LINK_TYPES[name].send(1e5, 30.0)
    radio = RADIOS[name if name in RADIOS else "lora" if "lora" in name else "cellular"]
    assert float(found.transmit_joules / found.air_seconds) == pytest.approx(radio.transmit)
    assert radio.transmit > radio.idle > radio.sleep > 0


def test_energy_of_a_wifi_frame_adds_up() -> None:
    found = WIFI_N.send(12_000, 60.0)
    radio = RADIOS["wifi-n"]
    waits = (16 + 34 + 7.5 * 9) * 1e-6
    expected = 228e-6 * radio.transmit + 28e-6 * radio.receive + waits * radio.idle
    assert float(found.transmit_joules + found.receive_joules) == pytest.approx(expected)


def by_hand(name: str) -> tuple[float, float]:
    """Seconds and joules of 1 000 bytes, alone and at 60 dB, by volts and amperes."""
    if name.startswith("lora"):
        factor = int(name.removeprefix("lora-sf"))
        most, symbol = {7: 222, 8: 222, 9: 115}.get(factor, 51), 2**factor / 125e3

        def frame(size: int, check: int = 16) -> float:
            coded = (8 * size - 4 * factor + 28 + check) / (4 * (factor - 2 * (factor >= 11)))
            return (20.25 + 5 * math.ceil(coded)) * symbol

        full, rest = divmod(1000, most)
        air = full * frame(most + 13) + frame(rest + 13)
        heard = (full + 1) * frame(13, check=0)
        return 100 * air, 3.3 * (28e-3 * air + 11.2e-3 * heard + 1.5e-6 * 99 * air)
    if name == "802.15.4":  # 8 frames of 127 bytes and one of 83; 6 bytes before each
        air = 32e-6 * (8 * 133 + 89)
        waits = 9 * (1.12e-3 + 0.128e-3 + 2 * 0.192e-3 + 0.352e-3 + 0.64e-3)
        return air + waits, 3.0 * (17.4e-3 * air + 18.8e-3 * waits)
    if name.startswith("wifi"):  # one frame of 1036 bytes; at 60 dB none is lost
        ax = name == "wifi-ax"
        preamble, symbol, bits = (44e-6, 13.6e-6, 1950) if ax else (36e-6, 4e-6, 260)
        send, receive, idle, volts = (0.38, 0.313, 0.273, 3.0) if ax else (0.29, 0.09, 0.03, 3.3)
        air = preamble + symbol * math.ceil((22 + 8 * 1036) / bits)
        waits = 16e-6 + 34e-6 + 7.5 * 9e-6
        return air + 28e-6 + waits, volts * (send * air + receive * 28e-6 + idle * waits)
    if name == "nb-iot":  # no repetition; connected for ten seconds more
        return 8000 / 16.9e3, 3.8 * (0.22 * 8000 / 16.9e3 + 0.02 * 10)
    if name == "ethernet":
        air = 8 * (1000 + 78) / 1e8
        return air, 3.3 * 0.054 * (air + 8 * 84 / 1e8)
    hertz, slot = (9e5, 1e-3) if name == "lte" else (1.8e6, 0.5e-3)
    blocks = math.ceil(8000 / (0.8 * hertz * 6 * 948 / 1024 * slot))
    return blocks * slot / 0.9, 2.0 * blocks * slot / 0.9 + 2 * 3 / 7 * blocks * slot / 14


@pytest.mark.parametrize("name", NAMES)
def test_a_message_takes_the_time_and_energy_that_are_added_up_by_hand(name: str) -> None:
    found, (seconds, joules) = LINK_TYPES[name].send(8000, 60.0), by_hand(name)
    assert float(found.seconds) == pytest.approx(seconds, rel=1e-9)
    assert float(found.transmit_joules + found.receive_joules) == pytest.approx(joules, rel=1e-9)


def test_ethernet_is_frames_of_1538_bytes_at_any_distance() -> None:
    link = LINK_TYPES["ethernet"]
    for snr_db in (-250.0, 0.0, 60.0):
        found = link.send(8 * (3 * 1460 + 1), snr_db, 7)
        assert float(found.packets) == 4
        assert float(found.seconds) == pytest.approx(8 * (3 * 1538 + 84) / 1e8)
    assert float(link.send(8e6, 0.0).seconds) == pytest.approx(
        8e6 / 94.9e6, rel=1e-3
    )  # 94.9 Mbit/s


def test_a_measured_rate_replaces_the_models() -> None:
    link = LINK_TYPES["wifi-n"]
    both = link.send(np.array([1e6, 1e6]), np.array([30.0, 30.0]))
    found = both.at_rate(1e6, np.array([2e6, np.nan]))
    assert found.seconds.tolist() == pytest.approx([0.5, both.seconds[1]])
    share = found.transmit_joules / found.seconds
    assert share[0] == pytest.approx(share[1])


def test_a_measured_rate_of_lora_is_that_on_air_and_the_duty_cycle_demands_silence() -> None:
    link = LINK_TYPES["lora-sf9"]
    bits, rate = 208_640, 1760.0
    found = link.send([bits], [10.0]).at_rate([bits], np.array([rate]))
    assert found.air_seconds == pytest.approx(bits / rate)
    assert found.seconds == pytest.approx(bits / rate / 0.01)  # 3.3 hours
    assert found.transmit_joules == pytest.approx(bits / rate * 3.3 * 28e-3)


# Microseconds from one delivered frame to the next and millijoules of a station per frame, with the
# radio of ns-3: stations that always have a frame of 1536 bytes for their neighbour; ns-3 3.37,
# `make validate-links`. By link, MCS and stations.
NS3_WIFI = {
    ("wifi-n", 0, 1): (2092.05, 2.336),
    ("wifi-n", 7, 1): (373.41, 0.38),
    ("wifi-n", 0, 5): (2375.30, 11.37),
    ("wifi-n", 7, 5): (379.00, 1.731),
    ("wifi-n", 0, 20): (2877.70, 52.89),
    ("wifi-n", 7, 20): (428.54, 7.617),
    ("wifi-ax", 0, 1): (1646.09, 1.828),
    ("wifi-ax", 9, 1): (298.51, 0.2945),
    ("wifi-ax", 4, 5): (447.23, 2.051),
    ("wifi-ax", 4, 10): (474.38, 4.279),
    ("wifi-ax", 0, 20): (2212.39, 40.59),
    ("wifi-ax", 7, 20): (381.32, 6.735),
}


@pytest.mark.parametrize(("case", "expected"), NS3_WIFI.items())
def test_wifi_cells_of_ns3(case: tuple[str, int, int], expected: tuple[float, float]) -> None:
    (link, mcs, stations), (microseconds, millijoules) = case, expected
    wifi = Wifi(ax=link == "wifi-ax", radio=RADIOS["wifi-ax"])  # the currents of ns-3
    found = wifi.send(12_000, air_time.WIFI_SNR_DB[mcs], stations)
    delivered = 0.9  # stations in ns-3 lose no frames to noise
    assert 1e6 * delivered * float(found.seconds) == pytest.approx(microseconds, rel=0.02)
    joules = float(found.transmit_joules + found.receive_joules)
    assert 1e3 * delivered * joules == pytest.approx(millijoules, rel=0.07)


# Microseconds a full frame of 802.15.4, by stations that were not used for the formula; as above.
NS3_LRWPAN = {4: 6640.1, 7: 6878.4, 12: 7657.0, 25: 10343.0, 40: 15789.5}


@pytest.mark.parametrize(("stations", "microseconds"), NS3_LRWPAN.items())
def test_802_15_4_cells_of_ns3(stations: int, microseconds: float) -> None:
    found = LrWpan().send(8 * 116, 40.0, stations)
    assert 1e6 * float(found.seconds) == pytest.approx(microseconds, rel=0.07)


# SNR in dB at which a tenth of the blocks of 2000 bits fails, CQI 4 to 15; sionna-no-rt 2.2.0,
# PHYAbstraction().get_bler of PDSCH table 1: scripts/validate_links/sionna_bler.py.
SIONNA_DB = (-2.45, 0.45, 2.35, 4.15, 5.95, 7.85, 9.75, 11.55, 13.35, 14.95, 17.05, 18.95)


def test_thresholds_of_sionna() -> None:
    assert air_time.NR_SNR_DB[3:] == pytest.approx(SIONNA_DB, abs=0.15)
