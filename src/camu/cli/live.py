"""`camu live`: a page on which devices are moved and settings changed, and the plan answers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from camu.cli.options import ConfigFile, Fleet, Preset, Scheme, Seed, Settings, resolve
from camu.errors import InputError


def live(
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    fleet: Fleet = None,
    follow: Annotated[
        Path | None,
        typer.Option(
            "--follow", metavar="DIR", help="Watch runs that go on elsewhere; nothing is changed."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0: any free one.")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
) -> None:
    """Open a page on which devices and settings can be changed, and watch plan and training follow.

    The page is served on this machine only, at an address with a random token. Trainings are kept
    in runs/live. Ctrl-C ends the server and everything that it started; a training goes on when
    the server is started again in the same directory.
    """
    for module in ("starlette", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            raise InputError("camu live: install the extra with pip install 'camu-fl[live]'")
    if follow is not None and any((file, preset, settings, seed, scheme, fleet)):
        raise InputError("--follow: it shows runs as they are; leave the other options out")
    config = resolve(file, preset, settings, seed, scheme, {"fleet.file": fleet})
    if config.fleet.file is not None and follow is None:
        from camu.world.fleet_file import parse_fleet

        parse_fleet(config.fleet.file, config.fleet.snr_file, config)  # what is wrong is said here
    from camu.live.serving import serve

    def announce(address: str, folder: Path) -> None:
        print(f"camu live: {address}", flush=True)
        kept = f"trainings are kept in {folder}" if follow is None else f"{follow} is only read"
        print(f"{kept}; Ctrl-C ends the server", flush=True)

    serve(config, port, follow, not no_browser, announce)
