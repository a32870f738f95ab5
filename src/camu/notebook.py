"""Small pieces of HTML for notebooks: a table and a line chart, with all text escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

Point = tuple[float, float]

# Okabe and Ito's colours, distinct under every common colour vision deficiency; their yellow is
# darkened, because thin yellow lines vanish on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A8500", "#999999")
_WIDTH, _HEIGHT, _LEFT, _BELOW = 420, 180, 42, 34


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table; every column but the first is right-aligned."""
    right = ' style="text-align:right"'
    title = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    top = "".join(f"<th{right if i else ''}>{escape(name)}</th>" for i, name in enumerate(head))
    body = "".join(
        "<tr>"
        + "".join(f"<td{right if i else ''}>{escape(cell)}</td>" for i, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def line_chart(lines: Mapping[str, Sequence[Point]], x_title: str, y_title: str) -> str:
    """Lines over a common axis as inline SVG, with a legend where there are several."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    last = max(x for x, _ in points) or 1.0
    bottom = min(0.0, *(y for _, y in points))
    top = max(y for _, y in points) or 1.0

    def place(point: Point) -> str:
        x = _LEFT + point[0] / last * (_WIDTH - _LEFT - 10)
        y = 10 + (1 - (point[1] - bottom) / (top - bottom)) * (_HEIGHT - _BELOW - 10)
        return f"{x:.1f},{y:.1f}"

    drawn = "".join(
        f'<polyline fill="none" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="2" '
        f'points="{" ".join(map(place, line))}"><title>{escape(name)}</title></polyline>'
        for i, (name, line) in enumerate(lines.items())
    )
    floor = _HEIGHT - _BELOW
    axes = (
        f'<path d="M{_LEFT},10V{floor}H{_WIDTH - 10}" fill="none" stroke="#9AA3AF"/>'
        f'<g font-size="11" font-family="sans-serif" fill="currentColor">'
        f'<text x="{_LEFT - 4}" y="16" text-anchor="end">{top:.3g}</text>'
        f'<text x="{_LEFT - 4}" y="{floor}" text-anchor="end">{bottom:.3g}</text>'
        f'<text x="{_WIDTH - 10}" y="{floor + 14}" text-anchor="end">{last:.3g}</text>'
        f'<text x="{_LEFT}" y="{floor + 28}">{escape(y_title)} over {escape(x_title)}</text></g>'
    )
    legend = ""
    if len(lines) > 1:
        legend = (
            "<div>"
            + " ".join(
                f'<span style="color:{COLOURS[i % len(COLOURS)]}">&#9644;</span> {escape(name)}'
                for i, name in enumerate(lines)
            )
            + "</div>"
        )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(y_title)} over {escape(x_title)}">{axes}{drawn}</svg>{legend}'
    )
