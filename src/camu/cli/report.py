"""`camu report`: one page that shows what runs did, and charts for papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camu.cli.console import WorkBar
from camu.cli.options import (
    FigureFont,
    FigureTitle,
    FigureWidth,
    check_outputs,
    to_file,
    to_folder,
)


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR…", help="Run directories, or directories of them."),
    ],
    out: Annotated[
        Path | None,
        to_file("--out", "The page [default: report.html in DIR]."),
    ] = None,
    figures: Annotated[
        Path | None,
        to_folder("--figures", "Also save every chart as SVG and PDF."),
    ] = None,
    figure_width: FigureWidth = None,
    figure_font: FigureFont = None,
    figure_title: FigureTitle = True,
) -> None:
    """Write one HTML page about runs: it needs no network and no other file.

    DIR is what `camu run`, `camu compare --out` or `camu reproduce` wrote; run directories are
    found at any depth, unfinished ones too. A verdicts.json on top is shown as a table. Next to
    the page of a comparison, which stays, the page is report-runs.html.
    """
    from camu.outputs import claim
    from camu.report.printed import Print
    from camu.report.writing import write_report

    check_outputs([out])
    if figures is not None:
        claim(figures, "report --figures")
    with WorkBar() as progress:
        look = Print(figure_width, figure_font, figure_title)
        page = write_report(directories, out, figures, progress=progress, printed=look)
    if figures is not None:
        print(f"figures: {figures}")
    print(f"report: {page}")
