"""Compare camu's link formulas with numbers of ns-3 and Sionna; prints a Markdown table.

`python compare.py FILE...` reads lines of what,link,parameter,stations,value as ns3_links and
sionna_bler.py print them. Errors are relative to the other program's value; of SNRs, in dB.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import defaultdict

import numpy as np

from camu.world import air_time
from camu.world.link_types import LINK_TYPES, Wifi
from camu.world.radio_states import RADIOS

FRAME_BITS = {"802.15.4": 8 * 116, "wifi-n": 12_000, "wifi-ax": 12_000}
# Of ns-3 all Wi-Fi stations have the same radio. Its counts of 802.15.4 stations that camu's
# formula was not taken from are compared.
NS3_WIFI = Wifi(ax=False, radio=RADIOS["wifi-ax"])
LRWPAN_COUNTS = (4, 7, 12, 25, 40)


def ours(what: str, link: str, parameter: float, stations: int) -> float:
    """The number of camu's formula."""
    if what == "delivery" and link == "802.15.4":
        return 1.0 - float(air_time.lrwpan_frame_error(10.0 ** (parameter / 10.0), 127))
    if what == "delivery":
        return 1.0 - float(NS3_WIFI.error_above(parameter))
    if what == "threshold_db":
        snr_db = air_time.NR_SNR_DB if link == "nr" else air_time.WIFI_SNR_DB
        return float(snr_db[int(parameter) - (link == "nr")])
    if what == "air_us":
        return 1e6 * float(air_time.wifi_frame_seconds(1536, int(parameter), link == "wifi-ax"))
    # At the SNR where the rate begins, without its errors: the stations are close by.
    snr_db = 60.0 if link == "802.15.4" else air_time.WIFI_SNR_DB[int(parameter)]
    sending = (NS3_WIFI if link == "wifi-n" else LINK_TYPES[link]).send(
        FRAME_BITS[link], snr_db, stations
    )
    again = 1.0 if link == "802.15.4" else 0.9
    if what == "frame_us":
        return 1e6 * again * float(sending.seconds)
    if what == "tries":
        return float(sending.air_seconds) / (133 * air_time.LRWPAN_BYTE_SECONDS)
    return 1e3 * again * float(sending.transmit_joules + sending.receive_joules)


# What is compared, in words; SNRs by their differences in dB.
WORDS = {
    ("delivery", "802.15.4"): "802.15.4, share of frames delivered at -2 to 3 dB",
    ("frame_us", "802.15.4"): "802.15.4, seconds a frame, 4 to 40 stations",
    ("tries", "802.15.4"): "802.15.4, tries a frame, 4 to 40 stations",
    ("air_us", "wifi"): "Wi-Fi, time on air",
    ("threshold_db", "wifi"): "Wi-Fi, SNR at which a rate loses 10 %",
    ("delivery", "wifi"): "Wi-Fi, share of frames delivered 0 to 2 dB above it",
    ("frame_us", "wifi-n"): "Wi-Fi n, seconds a frame, 1 to 20 stations",
    ("mj_per_frame", "wifi-n"): "Wi-Fi n, joules a frame, 1 to 20 stations",
    ("frame_us", "wifi-ax"): "Wi-Fi ax, seconds a frame, 1 to 20 stations",
    ("mj_per_frame", "wifi-ax"): "Wi-Fi ax, joules a frame, 1 to 20 stations",
    ("threshold_db", "nr"): "NR, SNR at which a rate loses 10 % (Sionna)",
}


def main(paths: list[str]) -> None:
    """Read the files and print the table."""
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    other = formula = 0.0  # processor seconds
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for what, link, parameter, stations, value in csv.reader(lines):
                crowd = link == "802.15.4" and what != "delivery"
                if crowd and int(stations) not in LRWPAN_COUNTS:
                    continue
                if what == "processor_seconds":
                    other += float(value)
                    continue
                began = time.process_time()
                found = ours(what, link, float(parameter), int(stations))
                formula += time.process_time() - began if what == "frame_us" else 0.0
                error = abs(found - float(value))
                cells = what in ("frame_us", "mj_per_frame")
                family = "wifi" if link.startswith("wifi") and not cells else link
                scale = 1.0 if what == "threshold_db" else float(value)
                errors[what, family].append(error / scale)
    print("| what | numbers | median error | 95th percentile |\n|---|---|---|---|")
    for key, words in WORDS.items():
        if values := errors.get(key):
            middle, high = np.quantile(values, (0.5, 0.95))
            form = "{:.2f} dB" if key[0] == "threshold_db" else "{:.1%}"
            shown = f"{form.format(middle)} | {form.format(high)}"
            print(f"| {words} | {len(values)} | {shown} |")
    if formula:
        times = f"{other / formula:,.0f} times as fast"
        print(f"\nNetworks, processor time: ns-3 {other:.0f} s, camu {formula:.2g} s, {times}")


if __name__ == "__main__":
    main(sys.argv[1:])
