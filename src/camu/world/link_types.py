"""Links that owners have: what sending bits costs over LoRa, 802.15.4, Wi-Fi, cellular and cables.

A link type has its own band, largest power and radio. SNR is always that within its own band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, from_decibels
from camu.world import air_time
from camu.world.air_time import LORAWAN_OVERHEAD_BYTES, LRWPAN_MAC_BYTES, LRWPAN_PHY_BYTES
from camu.world.radio_states import RADIOS, RadioStates

SHANNON = "shannon"
_ERROR = 0.1  # of frames or blocks at the SNR where a rate of a table begins
_WIFI_DECADE_DB = 0.9  # above that SNR, frame errors fall by a factor of ten in so many dB


@dataclass(frozen=True, eq=False)
class Sending:
    """What sending messages costs in the mean, one array entry per message.

    `seconds` is the share of the channel that a message takes: as many messages as there are
    stations, on one channel, end after the sum of their seconds. Silence that a duty cycle demands
    counts, also after the last packet: the next message has to wait for it.
    """

    packets: Float64  # without those that are sent again
    air_seconds: Float64  # with those that are sent again
    seconds: Float64
    transmit_joules: Float64
    receive_joules: Float64  # acknowledgements, and listening to the channel
    duty_cycle: float = 1.0  # the share of `seconds` that is no demanded silence

    def at_rate(self, bits: npt.ArrayLike, rate_bps: Float64) -> Sending:
        """The same where a rate (bit/s) was measured; nan where it was not.

        It is the rate without the silence that a duty cycle demands, which is added. The radio
        spends the same shares of the time in its states.
        """
        with np.errstate(invalid="ignore"):
            factor = np.divide(bits, rate_bps * self.duty_cycle * self.seconds)
        factor = np.where(np.isnan(factor), 1.0, factor)
        return replace(
            self,
            air_seconds=factor * self.air_seconds,
            seconds=factor * self.seconds,
            transmit_joules=factor * self.transmit_joules,
            receive_joules=factor * self.receive_joules,
        )


class LinkType(Protocol):
    """A technology: its band, its limits, and what sending over it costs."""

    @property
    def bandwidth_hz(self) -> float:
        """The band in which noise is received."""
        ...

    @property
    def power_watts(self) -> float:
        """The largest transmit power."""
        ...

    @property
    def lowest_snr_db(self) -> float:
        """The SNR below which receivers hear nothing."""
        ...

    @property
    def radio(self) -> RadioStates:
        """What its radio draws by state."""
        ...

    @property
    def payload_bytes(self) -> int:
        """The most that a packet carries; 0: no limit that a user would notice."""
        ...

    @property
    def channels(self) -> int:
        """Messages that a base station receives at the same time."""
        ...

    @property
    def among_devices(self) -> int:
        """Messages that one device receives from others at a time; 0: devices hear no others."""
        ...

    def send(self, bits: npt.ArrayLike, snr_db: npt.ArrayLike, stations: int = 1) -> Sending:
        """What messages of so many bits cost at these SNRs if so many stations send at once."""
        ...


@dataclass(frozen=True)
class LoRa:
    """LoRaWAN in Europe at 868 MHz, 125 kHz, coding rate 4/5, confirmed by a gateway.

    Stations send when they like (ALOHA): a frame is lost if another one overlaps on its channel.
    """

    spreading_factor: int
    payload_bytes: int
    sensitivity_dbm: float  # of a gateway
    duty_cycle: float = 0.01
    radio: RadioStates = RADIOS["lora"]
    gateway_channels: int = 8
    bandwidth_hz: float = 125e3
    power_watts: float = 0.025118864315095794  # 14 dBm

    @property
    def lowest_snr_db(self) -> float:
        """The sensitivity over thermal noise with a noise figure of 3 dB."""
        return self.sensitivity_dbm + 174.0 - 3.0 - 10.0 * float(np.log10(self.bandwidth_hz))

    @property
    def channels(self) -> int:
        """Who sends a hundredth of the time leaves the channel to a hundred others."""
        return self.gateway_channels * self.among_devices

    @property
    def among_devices(self) -> int:
        """A device listens to one channel."""
        return int(1.0 / self.duty_cycle)

    def send(self, bits: npt.ArrayLike, snr_db: npt.ArrayLike, stations: int = 1) -> Sending:
        """Frames, and after each the silence that the duty cycle demands."""
        packets, last = _packets(bits, self.payload_bytes)
        full = air_time.lora_seconds(
            self.payload_bytes + LORAWAN_OVERHEAD_BYTES, self.spreading_factor, self.bandwidth_hz
        )
        rest = air_time.lora_seconds(
            last + LORAWAN_OVERHEAD_BYTES, self.spreading_factor, self.bandwidth_hz
        )
        others = min(stations, self.channels) - 1
        overlap = 2.0 * others * self.duty_cycle / self.gateway_channels
        tries = np.exp(overlap) * _repeats(snr_db, self.lowest_snr_db)
        once = (packets - 1) * full + rest
        air = tries * once
        ack = (
            tries
            * packets
            * air_time.lora_seconds(
                LORAWAN_OVERHEAD_BYTES, self.spreading_factor, self.bandwidth_hz, crc=False
            )
        )
        radio = self.radio
        sleeping = radio.sleep * air * (1.0 / self.duty_cycle - 1.0)
        return Sending(
            packets,
            air,
            air / self.duty_cycle,
            air * radio.transmit,
            ack * radio.receive + sleeping,
            self.duty_cycle,
        )


@dataclass(frozen=True)
class LrWpan:
    """IEEE 802.15.4 at 2.4 GHz: 250 kbit/s, unslotted CSMA-CA, acknowledged frames."""

    radio: RadioStates = RADIOS["802.15.4"]
    bandwidth_hz: float = 2e6
    power_watts: float = 1e-3
    lowest_snr_db: float = -0.6  # where half of the full frames fail
    payload_bytes: int = air_time.LRWPAN_FRAME_BYTES - LRWPAN_MAC_BYTES
    channels: int = 1
    among_devices: int = 1

    def send(self, bits: npt.ArrayLike, snr_db: npt.ArrayLike, stations: int = 1) -> Sending:
        """Frames with backoff before and an acknowledgement after each; lost ones again."""
        packets, last = _packets(bits, self.payload_bytes)
        snr = from_decibels(np.maximum(snr_db, self.lowest_snr_db))
        repeats = _repeats(snr_db, self.lowest_snr_db)
        alone = air_time.lrwpan_backoff_seconds(1.0) + air_time.LRWPAN_ACK_SECONDS
        alone += 2.0 * air_time.LRWPAN_TURNAROUND_SECONDS + air_time.LRWPAN_GAP_SECONDS
        air = seconds = np.zeros(())
        for number, payload in ((packets - 1, self.payload_bytes), (1.0, last)):
            size = payload + LRWPAN_MAC_BYTES
            wrong = air_time.lrwpan_frame_error(snr, size)
            tries = number * repeats / (1.0 - wrong)
            frame = air_time.LRWPAN_BYTE_SECONDS * (size + LRWPAN_PHY_BYTES)
            air = air + tries * frame
            seconds = seconds + tries * (frame + alone)
        # In a crowd, all frames take longer in the proportion of full ones.
        crowd, single = air_time.lrwpan_contention(stations), air_time.lrwpan_contention(1)
        seconds = np.asarray(seconds * (crowd.seconds / single.seconds))
        air = np.asarray(air * crowd.tries)
        radio = self.radio
        listening = np.maximum(stations * seconds - air, 0.0)
        return Sending(packets, air, seconds, air * radio.transmit, listening * radio.receive)


@dataclass(frozen=True)
class Wifi:
    """Wi-Fi 4 (802.11n) or 6 (802.11ax) in 20 MHz with one stream: CSMA-CA, no aggregation."""

    ax: bool
    radio: RadioStates
    bandwidth_hz: float = 20e6
    power_watts: float = 0.1
    lowest_snr_db: float = float(air_time.WIFI_SNR_DB[0])
    payload_bytes: int = 1500
    channels: int = 1
    among_devices: int = 1

    def mcs(self, snr_db: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The fastest of the rates that lose at most 10 % of the frames; 0 below the first."""
        usable = air_time.WIFI_SNR_DB[: 12 if self.ax else 8]
        return np.maximum(np.searchsorted(usable, snr_db, side="right") - 1, 0)

    def error_above(self, above_db: npt.ArrayLike) -> Float64:
        """Probability that a full frame is lost so many dB above the SNR where its rate begins."""
        above = np.maximum(np.asarray(above_db, dtype=np.float64), 0.0)
        return np.asarray(_ERROR * 10.0 ** (-above / _WIFI_DECADE_DB))

    def frame_error(self, snr_db: npt.ArrayLike) -> Float64:
        """The same at the rate that is used at this SNR."""
        return self.error_above(np.asarray(snr_db) - air_time.WIFI_SNR_DB[self.mcs(snr_db)])

    def send(self, bits: npt.ArrayLike, snr_db: npt.ArrayLike, stations: int = 1) -> Sending:
        """Frames under contention as Bianchi finds it; lost ones again."""
        packets, last = _packets(bits, self.payload_bytes)
        mcs = self.mcs(snr_db)
        tries = _repeats(snr_db, self.lowest_snr_db) / (1.0 - self.frame_error(snr_db))
        full = air_time.wifi_frame_seconds(self.payload_bytes + _WIFI_HEADER_BYTES, mcs, self.ax)
        rest = air_time.wifi_frame_seconds(last + _WIFI_HEADER_BYTES, mcs, self.ax)
        seconds = (packets - 1) * air_time.wifi_success_seconds(full, stations)
        seconds = tries * (seconds + air_time.wifi_success_seconds(rest, stations))
        sent = tries / (1.0 - air_time.bianchi(stations).collision)
        air = sent * ((packets - 1) * full + rest)
        ack = tries * packets * air_time.WIFI_ACK_SECONDS
        # A station receives the others' frames as well.
        heard = np.clip(stations * seconds - air - ack, 0.0, (stations - 1) * (air + ack))
        idle = np.maximum(stations * seconds - air - ack - heard, 0.0)
        received = (ack + heard) * self.radio.receive + idle * self.radio.idle
        return Sending(packets, air, seconds, air * self.radio.transmit, received)


