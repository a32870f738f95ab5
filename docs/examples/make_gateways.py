"""Makes gateways.csv and stations.csv: 500 gateways of an invented city, and its base stations.

The files are made, not measured: 40 sites within 1.5 km, path loss 35 dB + 32 dB per decade of
distance with 6 dB of shadowing, and two to four main kinds of data per site. Run it in this
directory: python make_gateways.py
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

from camu.seeding import derive

LATITUDE, LONGITUDE = 48.137, 11.575
STATIONS = [  # metres north and east of the middle
    ("mast-north", 900.0, 200.0),
    ("mast-south", -600.0, -700.0),
    ("mast-west", 300.0, -900.0),
]
METRES_PER_DEGREE = 111_200.0
SITES, GATEWAYS = 40, 500


def degrees(north_m: float, east_m: float) -> tuple[float, float]:
    """Latitude and longitude of a place in the city."""
    east = METRES_PER_DEGREE * math.cos(math.radians(LATITUDE))
    return LATITUDE + north_m / METRES_PER_DEGREE, LONGITUDE + east_m / east


def main() -> None:
    """Write both files."""
    draw = derive(0, "own-gateways").numpy()
    sites = draw.uniform(-1100, 1100, (SITES, 2))
    kinds = [draw.choice(10, draw.integers(2, 5), replace=False) for _ in range(SITES)]
    labels = [f"label_{label}" for label in range(10)]
    header = ["id", "region", "latitude", "longitude", "rssi_dbm", "power_watts"]
    rows = [[*header, "cpu_hz", "battery_joules", "firmware", *labels]]
    for number in range(GATEWAYS):
        site = number % SITES
        north, east = sites[site] + draw.normal(0, 15, 2)
        near = min(math.hypot(north - y, east - x, 30.0) for _, y, x in STATIONS)
        power = float(draw.choice([0.1, 0.25, 0.5]))
        loss_db = 35 + 32 * math.log10(near) + draw.normal(0, 6)
        rssi = 10 * math.log10(power) + 30 - loss_db + 12  # antennas and combining
        latitude, longitude = degrees(north, east)
        counts = [0] * 10
        for kind in kinds[site]:
            counts[kind] = int(draw.integers(10, 40))
        if number == 416:  # one digit of the latitude was mistyped, and nothing was measured
            latitude += 1.0
        row = [f"gw-{number + 1:03}", f"site-{site + 1:02}", f"{latitude:.5f}", f"{longitude:.5f}"]
        row += ["" if number == 416 else f"{rssi:.1f}", f"{power:g}"]
        row += [f"{draw.choice([6, 10, 14]) / 10:g}e9"]
        row += [str(draw.integers(20, 60) * 1000) if draw.random() < 0.6 else ""]
        rows.append([*row, f"2.{draw.integers(0, 4)}", *map(str, counts)])
    stations = [["id", "latitude", "longitude", "z"]]
    for name, north, east in STATIONS:
        latitude, longitude = degrees(north, east)
        stations.append([name, f"{latitude:.5f}", f"{longitude:.5f}", "30"])
    for name, table in (("gateways.csv", rows), ("stations.csv", stations)):
        with Path(name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(table)


if __name__ == "__main__":
    main()
