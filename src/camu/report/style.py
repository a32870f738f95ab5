"""The look that all charts share: colours safe for colour-blind readers, quiet axes, saving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vl_convert

from camu.errors import CamuError, InputError
from camu.files import write_whole
from camu.notebook import COLOURS

if TYPE_CHECKING:
    import altair as alt

VEGA_LITE_VERSION = "6.4"  # which Altair writes charts for, as vl-convert counts
PALETTE = list(COLOURS)
PHASES = {
    "receive": "#009E73",
    "compute": "#0072B2",
    "transmit": "#E69F00",
    "wait": "#C9CED6",
}
# On a dark ground the darkest blue and the brightest grey change places with these.
DARK_SHADES = {"#0072B2": "#2F8AD6", "#C9CED6": "#4B535E"}
_LIGHT = ("#20262E", "#4A525D", "#E6E9EE", "#9AA3AF")  # ink, soft, grid, line
_DARK = ("#E8EAED", "#B4BBC5", "#363C45", "#717A86")
# A chart that was drawn for a dark page gets these colours when it is printed.
DARK_TO_LIGHT = {
    **dict(zip(_DARK, _LIGHT, strict=True)),
    **{dark: light for light, dark in DARK_SHADES.items()},
}
FORMATS = ("svg", "png", "pdf", "html", "json")
# Marks of these styles take the theme's colours, so that they are seen on light and dark pages.
INK, FAINT = "ink", "faint"


def save(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write a chart; the file's ending decides the format."""
    ending = path.suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        raise InputError(f"{path}: end the file's name with one of .{', .'.join(FORMATS)}")
    options: dict[str, Any] = {"inline": True} if ending == "html" else {}
    if ending == "png":
        options["ppi"] = 144
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        chart.save(str(path), **options)
    except OSError as error:
        raise CamuError(f"{path}: cannot be written ({error.strerror})") from None


def quiet(chart: Any) -> Any:
    """Light grid, no frame, readable sizes."""
    return chart.configure(**theme())


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


def save_spec(spec: dict[str, Any], path: Path, endings: Sequence[str]) -> None:
    """Write a Vega-Lite specification as `path` with each of these endings: svg, pdf."""
    for ending in endings:
        convert = vl_convert.vegalite_to_svg if ending == "svg" else vl_convert.vegalite_to_pdf
        content = convert(spec, vl_version=VEGA_LITE_VERSION)
        _write(path.with_name(f"{path.name}.{ending}"), content)


def _write(path: Path, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    write_whole(path, lambda temporary: _fill(temporary, data))


def _fill(path: Path, data: bytes) -> None:
    path.write_bytes(data)