@dataclass(frozen=True)
class Cellular:
    """LTE or NR uplink: resource blocks shared by several devices, rates by the table of CQI.

    Each channel is five resource blocks. Of a block's symbols, 144 000 a second and 180 kHz carry
    data (12 of 14 are not pilots). A tenth of the transport blocks is sent again.
    """

    snr_db: tuple[float, ...]
    bandwidth_hz: float
    block_seconds: float
    radio: RadioStates = RADIOS["cellular"]
    power_watts: float = 0.2
    payload_bytes: int = 0
    channels: int = 10
    among_devices: int = 0

    @property
    def lowest_snr_db(self) -> float:
        """Where the slowest rate begins."""
        return self.snr_db[0]

    def rate_bps(self, snr_db: npt.ArrayLike) -> Float64:
        """The rate of data while a device sends; that of the first index below its SNR."""
        index = np.searchsorted(self.snr_db, snr_db, side="right") - 1
        efficiency = air_time.CQI_EFFICIENCY[np.maximum(index, 0)]
        return np.asarray(144.0 / 180.0 * self.bandwidth_hz * efficiency)

    def send(self, bits: npt.ArrayLike, snr_db: npt.ArrayLike, stations: int = 1) -> Sending:
        """Transport blocks one after the other."""
        rate = self.rate_bps(snr_db)
        packets = np.maximum(np.ceil(np.asarray(bits) / (rate * self.block_seconds)), 1.0)
        tries = _repeats(snr_db, self.lowest_snr_db) / (1.0 - _ERROR)
        air = np.asarray(tries * packets * self.block_seconds)
        radio = self.radio
        answers = packets * self.block_seconds / 14.0  # a control symbol per block
        return Sending(packets, air, air, air * radio.transmit, answers * radio.receive)


