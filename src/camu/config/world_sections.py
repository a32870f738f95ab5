"""The sections on data, fleet and radio; each field has a sentence, a unit and limits.

The defaults are the paper's section V under the sensible reading of each ambiguity; optional keys
default to unset, so that leaving a key out of a file and unsetting it mean the same.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from camu.config.fields import (
    LARGEST_COORDINATE_M,
    LARGEST_HZ,
    LARGEST_JOULES,
    LARGEST_WATTS,
    MOST,
    Choice,
    Count,
    Decibels,
    Section,
    Share,
    Watts,
    field,
    printable,
    rule_error,
)

LINKS = (
    *("shannon", "lora-sf7", "lora-sf8", "lora-sf9", "lora-sf10", "lora-sf11", "lora-sf12"),
    *("802.15.4", "wifi-n", "wifi-ax", "nb-iot", "lte", "nr"),
)
UPLINKS = ("digital", "packet", "analog", "hybrid", "hybrid-weights")
Interval = tuple[float, float]
Metres = Annotated[float, Field(ge=-LARGEST_COORDINATE_M, le=LARGEST_COORDINATE_M)]
Span = tuple[Metres, Metres]
Position = Annotated[tuple[Metres, Metres, Metres], Field(strict=False)]


class Region(Section):
    """A box in which some of the devices are placed at random."""

    name: Annotated[str, printable] = field(
        ..., "Name of the region, shown in plans and maps.", min_length=1, max_length=200
    )
    devices: int = field(..., "Devices placed in this region.", "devices", ge=1, le=10_000_000)
    x: Span = field(..., "Lowest and highest x coordinate.", "m", strict=False)
    y: Span = field(..., "Lowest and highest y coordinate.", "m", strict=False)
    z: Span = field((0.0, 0.0), "Lowest and highest z coordinate.", "m", strict=False)

    @model_validator(mode="after")
    def _ordered(self) -> Region:
        for axis in ("x", "y", "z"):
            low, high = getattr(self, axis)
            if low > high:
                raise rule_error(f"{axis} = [{low}, {high}]: the first number must not be larger")
        return self


class DataConfig(Section):
    """Which data set, and how it is dealt to the devices."""

    dataset: Annotated[str, Choice(("mnist", "fashion-mnist", "cifar-10", "digits"), data=True)] = (
        field(
            "mnist",
            "The data set; your own as a path (`./data.npz` or a directory), as `module:function` "
            "that returns images and labels, or as `hf:NAME` from Hugging Face.",
        )
    )
    directory: str | None = field(
        None, "Directory that holds a built-in data set's IDX files; unset: the cache."
    )
    partition: Annotated[str, Choice(("mixed", "dirichlet", "shards", "iid", "given"))] = field(
        "mixed",
        "Rule that deals samples to devices; `given`: the division that comes with your own data; "
        "your own as `module:name`.",
    )
    noniid_devices: int | None = field(
        None,
        "Non-IID devices under `mixed`, the others are IID; unset: all.",
        "devices",
        ge=0,
        le=MOST,
    )
    labels_per_device: Count = field(
        2, "Labels that a Non-IID device holds under `mixed`, in equal parts.", "labels"
    )
    samples_per_device: Count | None = field(
        None, "Mean number of samples per device; unset: as many as the data allow.", "samples"
    )
    alpha: float = field(
        0.5,
        "Concentration of the Dirichlet partition; smaller is more skewed.",
        "1",
        ge=1e-6,
        le=1e9,
    )
    shards_per_device: Count = field(2, "Shards per device under `shards`.", "shards")
    size_exponent: float = field(
        0.0,
        "Power law of the devices' sizes: the r-th largest holds r^-size_exponent; 0: equal sizes.",
        "1",
        ge=0,
        le=100,
    )
    with_replacement: bool = field(
        False, "Let several devices hold the same sample where the data set is too small."
    )


class FleetConfig(Section):
    """The devices and the base station."""

    file: str | None = field(None, "Fleet file (CSV or JSON) that replaces the regions.")
    snr_file: str | None = field(None, "Measured device-to-device SNR matrix in dB (CSV).")
    regions: tuple[Region, ...] = field(
        (
            Region(name="Region I", devices=15, x=(-10.0, 0.0), y=(-5.0, 5.0)),
            Region(name="Region II", devices=15, x=(10.0, 20.0), y=(-5.0, 5.0)),
        ),
        "Where devices are placed, and how many, for example "
        '`[{name = "A", devices = 40, x = [0, 9], y = [0, 9]}]`; z is [0, 0] where it is left out.',
        strict=False,
        min_length=1,
    )
    positions: tuple[Position, ...] | None = field(
        None,
        "Positions of the devices in the order of the regions, such as `[[0, 5, 0], [3, 1, 0]]`; "
        "unset: at random in the regions.",
        "m",
        strict=False,
    )
    base_station: tuple[Metres, Metres, Metres] = field(
        (-50.0, 0.0, 10.0), "Position of the base station.", "m", strict=False
    )
    base_station_file: str | None = field(
        None,
        "CSV or JSON file of base stations (`id,x,y,z` or `id,latitude,longitude,z`), instead of "
        "`base_station`; every device sends to the one with the best mean gain.",
    )
    position_trace: str | None = field(
        None,
        "CSV file of `seconds,device,x,y` rows (or `seconds,device,x,y,z`), in metres: devices "
        "move in straight lines from row to row; devices without a row stay.",
    )
    speed_mps: Interval | None = field(
        None,
        "Lowest and highest speed of devices that go to random places in their region, one after "
        "the other, for example `[0.5, 1.5]`; unset: they stay.",
        "m/s",
        strict=False,
    )
    pause_seconds: float = field(
        0.0, "Pause at each of these places, with speed_mps.", "s", ge=0, le=1e9
    )
    unreachable: Literal["leave-out", "keep"] = field(
        "leave-out",
        "Devices of a fleet file that no other device could lead and whose upload takes more than "
        "1000 times as long as the median one: `leave-out` drops them, `keep` keeps them.",
    )
    power_watts: Watts = field(0.5, "Transmit power of a device where no optimiser sets it.", "W")
    max_power_watts: Watts = field(2.0, "Largest transmit power of a device.", "W")
    cpu_hz: Interval = field(
        (0.2e9, 2.0e9),
        "Lowest and highest CPU frequency, for example `[1e9, 2e9]`; devices draw uniformly.",
        "Hz",
        strict=False,
    )
    cycles_per_sample: float = field(
        2.0e6, "CPU cycles to process one training sample once.", "cycles", ge=1e-6, le=1e15
    )
    capacitance: float = field(
        1e-28, "Effective switched capacitance kappa of the CPU.", "W s^3", ge=1e-60, le=1.0
    )
    idle_watts: float = field(
        0.07,
        "What a device draws all the time that it takes part in a round, from its start until the "
        "server has aggregated its update; all other powers come on top of it.",
        "W",
        ge=0,
        le=LARGEST_WATTS,
    )
    static_watts: float = field(
        0.2,
        "What a device that computes draws more than an idle one, apart from what its clock costs: "
        "leakage, memory, board.",
        "W",
        ge=0,
        le=LARGEST_WATTS,
    )
    min_hz: float = field(1e8, "Least CPU frequency, with dvfs.", "Hz", ge=1, le=LARGEST_HZ)
    dvfs: bool = field(
        False,
        "Devices that would wait slow their CPU down where that saves joules; otherwise they race "
        "to idle. Seconds and model stay the same.",
    )
    battery_joules: float | None = field(
        None,
        "Energy in the full battery of every device, or of those for which a fleet file gives "
        "none; unset: mains power.",
        "J",
        ge=0,
        le=LARGEST_JOULES,
    )
    harvest_watts: float = field(
        0.0,
        "Power with which a device charges its battery at all times.",
        "W",
        ge=0,
        le=LARGEST_WATTS,
    )
    harvest_trace: str | None = field(
        None,
        "CSV file of `seconds,device,watts` rows: from this virtual second on, the device (`*`: "
        "every device) charges its battery with this power.",
    )

    @model_validator(mode="after")
    def _sane(self) -> FleetConfig:
        low, high = self.cpu_hz
        if not 1 <= low <= high <= LARGEST_HZ:
            raise rule_error(
                f"fleet.cpu_hz = [{low}, {high}]: two numbers from 1 to {LARGEST_HZ:g} Hz, the "
                "smaller first",
                "fleet.cpu_hz",
            )
        if self.power_watts > self.max_power_watts:
            raise rule_error(
                f"fleet.power_watts = {self.power_watts} exceeds fleet.max_power_watts = "
                f"{self.max_power_watts}",
                "fleet.power_watts",
                "fleet.max_power_watts",
            )
        slowest, fastest = self.speed_mps or (1.0, 1.0)
        if not 1e-6 <= slowest <= fastest <= 1e4:
            raise rule_error(
                f"fleet.speed_mps = [{slowest}, {fastest}]: two numbers from 1e-6 to 1e4 m/s, the "
                "smaller first; leave it out for devices that stay",
                "fleet.speed_mps",
            )
        if self.speed_mps is not None and self.position_trace is not None:
            keys = ("fleet.speed_mps", "fleet.position_trace")
            raise rule_error("{} and {} both move the devices; set one".format(*keys), *keys)
        names = [region.name for region in self.regions]
        if len(set(names)) < len(names):
            raise rule_error("fleet.regions: two regions have the same name", "fleet.regions")
        if self.file is None and self.positions is not None and len(self.positions) != self.devices:
            raise rule_error(
                f"fleet.positions: there are {len(self.positions)} positions for the "
                f"{self.devices} devices of fleet.regions; give one each",
                "fleet.positions",
                "fleet.regions",
                "fleet.file",
            )
        return self

    @property
    def devices(self) -> int:
        """Number of devices in all regions (not counting a fleet file)."""
        return sum(region.devices for region in self.regions)


class FaultsConfig(Section):
    """Devices and updates that fail."""

    dropout_probability: Share = field(0.0, "Probability that a device is absent in a round.", "1")
    dropout_trace: str | None = field(
        None, "CSV file of `round,device` rows: these devices are absent in these rounds."
    )
    availability_trace: str | None = field(
        None,
        "CSV file of `start,end,device` rows: these devices take part only in rounds that begin "
        "between these virtual seconds; devices without a row always do.",
    )
    leader_failure_probability: Share = field(
        0.0, "Probability that a leader fails in a round; another member then leads.", "1"
    )
    corrupt_probability: Share = field(
        0.0, "Probability that a unit sends nan or a huge update in a round.", "1"
    )


class RadioConfig(Section):
    """Carrier, antennas, path loss, fading, noise and access."""

    carrier_hz: float = field(915e6, "Carrier frequency.", "Hz", ge=1.0, le=LARGEST_HZ)
    bandwidth_hz: float = field(1e6, "Bandwidth of the uplink.", "Hz", ge=1e-3, le=LARGEST_HZ)
    antennas: int = field(
        15, "Receive antennas of the base station.", "antennas", ge=1, le=1_000_000
    )
    bs_gain_dbi: float = field(5.0, "Antenna gain of the base station.", "dBi", ge=-100, le=100)
    device_gain_dbi: float = field(0.0, "Antenna gain of a device.", "dBi", ge=-100, le=100)
    path_loss: Annotated[str, Choice(("paper", "log-distance", "umi", "uma"))] = field(
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
    uplink: Annotated[str, Choice(UPLINKS)] = field(
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
