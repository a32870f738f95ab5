"""Charts as Vega-Lite: read from the package, filled with rows, saved, and drawn by a library."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from camu.data.store import cache_root
from camu.errors import CamuError, InputError
from camu.files import open_regular, write_bytes
from camu.learning.metrics import Metric
from camu.report.style import CHARTS, COLOURS, DASHES, SCHEME_NAMES, theme

Spec = dict[str, Any]
Look = dict[str, tuple[str, list[int]]]  # colour and dashes of each scheme
VEGA_LITE_VERSION = "6.4"  # which Altair writes charts for, as vl-convert counts
HEIGHT = 340
ENDINGS = ("svg", "pdf", "png", "json", "html")
# The script of vl-convert is kept only where it is known: reports of all later runs embed it.
_LIBRARY_DIGESTS = {
    "1.9.0.post1": "373b1f84072b31010f15ceb787be6b415c53936411aae267c8c2b2b6ccde46e7",
}


@cache
def charts() -> dict[str, Spec]:
    """All charts by key, without data; `scripts/make-charts` makes them."""
    text = (resources.files("camu.report") / "templates" / CHARTS).read_text(encoding="utf-8")
    found: dict[str, Spec] = json.loads(text)
    return found


def line_marks(data: Mapping[str, Any], look: Look) -> dict[str, Any]:
    """The schemes in a chart of lines with their colours and dashes."""
    lines = data.get("curves") or data.get("alive", [])
    shown = list(dict.fromkeys(row["scheme"] for row in lines))
    return {
        SCHEME_NAMES: shown,
        COLOURS: [look[label][0] for label in shown],
        DASHES: [look[label][1] for label in shown],
    }


def _drawn() -> Any:
    """The library that draws charts; it is loaded when the first chart is drawn."""
    import vl_convert

    return vl_convert


def chart(key: str, values: Mapping[str, Any] | None = None, /, **properties: Any) -> Spec:
    """A chart with its markers replaced by `values`, and with width, height or title."""
    filled: Spec = _fill(charts()[key], values or {})
    return filled | properties


def _fill(spec: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(spec, str) and isinstance(values.get(spec), str):
        return values[spec]
    if isinstance(spec, dict):
        return {key: _fill(value, values) for key, value in spec.items()}
    if isinstance(spec, list):
        if len(spec) == 1 and isinstance(spec[0], str) and spec[0] in values:
            return values[spec[0]]
        return [_fill(value, values) for value in spec]
    return spec


def quiet(spec: Spec, datasets: Mapping[str, Any] | None = None, padding: int = 8) -> Spec:
    """The chart with its rows, on a light ground."""
    data = {"datasets": {**spec.get("datasets", {}), **datasets}} if datasets else {}
    return {"padding": padding, **spec, **data, "config": theme()}


def check_ending(path: Path) -> None:
    """Refuse a file whose ending is no format of charts."""
    if path.suffix.removeprefix(".").lower() not in ENDINGS:
        raise InputError(f"{path}: end the file's name with one of .{', .'.join(ENDINGS)}")


def save(spec: Spec, path: Path) -> None:
    """Write a chart; the file's ending decides the format."""
    ending = path.suffix.removeprefix(".").lower()
    version = VEGA_LITE_VERSION
    write: dict[str, Callable[[], str | bytes]] = {
        "svg": lambda: svg(spec),
        "pdf": lambda: _drawn().vegalite_to_pdf(spec, vl_version=version),
        "png": lambda: _drawn().vegalite_to_png(spec, vl_version=version, ppi=144),
        "json": lambda: json.dumps(spec, indent=2) + "\n",
        "html": lambda: _html(spec),
    }
    check_ending(path)
    content = write[ending]()
    write_bytes(path, content.encode() if isinstance(content, str) else content)


def svg(spec: Spec) -> str:
    """The text of a chart as SVG."""
    text: str = _drawn().vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
    return text


def _html(spec: Spec) -> str:
    """One chart as a page that needs no network and no other file."""
    script = (
        "vegaEmbed('#chart', JSON.parse(document.getElementById('spec').textContent), "
        "{mode: 'vega-lite', renderer: 'svg', ast: true, actions: {source: false, compiled: false, "
        "editor: false}});"
    )
    library = chart_library()
    return template("camu.report", "figure.html").render(
        policy=safe(script_policy(library, script)),
        spec=safe(embeddable(spec)),
        library=safe(library),
        script=safe(script),
    )


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; putting them together takes seconds."""
    version = metadata.version("vl-convert-python")
    digest = _LIBRARY_DIGESTS.get(version)
    path = cache_root() / "report" / f"vega-lite-{VEGA_LITE_VERSION}-vl-convert-{version}.js"
    data = b""
    with suppress(OSError), open_regular(path) as stream:
        data = stream.read()
    if hashlib.sha256(data).hexdigest() != digest:
        script = "window.vegaEmbed=vegaEmbed;"
        data = _drawn().javascript_bundle(script, VEGA_LITE_VERSION).encode()
        if hashlib.sha256(data).hexdigest() == digest:
            with suppress(CamuError):  # a cache that cannot be written costs time, nothing else
                write_bytes(path, data)
    # A browser would end the script at a closing tag within it; the function keeps names inside.
    return "(() => {" + data.decode().replace("</script", r"<\/script") + "})();"


def script_policy(*scripts: str) -> str:
    """A content security policy under which these scripts run, and no other."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )


