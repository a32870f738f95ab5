"""The section on the radio: carrier, links, rates, fading, what is known of it, and power."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import model_validator

from camu.config.fields import (
    LARGEST_HZ,
    LARGEST_WATTS,
    Choice,
    Count,
    Decibels,
    Section,
    Share,
    Watts,
    field,
    rule_error,
)

LINKS = (
    *("shannon", "lora-sf7", "lora-sf8", "lora-sf9", "lora-sf10", "lora-sf11", "lora-sf12"),
    *("802.15.4", "wifi-n", "wifi-ax", "nb-iot", "lte", "nr", "ethernet"),
)
PATH_LOSSES = ("paper", "log-distance", "umi", "uma")
UPLINKS = ("digital", "packet", "analog", "hybrid", "hybrid-weights")


class RadioConfig(Section):
    """Carrier, antennas, path loss, fading, noise and access."""

    carrier_hz: float = field(915e6, "Carrier frequency.", "Hz", ge=1.0, le=LARGEST_HZ)
    bandwidth_hz: float = field(1e6, "Bandwidth of the uplink.", "Hz", ge=1e-3, le=LARGEST_HZ)
    antennas: int = field(
        15, "Receive antennas of the base station.", "antennas", ge=1, le=1_000_000
    )
    bs_gain_dbi: float = field(5.0, "Antenna gain of the base station.", "dBi", ge=-100, le=100)
    device_gain_dbi: float = field(0.0, "Antenna gain of a device.", "dBi", ge=-100, le=100)
    path_loss: Annotated[str, Choice(PATH_LOSSES, group="channels")] = field(
        "paper",
        "`paper`: (c / 4 pi f d)^exponent; `log-distance`: free space at 1 m times d^-exponent; "
        "`umi`, `uma`: 3GPP TR 38.901 with LOS probability; your own as `module:name`.",
    )
    exponent: float = field(
        3.76, "Path-loss exponent of `paper` and `log-distance`.", "1", gt=0, le=10
    )
    shadowing_db: float = field(
        0.0, "Standard deviation of log-normal shadowing per link.", "dB", ge=0, le=100
    )
    fading: Literal["none", "rayleigh", "rician"] = field("none", "Small-scale block fading.")
    rician_k_db: float = field(6.0, "Rician K factor.", "dB", ge=-100, le=100)
    fading_correlation: Share = field(
        0.0, "AR(1) correlation of the fading from one round to the next.", "1"
    )
    d2d_fading: bool = field(
        False, "Links between devices fade as well, each with one antenna; plans use mean gains."
    )
    pilot_symbols: Count | None = field(
        None,
        "Pilots from which the base station estimates an uplink (MMSE) before a rate is chosen; "
        "unset: no estimation error.",
        "symbols",
    )
    csi_correlation: float = field(
        1.0,
        "Correlation of the fading when it was estimated with that when the update is sent: "
        "J0(2 pi f_D delay); 1: no delay.",
        "1",
        ge=0,
        le=1,
    )
    rate_margin_db: float = field(
        3.0,
        "How far below the SNR that is expected the rate of an uplink is chosen, with "
        "pilot_symbols or csi_correlation; an update at a rate that was too high is lost.",
        "dB",
        ge=0,
        le=100,
    )
    noise_dbm: Decibels | None = field(
        None,
        "Noise power over the band; unset: thermal, -174 dBm/Hz plus noise_figure_db (-107 dBm for "
        "1 MHz). The paper prints 1e-4 W, which is -10 dBm.",
        "dBm",
    )
    noise_figure_db: float = field(
        7.0, "Noise figure of the receivers, for thermal noise.", "dB", ge=0, le=100
    )
    access: Literal["tdma", "ofdma"] = field(
        "tdma", "Uplinks in turn over the whole band, or at once on equal shares of it."
    )
    cells: Literal["one", "apart", "interfering"] = field(
        "one",
        "Uplinks to several base stations: `one`: all share the band; `apart`: each station has a "
        "band of its own; `interfering`: all stations use the band at once, and what they hear of "
        "each other's devices adds to the noise.",
    )
    bits_per_parameter: int = field(
        32,
        "Bits per parameter of a model or an update that is sent as it is; the values that "
        "arrive are not rounded.",
        "bits",
        ge=1,
        le=64,
    )
    rate: Literal["shannon", "table"] = field(
        "shannon",
        "Rate at an SNR: `shannon`: log2(1 + SNR / gap) up to max_bits_per_hz; `table`: the CQI "
        "table of LTE and NR at a block error rate of 10 %.",
    )
    snr_gap_db: float = field(
        1.8, "How far real codes stay behind Shannon's rate, under `shannon`.", "dB", ge=0, le=30
    )
    max_bits_per_hz: float = field(
        7.4,
        "Largest rate under `shannon`, that of the highest modulation; `inf`: no limit.",
        "bit/s/Hz",
        gt=0,
        allow_inf_nan=True,
    )
    amplifier_efficiency: float = field(
        0.35, "Share of an amplifier's power that a device radiates.", "1", gt=0, le=1
    )
    circuit_watts: float = field(
        0.1,
        "Power of a device's radio while it sends, apart from its amplifier.",
        "W",
        ge=0,
        le=LARGEST_WATTS,
    )
    uplink: Annotated[str, Choice(UPLINKS, group="channels")] = field(
        "digital",
        "`digital`: bits without error, which cost time and energy; `packet`: an update arrives "
        "whole, after up to packet_tries tries, or is lost; `analog`: uncoded, two parameters per "
        "symbol, with noise of 1/sqrt(SNR) on the normalised update; `hybrid`: the paper's, with "
        "the time of bits and the noise of `analog`; `hybrid-weights`: the same with noise on raw "
        "weights, as printed; your own function as `module:name`, with the time of bits.",
    )
    packet_tries: Count = field(
        1,
        "How often an update is sent at most, under `packet`; each try costs time and energy.",
        "tries",
    )
    outage_snr_db: Decibels | None = field(
        None, "Uplinks below this SNR fail in that round; unset: none fail.", "dB"
    )
    phase_error_rad: float = field(
        0.0,
        "Standard deviation of the phase with which a device misses the others, where all transmit "
        "at once.",
        "rad",
        ge=0,
        le=10,
    )
    time_offset_symbols: Share = field(
        0.0,
        "Latest start of a device after the others, where all transmit at once; drawn evenly in "
        "every round.",
        "symbols",
    )
    d2d: Literal["shared", "free"] = field(
        "shared",
        "Medium of gathers: `shared`: clusters that hear each other gather in turn, others at once "
        "with interference; `free`: all at once without interference.",
    )
    carrier_sense_dbm: Decibels | None = field(
        None,
        "Received power from which on a leader waits for another's gather, under `shared`; unset: "
        "-82 dBm per 20 MHz (-95 dBm for 1 MHz).",
        "dBm",
    )
    downlink: bool = field(
        False,
        "Count what the broadcast of the model costs, at the rate of the weakest addressed link: "
        "its time, and receive_watts of devices meanwhile.",
    )
    link: Annotated[str, Choice(LINKS, code=False)] = field(
        "shannon",
        "Link type of every device, or of those for which a fleet file gives none: `shannon` is "
        "the band above, the others have their own (docs/links.md).",
    )
    duty_cycle: float | None = field(
        None,
        "Share of the time in which a device with a LoRa link may send; unset: 0.01.",
        "1",
        gt=0,
        le=1,
    )
    bs_power_watts: Watts = field(1.0, "Transmit power of the base station, with downlink.", "W")
    receive_watts: float = field(
        0.1,
        "Power of a device while it receives: a leader from its members, these its answer, and "
        "all of them the model, with downlink.",
        "W",
        ge=0,
        le=LARGEST_WATTS,
    )

    @property
    def knows_channels(self) -> bool:
        """Whether rates are chosen for the channels as they are."""
        return self.pilot_symbols is None and self.csi_correlation == 1.0

    @model_validator(mode="after")
    def _fading_fits(self) -> RadioConfig:
        usual = {"d2d_fading": False, "pilot_symbols": None, "csi_correlation": 1.0}
        keys = [f"radio.{key}" for key, value in usual.items() if getattr(self, key) != value]
        if keys and self.fading == "none":
            text = "no link fades; set radio.fading to rayleigh or rician, or leave it out"
            raise rule_error(f"{keys[0]}: {text}", *keys, "radio.fading")
        if not self.knows_channels and self.uplink in ("analog", "hybrid", "hybrid-weights"):
            text = f'with radio.uplink = "{self.uplink}" no rate can be too high; set it to digital'
            raise rule_error(f"{keys[-1]}: {text}", *keys, "radio.uplink")
        return self