@dataclass(frozen=True)
class NbIot:
    """NB-IoT uplink (NB1) on one tone of 15 kHz, of which a carrier has twelve.

    16.9 kbit/s sustained, divided by 1 to 128 repetitions. The SNR of one repetition is chosen so
    that 128 reach the coupling loss of 164 dB at 23 dBm (noise figure 3 dB). After a message the
    modem stays connected for 10 s.
    """

    radio: RadioStates = RADIOS["nb-iot"]
    rate_bps: float = 16.9e3
    bandwidth_hz: float = 15e3
    power_watts: float = 0.2
    repetitions: int = 128
    once_snr_db: float = 9.3
    connected_seconds: float = 10.0
    payload_bytes: int = 125  # a transport block of 1000 bits
    channels: int = 12
    among_devices: int = 0

    @property
    def lowest_snr_db(self) -> float:
        """What the most repetitions reach."""
        return self.once_snr_db - 10.0 * float(np.log10(self.repetitions))

    def repeated(self, snr_db: npt.ArrayLike) -> Float64:
        """The repetitions at this SNR, a power of two."""
        missing = (self.once_snr_db - np.asarray(snr_db)) / (10.0 * np.log10(2.0))
        most = np.log2(self.repetitions)
        return np.asarray(2.0 ** np.clip(np.ceil(np.round(missing, 9)), 0.0, most))

    def send(self, bits: npt.ArrayLike, snr_db: npt.ArrayLike, stations: int = 1) -> Sending:
        """Blocks with their repetitions, and the time in which the modem stays connected."""
        packets, _ = _packets(bits, self.payload_bytes)
        repeats = self.repeated(snr_db) * _repeats(snr_db, self.lowest_snr_db)
        air = np.asarray(np.asarray(bits) / self.rate_bps * repeats)
        radio = self.radio
        waiting = np.full_like(air, self.connected_seconds * radio.idle)
        return Sending(packets, air, air, air * radio.transmit, waiting)