def embeddable(document: Any) -> str:
    """JSON that no text within it can end."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def safe(text: str) -> Markup:
    """Text that goes into a page as it is: camu's own files, and JSON in which `<` is escaped."""
    return Markup(text)  # nosec B704


def template(package: str, name: str) -> Template:
    """A page of a package, in which everything but `safe` text is escaped."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


@dataclass(frozen=True)
class Panel:
    """A chart and its words."""

    key: str  # of the chart
    title: str
    note: str
    rows: str = ""  # the table without which there is nothing to see; default: the key
    row_pixels: int | None = None  # height per cluster or scheme; None: HEIGHT in all
    wide: bool = False

    def titled(self, metric: Metric) -> Panel:
        """The panel for scores of this metric."""
        score = metric.title[0].upper() + metric.title[1:]
        better = "higher" if metric.higher_is_better else "lower"
        return replace(self, title=self.title.format(score=score, better=better))

    @property
    def table(self) -> str:
        """The name of the table without which there is nothing to see."""
        return self.rows or self.key

    def spec(self, width: int | str) -> dict[str, Any]:
        """The chart without data."""
        height = {"height": HEIGHT} if self.row_pixels is None else {}
        return chart(self.key, width=width, **height)

    def height(self, rows: int) -> int:
        """Pixels of a chart with this many clusters or schemes."""
        return HEIGHT if self.row_pixels is None else max(60, rows * self.row_pixels)


_LINES = (
    "Lines are means over seeds, bands their 95 % intervals. Hover for numbers; click a name in "
    "the legend to see it alone."
)
_DOTS = (
    "A dot per scheme at the end of its runs: mean over seeds, bars its 95 % intervals. Where bars "
    "overlap, the order may be chance. Click a family in the legend to see it alone."
)
_COST_NAMES = {"joules": "energy", "seconds": "virtual time", "megabytes": "traffic"}
WORLD_PANELS = (
    *(
        Panel(
            f"accuracy-{axis}",
            f"{{score}} over {name}: {{better}} and further left is better",
            _LINES,
            "curves",
            wide=True,
        )
        for axis, name in {"rounds": "rounds", **_COST_NAMES}.items()
    ),
    Panel(
        "energy",
        "Where the energy goes: computing, sending or receiving",
        "Joules of a whole run, mean over seeds. Receiving costs nothing unless radio.downlink is "
        "on.",
        row_pixels=34,
        wide=True,
    ),
    Panel(
        "traffic",
        "Where the megabytes go: uplink, clusters or downlink",
        "Megabytes of a whole run, mean over seeds: what leaders send to the base station, "
        "members to their leaders, and the base station to all.",
        row_pixels=34,
        wide=True,
    ),
    Panel(
        "alive",
        "Batteries: how many devices still take part",
        "Devices that are not empty, mean over seeds.",
        wide=True,
    ),
    *(
        Panel(
            f"frontier-{cost}",
            f"{{score}} against {name}: on the line, no other mean is better in both",
            _DOTS,
            "frontier",
        )
        for cost, name in _COST_NAMES.items()
    ),
)
PLAN_PANELS = (
    Panel(
        "map",
        "Who is where, and who talks to whom",
        "Diamonds lead the cluster whose number they carry. Hover over a device for its data, "
        "its link and its battery; empty devices are grey. Both axes have one scale. With "
        "more than 100 devices, clusters are areas.",
        "links",
        wide=True,
    ),
    Panel(
        "timeline",
        "A round: the slowest cluster decides, the others wait",
        "As planned, without fading and faults. Gather: members send to their leaders. Uplink: "
        "leaders send to the base station, in turn under TDMA.",
        row_pixels=24,
    ),
    Panel(
        "spending",
        "What each device spent, the largest first",
        "Joules of the whole run. Of many devices, some at equal steps of this order.",
    ),
    Panel(
        "contribution",
        "Contribution against the threshold: who gets extra updates",
        "Theta grows with a cluster's data and with how much its labels look like everyone's.",
        "units",
        row_pixels=24,
    ),
    Panel(
        "labels",
        "Labels per cluster: bars at the dashes mean data like everyone's",
        "Bars are shares of the cluster's samples, orange dashes those of all data.",
        row_pixels=34,
    ),
    Panel(
        "snr",
        "Which devices hear each other: bright blocks are good links",
        "SNR without fading, devices ordered by cluster; on the diagonal the link to the base "
        "station.",
    ),
    Panel(
        "ppo",
        "How PPO approaches the certified optimum",
        "Best objective so far, in % above the exact solver's lower bound.",
    ),
)
