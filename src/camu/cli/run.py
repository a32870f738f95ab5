"""`camu run`: train with one scheme, and keep everything in a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from camu.cli.options import ConfigFile, Json, Preset, Scheme, Seed, Settings, resolve
from camu.config import Config

if TYPE_CHECKING:
    from camu.simulation.directory import RunDirectory


def run(
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Run directory [default: below runs/]."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint in the run directory.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train with one scheme and keep its configuration, plan, rounds, summary and a report.

    Ctrl-C stops after the round; --resume goes on from there, and also after a crash, with the same
    result as an undisturbed run. Without other options --resume takes the configuration that is in
    the directory.
    """
    from camu.cli.progress_bar import ProgressBar
    from camu.simulation.directory import RunDirectory, run_in_directory

    config = run_config(out, resume, file, preset, settings, seed, scheme)
    directory = RunDirectory(out or default_directory(config, resume))
    bar = ProgressBar(config.scheme.name)
    history = run_in_directory(config, directory, resume, [bar])
    if history.stopped == "interrupted":
        Console(stderr=True).print(
            f"stopped after round {history.final.round}; go on with: "
            f"camu run --resume --out {directory.path}",
            soft_wrap=True,
        )
        raise typer.Exit(130)
    show_summary(directory, as_json)


def run_config(
    out: Path | None,
    resume: bool,
    file: Path | None,
    preset: str | None,
    settings: list[str] | None,
    seed: int | None,
    scheme: str | None,
) -> Config:
    """The configured run; a resumed run without options takes its own configuration."""
    from camu.simulation.directory import RunDirectory

    given = (file, preset, settings, seed, scheme) != (None, None, None, None, None)
    if resume and out is not None and not given and RunDirectory(out).exists():
        return RunDirectory(out).read_config()
    return resolve(file, preset, settings, seed, scheme)


def show_summary(directory: RunDirectory, as_json: bool) -> None:
    """How a run ended, in words or as JSON, with the page written beside it."""
    from camu.report.writing import write_report

    summary = directory.read_summary()
    page = write_report([directory.path])
    if as_json:
        print(json.dumps({**summary, "directory": str(directory.path)}))
        return
    print(
        f"{summary['scheme']} on {summary['dataset']}, seed {summary['seed']}: accuracy "
        f"{summary['final_accuracy']:.2%} (best {summary['best_accuracy']:.2%}) after "
        f"{summary['rounds']} rounds, {summary['virtual_seconds']:.4g} virtual seconds and "
        f"{summary['joules']:.4g} J; stopped by: {summary['stopped']}"
    )
    print(f"everything is in {directory.path}; look at {page}")


def default_directory(config: Config, resume: bool) -> Path:
    """A name that tells what was run; a number more where it is taken."""
    from camu.simulation.directory import RunDirectory

    stem = f"{config.scheme.name.replace(':', '.')}-{config.data.dataset}-seed{config.run.seed}"
    path, number = Path("runs") / stem, 1
    while RunDirectory(path).exists() and not resume:
        number += 1
        path = Path("runs") / f"{stem}-{number}"
    return path
