"""The command line: one thin file per command, one place where errors become exit codes."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from camu import __version__
from camu.cli import (
    allocate,
    answer,
    bench,
    board,
    compare,
    config,
    data,
    demo,
    deploy,
    export,
    fleet,
    forecast,
    live,
    measure,
    plan,
    report,
    reproduce,
    run,
    schemes,
    tune,
)
from camu.cli.console import Warnings
from camu.cli.guard import run_guarded

app = typer.Typer(
    name="camu",
    help="Plan, simulate and deploy federated learning over wireless devices.",
    epilog="Start with `camu demo`. Every command explains itself with --help.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # rich markup would swallow text in square brackets
    suggest_commands=False,  # click suggests one already
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    *(
        demo.demo,
        plan.plan,
        answer.answer,
        live.live,
        run.run,
        compare.compare,
        forecast.forecast,
        report.report,
    ),
    *(export.export, schemes.schemes, allocate.allocate, reproduce.reproduce, bench.bench),
    *(measure.measure, tune.tune),
):
    app.command()(command)
for group in (config, data, fleet, board, deploy):
    app.add_typer(group.app)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"camu {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (anywhere on the line).")
    ] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    """Run a command and turn errors into one sentence on stderr and an exit code."""
    arguments = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[Warnings()])
    words = [word for word in arguments if word != "--debug"]
    run_guarded(lambda: app(words), "--debug" in arguments, "--json" in arguments)
