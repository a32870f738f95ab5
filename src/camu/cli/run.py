"""`camu run`: train with one scheme, and keep everything in a directory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camu.cli.console import counted, plain_console
from camu.cli.guard import explain, print_json
from camu.cli.options import (
    Address,
    ConfigFile,
    Fleet,
    Json,
    Preset,
    Scheme,
    Seed,
    Settings,
    Snr,
    StartModel,
    fleet_files,
    input_files,
    resolve,
    to_folder,
)
from camu.errors import CamuError, InputError

if TYPE_CHECKING:
    from camu.config import Config
    from camu.report.runs import KeptRun, SavedRun
    from camu.simulation.directory import RunDirectory
    from camu.simulation.history import History


RunFolder = Annotated[
    Path | None,
    to_folder("--out", "Run directory [default: below runs/]."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from the checkpoint in the run directory.")
]


def run(
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    fleet: Fleet = None,
    snr: Snr = None,
    out: RunFolder = None,
    resume: Resume = False,
    start: StartModel = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Train with one scheme and keep its configuration, plan, rounds, summary and a report.

    Ctrl-C stops after the round; --resume goes on from there, and also after a crash, with the same
    result as an undisturbed run. With --out, --resume takes the configuration that is in the
    directory, and --set goes over it; without --out, it goes on in the last default directory of
    the configuration.

    With --fleet the devices come from your file, and the rest from the preset `demo` unless you
    name another. They get samples of the configured data set, as many as the file says.

    With --start the run begins with the model of an earlier run, not with random weights.

    With --set machine.engine=ray the units are trained on a Ray cluster, with the same
    result.
    """
    from camu.outputs import RUN_FILES, refuse_inputs
    from camu.report.runs import KeptRun
    from camu.simulation.directory import RunDirectory

    files = fleet_files(fleet, snr)
    config = run_config(out, resume, file, preset, settings, seed, scheme, files)
    directory = RunDirectory(out or default_directory(config, resume))
    if resume and not directory.exists():
        raise InputError(
            f"{directory.path}: there is no run to resume; check --out, or leave --resume out"
        )
    if resume:  # a new run has an empty directory
        own = [directory.path / name for name in RUN_FILES if name != "config.toml"]
        refuse_inputs(own, input_files(config, start))
    kept = KeptRun(directory.path)
    history = _train(config, directory, resume, start, address, kept)
    if history.stopped == "interrupted":
        plain_console(stderr=True).print(
            f"stopped after round {history.final.round}; continue with: "
            f"camu run --resume --out {directory.path}",
            soft_wrap=True,
        )
        raise typer.Exit(130)
    show_summary(directory, as_json, None if resume else kept.ended(history))


def _train(
    config: Config,
    directory: RunDirectory,
    resume: bool,
    start: Path | None,
    address: str | None,
    kept: KeptRun,
) -> History:
    """Run, or go on; an error that a checkpoint survives says how to go on."""
    from camu.cli.progress_bar import Notes, ProgressBar
    from camu.sealed import DamagedError
    from camu.simulation.directory import run_in_directory
    from camu.simulation.ray_session import engine_session
    from camu.simulation.result import read_start

    try:
        with engine_session(config, address):
            watchers = [Notes(), ProgressBar(config.scheme.name), kept]
            first = None if start is None else read_start(start, config)
            return run_in_directory(config, directory, resume, watchers, start=first)
    except InputError:
        raise
    except (CamuError, OSError, MemoryError) as error:
        # A full disk, no memory: what the last checkpoint holds is not lost.
        if isinstance(error, DamagedError) or not directory.checkpoints():
            raise
        hint = f"continue with: camu run --resume --out {directory.path}"
        raise CamuError(f"{explain(error)}; {hint}") from error


