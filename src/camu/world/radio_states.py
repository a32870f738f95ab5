"""What radios draw by state.

Currents marked "typical" are from memory of datasheets; the others were read in ns-3's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class RadioStates(NamedTuple):
    """Electrical power of a radio by state, in watts."""

    transmit: float
    receive: float
    idle: float
    sleep: float


# Supply voltage times current.
RADIOS: Mapping[str, RadioStates] = {
    # ns-3 module lorawan, 3.3 V.
    "lora": RadioStates(3.3 * 28e-3, 3.3 * 11.2e-3, 3.3 * 1.4e-3, 3.3 * 1.5e-6),
    # CC2420 at 0 dBm, 3 V, typical.
    "802.15.4": RadioStates(3.0 * 17.4e-3, 3.0 * 18.8e-3, 3.0 * 0.43e-3, 3.0 * 2e-8),
    # ESP32-S3, 3.3 V, typical.
    "wifi-n": RadioStates(3.3 * 290e-3, 3.3 * 90e-3, 3.3 * 30e-3, 3.3 * 0.24e-3),
    # ns-3 WifiRadioEnergyModel, 3 V.
    "wifi-ax": RadioStates(3.0 * 380e-3, 3.0 * 313e-3, 3.0 * 273e-3, 3.0 * 33e-3),
    # BG96 at 23 dBm, 3.8 V, typical.
    "nb-iot": RadioStates(3.8 * 220e-3, 3.8 * 60e-3, 3.8 * 20e-3, 3.8 * 10e-6),
    # A port of 100 Mbit/s (LAN8720A), 3.3 V, typical.
    "ethernet": RadioStates(3.3 * 54e-3, 3.3 * 54e-3, 3.3 * 50e-3, 3.3 * 2e-3),
    # A modem at 23 dBm, typical; shares of the states as in 3GPP TR 38.840.
    "cellular": RadioStates(2.0, 2.0 * 300 / 700, 2.0 * 45 / 700, 2.0 / 700),
}