@dataclass(frozen=True)
class Ethernet:
    """A cable of 100 Mbit/s to a switch; servers and leaders have ports of 1 Gbit/s.

    Nothing is lost, so that places and SNR do not matter. A frame carries TCP/IP.
    """

    radio: RadioStates = RADIOS["ethernet"]
    bits_per_second: float = 1e8
    bandwidth_hz: float = 31.25e6
    power_watts: float = 0.1  # not that of a radio
    lowest_snr_db: float = -300.0
    payload_bytes: int = 1460
    channels: int = 10
    among_devices: int = 10

    def send(self, bits: npt.ArrayLike, snr_db: npt.ArrayLike, stations: int = 1) -> Sending:
        """Frames with headers, preambles and gaps, and an acknowledgement for every second one."""
        packets, last = _packets(bits, self.payload_bytes)
        # 40 bytes of TCP/IP, 18 of Ethernet, 20 of preamble and gap; at least 84 in all.
        full, rest = self.payload_bytes + 78, np.maximum(last + 78, 84)
        air = 8.0 * ((packets - 1) * full + rest) / self.bits_per_second + np.zeros(
            np.shape(snr_db)
        )
        answers = 8.0 * 84 * np.ceil(packets / 2) / self.bits_per_second
        return Sending(packets, air, air, air * self.radio.transmit, answers * self.radio.receive)


def _packets(bits: npt.ArrayLike, payload_bytes: int) -> tuple[Float64, Float64]:
    """How many packets hold these bits, and the bytes in the last one."""
    size = np.ceil(np.asarray(bits, dtype=np.float64) / 8.0)
    packets = np.maximum(np.ceil(size / payload_bytes), 1.0)
    return packets, size - (packets - 1.0) * payload_bytes


def _repeats(snr_db: npt.ArrayLike, lowest_snr_db: float) -> Float64:
    """How often everything is sent below the lowest SNR, until enough energy has arrived; else 1.

    Devices with such a mean SNR are not reached at all; this is the price of a fade.
    """
    return from_decibels(np.maximum(lowest_snr_db - np.asarray(snr_db), 0.0))


_WIFI_HEADER_BYTES = 36
_LORA = {7: (222, -130.0), 8: (222, -132.5), 9: (115, -135.0)}
_LORA |= {10: (51, -137.5), 11: (51, -140.0), 12: (51, -142.5)}

LINK_TYPES: Mapping[str, LinkType] = {
    **{f"lora-sf{factor}": LoRa(factor, *limits) for factor, limits in _LORA.items()},
    "802.15.4": LrWpan(),
    "wifi-n": Wifi(ax=False, radio=RADIOS["wifi-n"]),
    "wifi-ax": Wifi(ax=True, radio=RADIOS["wifi-ax"]),
    "nb-iot": NbIot(),
    "lte": Cellular(air_time.LTE_SNR_DB, 5 * 180e3, 1e-3),
    "nr": Cellular(air_time.NR_SNR_DB, 5 * 360e3, 0.5e-3),
    "ethernet": Ethernet(),
}
LINK_NAMES = (SHANNON, *LINK_TYPES)
