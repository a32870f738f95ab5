"""The sections on data, fleet and faults; each field has a sentence, a unit and limits.

The defaults are the paper's section V under the sensible reading of each ambiguity; optional keys
default to unset, so that leaving a key out of a file and unsetting it mean the same.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import model_validator

from camu.config.fields import (
    LARGEST_GRAMS,
    LARGEST_HZ,
    LARGEST_JOULES,
    LARGEST_WATTS,
    MOST,
    Choice,
    Count,
    OrAuto,
    Section,
    Share,
    Watts,
    field,
    printable,
    rule_error,
)
from camu.config.regions import MOST_DEVICES, REGIONS, Metres, Position, Region, with_devices

DATASETS = (
    "mnist",
    "fashion-mnist",
    "cifar-10",
    "digits",
    "basic-motions",
    "japanese-vowels",
    "breast-cancer",
    "diabetes",
    "shakespeare",
)
Interval = tuple[float, float]


class DataConfig(Section):
    """Which data set, and how it is dealt to the devices."""

    dataset: Annotated[str, Choice(DATASETS, data=True, group="datasets")] = field(
        "mnist",
        "The data set; your own as a path (`./data.npz`, a CSV or Parquet table, or a "
        "directory), as `module:function` that returns inputs and targets, or as `hf:NAME` "
        "from Hugging Face.",
    )
    target: Literal["auto", "classes", "numbers", "next-token"] = field(
        "auto",
        "What a model shall say of a sample of your own data: its class, a number or several, or "
        "the next token; `auto`: classes if targets are whole numbers, numbers if they are floats, "
        "the next token if there are only tokens.",
    )
    standardise: bool = field(
        False,
        "Subtract the mean and divide by the standard deviation of the devices' training data: of "
        "each feature of a table, of each channel of series and images, and of each target that is "
        "a number.",
    )
    target_column: Annotated[str, printable] | None = field(
        None, "Column of a table that holds the targets; unset: `target` or `label`."
    )
    input_columns: Annotated[str, printable] | None = field(
        None, "Columns of a table that are inputs, with commas; unset: all that are nothing else."
    )
    label_column: Annotated[str, printable] | None = field(
        None,
        "What partitions and clusters count where targets are no classes: a column of a table, or "
        "of arrays `train_NAME` and `test_NAME`; unset: quantile bins of numbers, and one label "
        "for all other data.",
    )
    device_column: Annotated[str, printable] | None = field(
        None,
        'Whose sample each is, for `partition = "given"`: a column of a table, or of arrays '
        "`train_NAME` and `test_NAME`.",
    )
    directory: str | None = field(
        None, "Directory that holds a built-in data set's files; unset: the cache."
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
    sample_bytes: float | None = field(
        None,
        "Size of a sample with its target, as a device would send it to a server once in place of "
        "learning; unset: a byte per number of an image, four per other number.",
        "bytes",
        affects="none",
        gt=0,
        le=1e9,
    )
    validation_share: Share = field(
        0.0,
        "Share of its samples that each device holds back from training. Models are judged by "
        "these in place of the test samples, which stay unseen: for choosing rates and the like.",
        "1",
    )


class FleetConfig(Section):
    """The devices and the base station."""

    file: str | None = field(None, "Fleet file (CSV or JSON) that replaces the regions.")
    snr_file: str | None = field(None, "Measured device-to-device SNR matrix in dB (CSV).")
    devices: int = field(
        30,
        "Devices in all regions together; regions keep their proportions. Unset: as many as "
        "`regions` says.",
        "devices",
        ge=1,
        le=MOST_DEVICES,
    )
    regions: tuple[Region, ...] = field(
        REGIONS,
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
    board: str | None = field(
        None,
        "Board of every device, or of those for which a fleet file gives none: a name that `camu "
        "fleet boards` lists, or the profile that `camu measure` wrote. It gives their clock, "
        "cycles per sample (by the model's FLOPs), capacitance, idle and static watts.",
    )
    cpu_hz: Interval = field(
        (0.2e9, 2.0e9),
        "Lowest and highest CPU frequency, for example `[1e9, 2e9]`; devices draw uniformly.",
        "Hz",
        strict=False,
    )
    cycles_per_sample: Annotated[float | Literal["auto"], OrAuto(1e-6, 1e15)] = field(
        2.0e6,
        "CPU cycles to process one training sample once, the paper's number by default; `auto`: as "
        "many as the model's FLOPs (forward and backward) take at flops_per_cycle.",
        "cycles",
    )
    flops_per_cycle: float = field(
        2.0,
        'FLOPs of training that a device does per cycle, with `cycles_per_sample = "auto"`; 2: '
        "what a core of a Raspberry Pi 4 reaches in Linpack.",
        "1",
        ge=1e-9,
        le=1e9,
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
    sleep_watts: Annotated[float | Literal["auto"], OrAuto(0.0, LARGEST_WATTS)] | None = field(
        None,
        "What a device draws while it sleeps between rounds; that of its board if it has one, and "
        "`auto`: only devices with a board sleep. Unset: devices stay awake, at idle power.",
        "W",
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
    solar_watts_peak: float = field(
        0.0,
        "Peak power of the solar panel that charges a device's battery, on level ground, in "
        "addition to harvest_watts and harvest_trace.",
        "W",
        ge=0,
        le=LARGEST_WATTS,
    )
    solar_share: float = field(
        0.5,
        "What reaches the battery, as a share of what the panel would give under a clear sky: "
        "clouds, shade, dirt, losses. An estimate.",
        "1",
        ge=0,
        le=2,
    )
    latitude: float | None = field(
        None,
        "Latitude of the sun, with solar_watts_peak; unset: that of the middle of a fleet file "
        "with degrees.",
        "degrees",
        ge=-90,
        le=90,
    )
    start_day: float = field(
        1.0, "Day of the year at virtual second 0, with solar_watts_peak.", "days", ge=1, lt=366
    )
    start_hour: float = field(
        0.0, "Hour of local solar time at virtual second 0, likewise.", "h", ge=0, lt=24
    )
    harvest_trace: str | None = field(
        None,
        "CSV file of `seconds,device,watts` rows: from this virtual second on, the device (`*`: "
        "every device) charges its battery with this power.",
    )

    grams_per_kwh: float | None = field(
        None,
        "Grams of CO2 per kWh of the devices' energy; plans, forecasts and summaries then say "
        "grams. Unset: they do not.",
        "g/kWh",
        ge=0,
        le=LARGEST_GRAMS,
    )
    carbon_trace: str | None = field(
        None,
        "CSV file of `seconds,grams_per_kwh` rows in place of grams_per_kwh: each holds from its "
        "virtual second on, and the first one before that too.",
    )

    @model_validator(mode="after")
    def _sane(self) -> FleetConfig:
        if self.grams_per_kwh is not None and self.carbon_trace is not None:
            both = ("fleet.grams_per_kwh", "fleet.carbon_trace")
            raise rule_error("{} and {} say the same; set one".format(*both), *both)
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
        if self.devices != sum(region.devices for region in self.regions):
            raise rule_error(
                f"fleet.devices = {self.devices}: there are {len(self.regions)} regions, and "
                "each needs a device; give more, or other fleet.regions",
                "fleet.devices",
            )
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

    @model_validator(mode="before")
    @classmethod
    def _count_devices(cls, values: Any) -> Any:
        """Let `devices` and `regions` say the same; what is given as `devices` counts."""
        if not isinstance(values, dict):
            return values
        return with_devices(values)


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
