"""Makes export.csv: 400 gateways of an invented company, as its device management exports them.

Semicolons, decimal commas, a byte order mark, German headers, mWh and dBm, names of boards and
links as people write them, no counts of labels for every second gateway, and ten rows that are
wrong, listed in `spoil`. Run it in this directory: python make_export.py
"""

from __future__ import annotations

import math
from pathlib import Path

from camu.seeding import derive

LATITUDE, LONGITUDE = 52.41, 13.05
METRES_PER_DEGREE = 111_200.0
SITES, GATEWAYS = 33, 400
HEADER = "Seriennummer;Standort;Lat;Lon;RSSI dBm;Sendeleistung dBm;Akku mWh;Solar Wp;CPU;Link;"
HEADER += "Datenrate kbit/s;Messwerte;label_ok;label_wear;label_fault"
BOARDS = ("Raspberry Pi 4", "Raspberry Pi Zero 2 W", "Raspberry Pi 3B+", "ARM Cortex-A7")
# Name, kbit/s, power in dBm, and received power in dBm from and to.
LINKS = (
    ("LoRa SF7", 5.47, 14, -112, -95),
    ("LoRa SF9", 1.76, 14, -120, -112),
    ("NB-IoT", 60, 23, -118, -100),
    ("WLAN", 20000, 20, -72, -50),
)


def german(value: float) -> str:
    """A number with a decimal comma."""
    return f"{value:g}".replace(".", ",")


def gateways() -> list[list[str]]:
    """The rows as they should be."""
    draw = derive(0, "own-export").numpy()
    sites = draw.uniform(-9000, 9000, (SITES, 2)) / METRES_PER_DEGREE
    east = 1.0 / math.cos(math.radians(LATITUDE))
    rows = []
    for number in range(GATEWAYS):
        site = number % SITES
        north, across = sites[site] + draw.normal(0, 40, 2) / METRES_PER_DEGREE
        link, rate, power, low, high = LINKS[site % len(LINKS)]
        samples = int(draw.integers(80, 600))
        wear, fault = int(0.14 * samples), int(0.07 * samples)
        counts = [samples - wear - fault, wear, fault] if number % 2 else ["", "", ""]
        place = [f"{LATITUDE + north:.6f}", f"{LONGITUDE + east * across:.6f}"]
        rows.append([
            f"SG-{number:04}", f"Werk {site + 1}", *(cell.replace(".", ",") for cell in place),
            german(round(float(draw.uniform(low, high)), 1)), str(power),
            "Netz" if number % 3 else german(37000.5), german(2.5) if number % 7 == 0 else "",
            BOARDS[number % len(BOARDS)], link, german(rate), str(samples), *map(str, counts),
        ])  # fmt: skip
    return rows


def spoil(rows: list[list[str]]) -> list[list[str]]:
    """The same with ten rows that are wrong."""
    rows[11][0] = "SG-0010"  # an id that is there already
    rows[40][4] = "+63,9"  # a sign
    rows[61][12] = "-3"  # a count below zero
    rows[77][0] = ""  # no id
    rows[90][2:4] = ["0,0", "0,0"]  # in the sea
    rows[120][2:4] = rows[120][3:1:-1]  # latitude and longitude swapped
    rows[150][4] = "n/a"
    rows[171][11] = "k.A."
    rows.insert(200, [""] * len(rows[0]))
    rows.append(["Summe", *[""] * 10, "136000", "", "", ""])
    return rows


def main() -> None:
    """Write the file."""
    lines = [HEADER, *(";".join(row) for row in spoil(gateways()))]
    Path("export.csv").write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n").encode())


if __name__ == "__main__":
    main()
