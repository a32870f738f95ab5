"""What the problems per device share: the devices, the band, and the document."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from camu.allocation.document import (
    DEVICES,
    FROM_ZERO,
    POSITIVE,
    SHARE,
    Key,
    Positive,
    Rule,
    StatedProblem,
    keys_of,
    number,
    objects,
    read_object,
)
from camu.arrays import Float64

DevicePositive = Annotated[Float64, POSITIVE, DEVICES]
DeviceFromZero = Annotated[Float64, FROM_ZERO, DEVICES]
# A default of a number of each device is that of all of them.
DeviceZero = Annotated[Float64 | float, FROM_ZERO, DEVICES]
_FROM_ONE = number("number from 1", least=1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class DeviceProblem(StatedProblem):
    """Devices that compute and then send to the base station, each for itself.

    Attributes:
        cycles: C_k, the CPU cycles of a round.
        capacitance: kappa; computing at f hertz costs kappa C_k f^2 joules, and static power.
        max_hz: the largest frequency.
        gain: ||h_k||^2 of the uplink.
        max_power_watts: the largest power.
        bandwidth_hz: the whole band; of `resource-blocks`, one block.
        noise_watts: noise in that band.
        payload_bits: s, the size of an update.
        snr_gap: by how much the code needs more power than Shannon's, as a factor.
        max_bits_per_hz: the most bits per second and hertz that the code can carry.
        circuit_watts: what a device that sends draws beside its amplifier.
        amplifier_efficiency: radiated power as a share of what the amplifier draws.
        static_watts: what a device that computes draws at any frequency.
        source: named in error messages.
    """

    rows: ClassVar = DEVICES
    counted: ClassVar = "gain"
    cycles: DeviceFromZero
    capacitance: DeviceFromZero
    max_hz: DevicePositive
    gain: DevicePositive
    max_power_watts: DevicePositive
    bandwidth_hz: Positive
    noise_watts: Positive
    payload_bits: Positive
    snr_gap: Annotated[float, _FROM_ONE] = 1.0
    max_bits_per_hz: Positive | None = None
    circuit_watts: Annotated[float, FROM_ZERO] = 0.0
    amplifier_efficiency: Annotated[float, SHARE] = 1.0
    static_watts: DeviceZero = 0.0

    @classmethod
    def from_dict(cls, document: object, source: str = "problem") -> Self:
        """Build the problem from the parsed document of PROBLEM.json."""
        keys = keys_of(cls)
        kind = Rule(json.dumps(cls.kind), (str,), lambda value: value == cls.kind)
        head = {"kind": Key(kind), DEVICES: Key(objects("device"))}
        top = read_object(document, {**head, **keys[""]}, "", source)
        del top["kind"]
        rows = [
            read_object(row, keys[DEVICES], f"{DEVICES}[{index}]", source)
            for index, row in enumerate(top.pop(DEVICES))
        ]
        top |= {name: [row[name] for row in rows] for name in keys[DEVICES]}
        return cls(**top, source=source)

    def to_dict(self) -> dict[str, Any]:
        """The document of PROBLEM.json; `from_dict` gives the same problem back."""
        keys = keys_of(type(self))
        columns = [getattr(self, name).tolist() for name in keys[DEVICES]]
        rows = [dict(zip(keys[DEVICES], row, strict=True)) for row in zip(*columns, strict=True)]
        top = {name: getattr(self, name) for name in keys[""]}
        return {"kind": self.kind, DEVICES: rows, **top}

    @cached_property
    def noise(self) -> Float64:
        """n_k: noise of a hertz, times the gap of the code, divided by the gain (joules)."""
        return self.snr_gap * self.noise_watts / self.bandwidth_hz / self.gain

    @cached_property
    def drawn_noise(self) -> Float64:
        """n_k / eta: the same, of what the amplifier draws."""
        return self.noise / self.amplifier_efficiency

    @cached_property
    def cheapest_hz(self) -> Float64:
        """The frequency of the least energy within the limit; 0: the slower, the less.

        kappa C f^2 + static C / f is least at (static / (2 kappa))^(1/3).
        """
        static = np.asarray(self.static_watts, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            best = np.cbrt(static / (2.0 * self.capacitance))
        return np.where(static > 0.0, np.minimum(best, self.max_hz), 0.0)

    @cached_property
    def nats(self) -> float:
        """s ln 2, the size of an update in nats."""
        return self.payload_bits * math.log(2.0)

    @cached_property
    def most_nats(self) -> float:
        """The most nats per symbol that the code can carry."""
        return math.inf if self.max_bits_per_hz is None else self.max_bits_per_hz * math.log(2.0)

    def transmit_joules(self, seconds: Float64, bandwidth_hz: Float64) -> Float64:
        """What amplifier and circuits draw to send an update in such a time over such a band."""
        area = seconds * bandwidth_hz
        amplifier = self.drawn_noise * area * np.expm1(self.nats / area)
        return np.asarray(amplifier + self.circuit_watts * seconds)

    def transmit_watts(self, seconds: Float64, bandwidth_hz: Float64) -> Float64:
        """Radiated power that sends an update in so many seconds over so many hertz."""
        symbol = np.expm1(self.nats / (seconds * bandwidth_hz))
        return np.asarray(self.noise * bandwidth_hz * symbol)

    def compute_joules(self, cpu_hz: Float64) -> Float64:
        """Energy to compute a round at these frequencies."""
        static = self.static_watts * self.cycles / cpu_hz
        return np.asarray(self.capacitance * self.cycles * cpu_hz**2 + static)
