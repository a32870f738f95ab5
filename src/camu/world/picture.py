"""A world in a notebook: a table of its regions and a map of its devices."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, decibels
from camu.notebook import COLOURS, html_table
from camu.world.devices import Devices
from camu.world.links import Links

LARGEST_MAP = 2000  # devices drawn
_WIDTH, _HEIGHT, _MARGIN = 420.0, 240.0, 12.0


def world_html(links: Links, stations: Float64) -> str:
    """A table with devices, samples and SNR per region, and an SVG map where positions are known.

    SNR is that at the base station without fading.
    """
    devices = links.devices
    names = list(dict.fromkeys(devices.regions))
    number = {name: index for index, name in enumerate(names)}
    regions = np.array([number[region] for region in devices.regions], dtype=np.int64)
    parts = [_table(links, names, regions)]
    placed = ~np.isnan(devices.positions[:, 0])
    if placed.any():
        parts += [_map(devices, stations[:, :2], regions, placed), _legend(names)]
    return "".join(parts)


def _table(links: Links, names: Sequence[str], regions: Int64) -> str:
    snr_db = decibels(links.uplink_snr())
    groups = {name or "devices": regions == number for number, name in enumerate(names)}
    if len(groups) > 1:
        groups["all"] = np.ones(len(regions), dtype=np.bool_)
    rows = []
    for name, mine in groups.items():
        samples, snr = links.devices.samples[mine], snr_db[mine]
        numbers = (f"{mine.sum()}", f"{samples.sum()}", f"{np.median(samples):g}")
        rows.append((name, *numbers, f"{np.median(snr):.1f}", f"{snr.min():.1f}"))
    head = ("region", "devices", "samples", "median samples", "median SNR, dB", "lowest SNR, dB")
    title = f"World of {links.count} devices, seed {links.seed}"
    return html_table(head, rows, title)


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    return (
        "<div>"
        + " ".join(
            f'<span style="color:{COLOURS[number % len(COLOURS)]}">&#9679;</span> {escape(name)}'
            for number, name in enumerate(names)
        )
        + "</div>"
    )


def _map(devices: Devices, stations: Float64, regions: Int64, placed: npt.NDArray[np.bool_]) -> str:
    shown = np.flatnonzero(placed)
    shown = shown[:: -(-len(shown) // LARGEST_MAP)]
    x, y = _to_picture(np.vstack([devices.positions[shown, :2], stations]))
    dots = [
        f'<circle cx="{x[k]:.1f}" cy="{y[k]:.1f}" r="3" '
        f'fill="{COLOURS[regions[device] % len(COLOURS)]}">'
        f"<title>{escape(devices.ids[device])}: {int(devices.samples[device])} samples"
        "</title></circle>"
        for k, device in enumerate(shown.tolist())
    ]
    for k in range(len(shown), len(x)):
        mast = f"M{x[k]:.1f} {y[k] - 7:.1f}l6 12h-12z"
        dots.append(f'<path d="{mast}" fill="currentColor"><title>base station</title></path>')
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" width="{_WIDTH:g}" height="{_HEIGHT:g}" '
        'role="img" aria-label="Map of the devices and the base station">'
        + "".join(dots)
        + "</svg>"
    )


def _to_picture(places: Float64) -> tuple[Float64, Float64]:
    """Places in metres as picture coordinates: one scale for both axes, y upwards, centred."""
    low, high = places.min(axis=0), places.max(axis=0)
    room = np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN
    scale = float((room / np.maximum(high - low, 1e-9)).min())
    centred = (places - 0.5 * (low + high)) * scale
    return centred[:, 0] + 0.5 * _WIDTH, 0.5 * _HEIGHT - centred[:, 1]
