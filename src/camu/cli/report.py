"""`camu report`: one page that shows what runs did, and charts for papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from camu.cli.console import plain_console
from camu.cli.options import output_path


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR…", help="Run directories, or directories of them."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=output_path,
            metavar="FILE",
            help="The page [default: report.html in DIR].",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            parser=output_path,
            metavar="DIR",
            help="Also save every chart as SVG and PDF.",
        ),
    ] = None,
) -> None:
    """Write one HTML page about runs: it needs no network and no other file.

    DIR is what `camu run`, `camu compare --out` or `camu reproduce` wrote; run directories are
    found at any depth, unfinished ones too. A verdicts.json on top is shown as a table.
    """
    from camu.report.writing import write_report

    stderr = plain_console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("writing figures", visible=False)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=escape(what), completed=done, total=total, visible=True)

        page = write_report(directories, out, figures, progress=show)
    if figures is not None:
        print(f"figures: {figures}")
    print(f"report: {page}")
