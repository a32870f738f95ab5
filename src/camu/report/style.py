"""The look that all charts share: colours safe for colour-blind readers, axes and themes."""

from __future__ import annotations

from typing import Any

from camu.notebook import COLOURS as _COLOURS

PALETTE = list(_COLOURS)
PHASES = {
    "receive": "#009E73",
    "compute": "#0072B2",
    "transmit": "#E69F00",
    "wait": "#C9CED6",
}
# Of joules: the phases, and idle power, which is drawn in all of them.
ENERGY = {kind: PHASES[kind] for kind in ("compute", "transmit", "receive")} | {"idle": "#C9CED6"}
TRAFFIC = {"uplink": "#E69F00", "gather": "#56B4E9", "downlink": "#009E73"}
COSTS = {
    "joules": "joules, all devices together",
    "seconds": "virtual seconds",
    "megabytes": "megabytes sent",
}
AXES = {"rounds": "rounds", **COSTS}
# The decisions of P2 that its figure maps over both budgets.
TRADE_OFF = {
    "objective": "Gap at the end (lower is better)",
    "rounds": "Rounds",
    "updates": "Updates per round, mean",
    "power": "Power of a leader, mean (W)",
    "gigahertz": "CPU frequency, mean (GHz)",
}
CHARTS = "charts.json"
# Markers in a chart; a list that holds one alone is replaced when the chart is drawn.
SCHEME_NAMES, COLOURS, DASHES = "$schemes", "$colours", "$dashes"
JOULES, SECONDS = "$joules", "$seconds"
# On a dark ground the darkest blue and the brightest grey change places with these.
DARK_SHADES = {"#0072B2": "#2F8AD6", "#C9CED6": "#4B535E"}
_LIGHT = ("#20262E", "#4A525D", "#E6E9EE", "#9AA3AF")  # ink, soft, grid, line
_DARK = ("#E8EAED", "#B4BBC5", "#363C45", "#717A86")
# A chart that was drawn for a dark page gets these colours when it is printed.
DARK_TO_LIGHT = {
    **dict(zip(_DARK, _LIGHT, strict=True)),
    **{dark: light for light, dark in DARK_SHADES.items()},
}
# Marks of these styles take the theme's colours, so that they are seen on light and dark pages.
INK, FAINT = "ink", "faint"


def theme(dark: bool = False) -> dict[str, Any]:
    """The Vega-Lite configuration of charts on a light or a dark ground."""
    ink, soft, grid, line = _DARK if dark else _LIGHT
    return {
        "font": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
        "view": {"stroke": None},
        "axis": {
            "gridColor": grid,
            "domainColor": line,
            "tickColor": line,
            "labelColor": soft,
            "titleColor": soft,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
        },
        "legend": {
            "labelColor": soft,
            "titleColor": soft,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
            "labelLimit": 240,
            "orient": "bottom",
            "columns": 4,
        },
        "title": {"anchor": "start", "fontSize": 14, "color": ink, "subtitleColor": soft},
        "text": {"color": ink},
        "style": {
            INK: {"color": ink, "fill": ink, "stroke": ink},
            FAINT: {"color": soft, "stroke": soft},
        },
    }
