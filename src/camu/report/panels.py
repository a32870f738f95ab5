"""The charts of a report in their order, each with the title that says what to see."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

HEIGHT = 340


@dataclass(frozen=True)
class Panel:
    """A chart and its words."""

    key: str
    title: str
    note: str
    table: str  # the rows without which there is nothing to see
    chart: str  # module.function that makes it; a name, because Altair takes long to load
    argument: str | None = None  # of that function
    row_pixels: int | None = None  # height per cluster or scheme; None: HEIGHT in all
    wide: bool = False

    def make(self) -> Any:
        """The chart as Altair's object."""
        module, name = self.chart.split(".")
        function = getattr(import_module(f"camu.report.{module}"), name)
        return function() if self.argument is None else function(self.argument)

    def spec(self, width: int | str, title: bool = False) -> dict[str, Any]:
        """The chart as Vega-Lite.

        Altair's checks of each part take most of the time of a page. A test makes them.
        """
        from altair.utils.schemapi import debug_mode

        with debug_mode(False):
            chart = self.make().properties(width=width)
            if self.row_pixels is None:
                chart = chart.properties(height=HEIGHT)
            if title:
                chart = chart.properties(title=self.title)
            spec: dict[str, Any] = chart.to_dict(validate=False)
        spec.pop("config", None)
        return spec

    def height(self, rows: int) -> int:
        """Pixels of a chart with this many clusters or schemes."""
        return HEIGHT if self.row_pixels is None else max(60, rows * self.row_pixels)


def _accuracy(axis: str, name: str) -> Panel:
    return Panel(
        key=f"accuracy-{axis}",
        title=f"Accuracy over {name}: higher and further left is better",
        note="Lines are means over seeds, bands their 95 % intervals. Hover for numbers; "
        "click a name in the legend to see it alone.",
        table="curves",
        chart="charts.accuracy",
        argument=axis,
        wide=True,
    )


def _frontier(cost: str, name: str) -> Panel:
    return Panel(
        key=f"frontier-{cost}",
        title=f"Accuracy against {name}: on the line, no other scheme is better in both",
        note="A dot per scheme at the end of its runs, mean over seeds. Hover for names; click a "
        "family in the legend to see it alone.",
        table="frontier",
        chart="charts.frontier",
        argument=cost,
    )


WORLD_PANELS = (
    _accuracy("rounds", "rounds"),
    _accuracy("joules", "energy"),
    _accuracy("seconds", "virtual time"),
    Panel(
        key="energy",
        title="Where the energy goes: computing, sending or receiving",
        note="Joules of a whole run, mean over seeds. Receiving costs nothing unless "
        "radio.downlink is on.",
        table="energy",
        chart="charts.energy",
        row_pixels=34,
        wide=True,
    ),
    Panel(
        key="alive",
        title="Batteries: how many devices still take part",
        note="Devices that are not empty, mean over seeds.",
        table="alive",
        chart="device_charts.alive",
        wide=True,
    ),
    _frontier("joules", "energy"),
    _frontier("seconds", "virtual time"),
)
PLAN_PANELS = (
    Panel(
        key="map",
        title="Who is where, and who talks to whom",
        note="Diamonds lead the cluster whose number they carry. Hover over a device for its data, "
        "its link and its battery; empty devices are grey. The axes have different scales.",
        table="links",
        chart="charts.device_map",
        wide=True,
    ),
    Panel(
        key="timeline",
        title="A round: the slowest cluster decides, the others wait",
        note="As planned, without fading and faults. Leaders send in turn under TDMA.",
        table="timeline",
        chart="charts.timeline",
        row_pixels=24,
    ),
    Panel(
        key="spending",
        title="What each device spent, the largest first",
        note="Joules of the whole run. Of many devices, some at equal steps of this order.",
        table="spending",
        chart="device_charts.spending",
    ),
    Panel(
        key="contribution",
        title="Contribution against the threshold: who may update repeatedly",
        note="Theta grows with a cluster's data and with how much its labels look like everyone's.",
        table="units",
        chart="charts.contributions",
        row_pixels=24,
    ),
    Panel(
        key="labels",
        title="Labels per cluster: bars at the dashes mean data like everyone's",
        note="Bars are shares of the cluster's samples, orange dashes those of all data.",
        table="labels",
        chart="charts.label_histograms",
        row_pixels=34,
    ),
    Panel(
        key="snr",
        title="Which devices hear each other: bright blocks are good links",
        note="SNR without fading, devices ordered by cluster; on the diagonal the link to the base "
        "station.",
        table="snr",
        chart="charts.snr_matrix",
    ),
    Panel(
        key="ppo",
        title="How PPO approaches the certified optimum",
        note="Best objective so far, in % above the exact solver's lower bound.",
        table="ppo",
        chart="charts.learning_curve",
    ),
)
