"""A meter for `camu deploy node --joules ina219:read`: an INA219 measures what a board draws.

Linux has its driver. On a board whose sensor is at address 0x40 of I2C bus 1, as root and once:

    modprobe ina2xx
    echo ina219 0x40 > /sys/bus/i2c/devices/i2c-1/new_device

The sensor tells watts at a moment. A thread looks 20 times a second and adds up joules.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

HWMON = Path("/sys/class/hwmon")
LOOKS_PER_SECOND = 20


def find_sensor(folder: Path = HWMON) -> Path:
    """The file with the microwatts of the first INA219."""
    for place in sorted(folder.glob("hwmon*")):
        if (place / "name").read_text().strip() == "ina219":
            return place / "power1_input"
    raise RuntimeError(f"no ina219 is in {folder}; is its driver loaded?")


class Meter:
    """Adds up the joules of a sensor; between two looks, watts change evenly."""

    def __init__(self, sensor: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.sensor, self.clock = sensor, clock
        self.joules, self.lock = 0.0, threading.Lock()
        self.when, self.watts = clock(), self.watts_now()

    def watts_now(self) -> float:
        """What the board draws at this moment."""
        return int(self.sensor.read_text()) / 1e6

    def read(self) -> float:
        """The joules since the meter was made."""
        with self.lock:
            when, watts = self.clock(), self.watts_now()
            self.joules += (when - self.when) * (self.watts + watts) / 2
            self.when, self.watts = when, watts
            return self.joules

    def run(self) -> None:
        """Look again and again; a look that fails is said by the next `read` of camu."""
        while True:
            time.sleep(1 / LOOKS_PER_SECOND)
            try:
                self.read()
            except (OSError, ValueError):
                continue


_meter: Meter | None = None


def read() -> float:
    """The joules so far, for camu."""
    global _meter
    if _meter is None:
        _meter = Meter(find_sensor())
        threading.Thread(target=_meter.run, daemon=True).start()
    return _meter.read()
