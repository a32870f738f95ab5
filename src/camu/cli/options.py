"""The options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camu.config.presets import DEFAULT_PRESET, PRESETS
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.config import Config


def output_path(path: str | Path) -> Path:
    """The path of an option that is written to, refused where no file can have it."""
    from camu.files import shown

    text = str(path)
    try:
        text.encode()  # JSON and HTML files name it
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # it is made later, or refused with the part that is no directory
    except OSError as error:
        raise InputError(f"{shown(text)}: cannot be written ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{shown(text)}: the name is not valid UTF-8 text") from None
    return Path(text)


def output_folder(path: str | Path) -> Path:
    """The directory of an option that is written to; a file of that name is refused at once."""
    folder = output_path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; give a directory")
    return folder


def to_file(name: str, text: str) -> Any:
    """An option that names a file to write."""
    return typer.Option(name, parser=output_path, metavar="FILE", help=text)


def to_folder(name: str, text: str) -> Any:
    """An option that names a directory to write into."""
    return typer.Option(name, parser=output_folder, metavar="DIR", help=text)


FigureWidth = Annotated[
    float | None,
    typer.Option(
        "--figure-width",
        metavar="MM",
        min=20,
        max=1000,
        help="Width of figures in millimetres, axes included: 88.9 for a column of IEEE.",
    ),
]
FigureFont = Annotated[
    str | None, typer.Option("--figure-font", metavar="NAME", help="Font of figures, as 'Times'.")
]
FigureTitle = Annotated[
    bool, typer.Option("--figure-title/--no-figure-title", help="Whether figures have a title.")
]


def check_outputs(
    outputs: Iterable[Path | None],
    config: Config | None = None,
    *inputs: Path | None,
    code: Iterable[str] = (),
) -> None:
    """Refuse to write to a file that the command reads, or that belongs to a run.

    The inputs are these files, those that the configuration names, and the user's own code that it
    or `code` names.
    """
    from camu.outputs import check_output

    read = [*input_files(config, *inputs), *_code_files(code)]
    for path in outputs:
        if path is not None:
            check_output(path, read)


def input_files(config: Config | None, *given: Path | None) -> list[Path]:
    """The files that a command reads: these, and data and code that its configuration names."""
    values = () if config is None else config.flat().values()
    named = [value for value in values if isinstance(value, str)]
    data = [Path(os.path.expanduser(value)) for value in named]
    return [*(path for path in given if path is not None), *data, *_code_files(named)]


def _code_files(names: Iterable[str]) -> list[Path]:
    from camu.plugins import is_plugin, own_files

    return [file for name in names if is_plugin(name) for file in own_files(name)]


ConfigFile = Annotated[
    Path | None, typer.Option("-c", "--config", metavar="FILE", help="TOML file, over the preset.")
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help=f"Preset below the file: {', '.join(PRESETS)} "
        f"[default: the one that the file extends; without a file, {DEFAULT_PRESET}].",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Set one key, over preset and file; repeatable. VALUE is TOML; `none` unsets.",
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", min=0, help="Seed; same as run.seed.")
]
Scheme = Annotated[
    str | None,
    typer.Option(
        "--scheme",
        metavar="NAME",
        help="Scheme, or your own as module:Class; NAME@PARAMETER=VALUE sets a parameter.",
    ),
]
Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="FILE",
        help="Your fleet as CSV or JSON (docs/fleet.md); the rest from the preset [default: demo].",
    ),
]
Snr = Annotated[
    str | None,
    typer.Option("--snr", metavar="FILE", help="Measured device-to-device SNR in dB, for --fleet."),
]
StartModel = Annotated[
    Path | None,
    typer.Option(
        "--start",
        metavar="FILE",
        help="model.safetensors of an earlier run, to begin with [default: random weights].",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Running Ray cluster, for machine.engine=ray [default: start Ray here].",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def fleet_files(fleet: str | None, snr: str | None) -> dict[str, str | None]:
    """The keys that --fleet and --snr set."""
    return {"fleet.file": fleet, "fleet.snr_file": snr}


def _check_names(given: Mapping[str, Any]) -> None:
    """Refuse file names that are no text: the configuration, which names them, is a text file."""
    from camu.files import shown

    for key, value in given.items():
        try:
            str(value).encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{key} = {shown(value)}: the name is not valid UTF-8 text; rename the file"
            ) from None


def target(text: str) -> float:
    """A score to reach; `check_target` says whether the configured task can have it."""
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--target {text}: give a number, for example 0.9 for 90 % accuracy"
        ) from None


def check_target(config: Config, value: float | None) -> None:
    """Refuse a target that the score of the configured task cannot have."""
    if value is not None:
        from camu.learning.task import task_of

        task_of(config).score.check_target(value, "--target")


def resolve(
    file: Path | None,
    preset: str | None,
    settings: list[str] | None,
    seed: int | None = None,
    scheme: str | None = None,
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> Config:
    """The configuration that a command line asks for."""
    from camu.config import load_config

    variant = scheme is not None and "@" in scheme
    options = {"run.seed": seed, "scheme.name": None if variant else scheme, **overrides}
    given = {key: value for key, value in options.items() if value is not None}
    _check_names(given)
    config = load_config(file, preset, settings or [], given)
    if variant:
        from camu.schemes.variants import with_parameters

        config = with_parameters(config, str(scheme))
    if config.fleet.snr_file is not None and config.fleet.file is None:
        raise InputError("--snr: it belongs to a fleet; give --fleet FILE too")
    return config