def run_config(
    out: Path | None,
    resume: bool,
    file: Path | None,
    preset: str | None,
    settings: list[str] | None,
    seed: int | None,
    scheme: str | None,
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> Config:
    """The configured run; a resumed run starts from its own configuration.

    A file or a preset replaces it; single settings go over it.
    """
    from camu.simulation.directory import RunDirectory

    own = None if file or preset or out is None or not resume else RunDirectory(out)
    if own is not None and own.exists():
        config = resolve(own.config, preset, settings, seed, scheme, overrides)
        _check_place(config)
        return config
    return resolve(file, preset, settings, seed, scheme, overrides)


def _check_place(config: Config) -> None:
    """Refuse to resume from a directory in which the files that the run names are not."""
    from camu.plugins import is_path, is_plugin
    from camu.simulation.manifest import INPUT_FILES

    for key, value in config.flat().items():
        if not isinstance(value, str):
            continue
        path = value.rpartition(":")[0] if is_plugin(value) else value
        named = path.endswith(".py") or key in (*INPUT_FILES, "data.directory")
        if not named and not (key == "data.dataset" and is_path(value)):
            continue
        if not os.path.isabs(os.path.expanduser(path)) and not os.path.exists(path):
            raise InputError(
                f"{key} = {value}: it is not in the current directory; resume the run from the "
                "directory in which it was started"
            )


def show_summary(directory: RunDirectory, as_json: bool, run: SavedRun | None = None) -> None:
    """Print how a run ended, in words or as JSON, and write the report next to it."""
    from camu.learning.metrics import find_metric
    from camu.report.writing import write_report

    summary = directory.read_summary(check=False)  # it was written a moment ago
    page = write_report([directory.path if run is None else run])
    if as_json:
        print_json({**summary, "directory": str(directory.path)})
        return
    bits = summary.get("bits")  # earlier versions did not count them
    sent = f"{sum(bits.values()) / 8e6:.4g} MB sent" if bits else "an uncounted number of bits"
    metric = find_metric(summary["metric"])
    scores = [summary[f"{name}_score"] for name in ("final", "best")]
    final, best = (metric.show(metric.worst if one is None else one) for one in scores)
    balanced = _balanced(summary)
    carbon = f" ({summary['co2_grams']:.3g} g of CO2)" if "co2_grams" in summary else ""
    private = f"epsilon {summary['epsilon']:.3g}; " if "epsilon" in summary else ""
    print(
        f"{summary['scheme']} on {summary['dataset']}, seed {summary['seed']}: {metric.title} "
        f"{final} (best {best}{balanced}) after "
        f"{counted(summary['rounds'], 'round')}, {summary['virtual_seconds']:.4g} virtual seconds, "
        f"{summary['joules']:.4g} J{carbon} and {sent}; {private}stopped by: {summary['stopped']}; "
        f"kernel: {summary['kernel']}"
    )
    if "chance" in summary:
        print(summary["chance"])
    print(f"everything is in {directory.path}; look at {page}")


def _balanced(summary: dict[str, Any]) -> str:
    """The balanced accuracy beside an accuracy, where some classes have far more samples."""
    from camu.learning.chance import is_lopsided

    score, balanced = summary["final_score"], summary.get("balanced_accuracy")
    if summary["metric"] != "accuracy" or score is None or balanced is None:
        return ""
    return f"; balanced {balanced:.2%}" if is_lopsided(score, balanced) else ""


def default_directory(config: Config, resume: bool) -> Path:
    """The first free directory of a configuration; to resume, the last one that holds a run.

    Its name says what was run; a number is added where the name is taken.
    """
    from camu.simulation.directory import RunDirectory

    what = f"{config.scheme.name}-{config.data.dataset}-seed{config.run.seed}"
    stem = re.sub(r"[^\w.-]+", ".", what).strip(".")
    last, path, number = Path("runs") / stem, Path("runs") / stem, 1
    while path.exists():
        number += 1
        last = path if RunDirectory(path).exists() else last
        path = Path("runs") / f"{stem}-{number}"
    return last if resume else path
