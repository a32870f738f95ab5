"""The look that all charts share: colours safe for colour-blind readers, axes and themes."""

from __future__ import annotations

from typing import Any

from camu.learning.metrics import Metric
from camu.notebook import COLOURS as _COLOURS

PALETTE = list(_COLOURS)
# Of a round: members send to their leaders (gather), leaders to the base station (uplink).
PHASES = {
    "receive": "#009E73",
    "compute": "#0072B2",
    "gather": "#56B4E9",
    "uplink": "#E69F00",
    "wait": "#C9CED6",
}
# Of joules: sending is both of a kind, and idle power is drawn in all phases.
ENERGY = {"compute": "#0072B2", "transmit": "#E69F00", "receive": "#009E73", "idle": "#C9CED6"}
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
FOUND = "found"  # a parameter of maps: part of a device's id, in small letters
RATIO = "ratio"  # of a map's width to its height: a parameter, so that both axes have one scale
# These stand for texts: the score, its axis with its ticks, a number, and an interval.
SCORE, SCORE_AXIS, SCORE_TICKS = "$score", "$score_axis", "$score_ticks"
SCORE_FORMAT, SCORE_INTERVAL = "$score_format", "$score_interval"
# Of a search: its scores, a parameter, and scores at two budgets.
VALIDATION_SCORE, PARAMETER = "$validation_score", "$parameter"
FIRST_BUDGET, SECOND_BUDGET = "$first_budget", "$second_budget"
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


def score_marks(metric: Metric) -> dict[str, str]:
    """What the markers of a chart of scores stand for."""
    short = ".1%" if metric.share else ".4~g"
    words = f"format(datum.low, '{short}') + ' to ' + format(datum.high, '{short}')"
    return {
        SCORE: metric.title,
        SCORE_AXIS: f"test {metric.title}",
        SCORE_TICKS: ".2~%" if metric.share else "~g",
        SCORE_FORMAT: ".2%" if metric.share else ",.4~g",
        SCORE_INTERVAL: f"datum.n > 1 ? {words} : 'one seed has none'",
    }


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
