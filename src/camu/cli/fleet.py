"""`camu fleet`: checks of fleet files, files from other tools, and boards."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camu.cli.console import number_table, plain_console, print_table, warn
from camu.cli.guard import print_json
from camu.cli.options import (
    ConfigFile,
    Json,
    Preset,
    Settings,
    check_outputs,
    resolve,
    to_folder,
)
from camu.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from camu.world.fleet_check import FleetCheck
    from camu.world.fleet_clean import Change
    from camu.world.ray_tracers import Traced

app = typer.Typer(
    name="fleet",
    help="Check fleet files, import them from other tools, list boards.",
    no_args_is_help=True,
)


Gains = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="Path gains to base stations: .npz, .npy or .csv (docs/ray-tracer.md)."
    ),
]
ImportOut = Annotated[
    Path,
    to_folder("--out", "Directory of the files that are written; empty, or of an earlier import."),
]


@app.command("import")
def import_(
    source: Gains,
    out: ImportOut,
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", min=1, help="Samples that each device holds.")
    ],
    between: Annotated[
        Path | None,
        typer.Option(
            "--between", metavar="FILE", help="Path gains between the devices, for the SNR file."
        ),
    ] = None,
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
) -> None:
    """Turn path gains of DeepMIMO or Sionna RT into a fleet file, and an SNR file with --between.

    Receivers are devices, transmitters are base stations. The configuration gives the devices'
    power and the noise, from which the SNR between devices follows.
    """
    from camu.files import write_text
    from camu.outputs import claim
    from camu.world import noise_watts
    from camu.world.places import stations_csv
    from camu.world.ray_tracers import fleet_text, read_traced, snr_text

    config = resolve(file, preset, settings)
    traced = read_traced(source)
    links = None if between is None else _checked(read_traced(between), between, traced)
    kept = _kept(traced, links, source)
    for path, one in ((source, traced), (between, links)):
        if one is not None and one.clipped:
            warn(
                f"{path}: {one.clipped} gains above 1 are set to 1; nothing is amplified on its way"
            )
    texts = {"fleet.csv": fleet_text(traced, kept, samples)}
    if traced.transmitters is not None:
        texts["stations.csv"] = stations_csv(traced.transmitters)
    if links is not None:
        power, noise = config.fleet.power_watts, noise_watts(config.radio)
        texts["snr.csv"] = snr_text(links, traced.ids, kept, power, noise)
    check_outputs([out / name for name in texts], config, file, source, between)
    claim(out, "fleet import")
    for name, text in texts.items():
        write_text(out / name, text)
    more = f" --snr {out / 'snr.csv'}" if links is not None else ""
    if traced.transmitters is not None:
        more += f" --set fleet.base_station_file={out / 'stations.csv'}"
    print(f"{len(kept)} devices; plan them with: camu plan --fleet {out / 'fleet.csv'}{more}")


@app.command()
def check(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A fleet as you have it.")],
    names: Annotated[
        str,
        typer.Option(
            "--map",
            metavar="NAME=COLUMN,...",
            help="Which of your columns are which, as Seriennummer=id,Akku=battery_joules.",
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write a repaired copy that camu reads."),
    ] = None,
    as_json: Json = False,
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
) -> None:
    """List every problem of a fleet file at once, and how it is understood.

    Separators, decimal commas, encodings, names of columns in several languages and units in names
    are recognised. In a repaired copy, cells that devices can do without are emptied, and rows
    that cannot be read are left out; the table says what became of each problem. Exit code 1: there
    are problems left.
    """
    from camu.files import write_text
    from camu.world.fleet_check import checked, repair
    from camu.world.fleet_clean import read_fleet
    from camu.world.fleet_columns import parse_names

    config = resolve(file, preset, settings)
    cleaned = read_fleet(source, parse_names(names))
    try:
        found, repairs = checked(cleaned, config), None
    except InputError:  # columns are missing: it helps to know how the others are understood
        for note in cleaned.notes:
            warn(note)
        raise
    left = found
    if out is not None:
        check_outputs([out], config, file, source)
        left, repairs = repair(found, config)
        write_text(out, left.cleaned.to_csv())
    if as_json:
        rows = [one._asdict() for one in repairs or ()]
        print_json({**found.to_dict(), **({} if repairs is None else {"repairs": rows})})
    else:
        _show_check(found, left, repairs, out, names)
    if left.problems:
        raise typer.Exit(1)


def _show_check(
    found: FleetCheck,
    left: FleetCheck,
    repairs: tuple[Change, ...] | None,
    out: Path | None,
    names: str,
) -> None:
    """What was understood in another way, and what is wrong, row by row."""
    from camu.world.fleet_check import assumed, problem_rows

    console = plain_console()
    for note in assumed(found, left, repairs or ()):
        warn(note)
    rows = problem_rows(found, repairs)
    if rows:
        columns = ("line", "column", "value", "problem", "in the copy")
        shown = 4 if repairs is None else 5
        table = number_table(columns[:shown], text=columns, title=f"{len(found.problems)} problems")
        for row in rows:
            table.add_row(*row[:shown])
        print_table(table, console)
    count = len(left.cleaned.table.rows)
    source = found.cleaned.table.path
    again = f"camu fleet check {source}{f' --map {names!r}' if names else ''} --out clean.csv"
    if out is None and (found.problems or names):
        some = (
            f"{len(found.problems)} problems; mend them, or" if found.problems else "no problems;"
        )
        console.print(f"{count} devices, {some} write a copy that camu reads: {again}")
        return
    where = f"{out} is written with" if out is not None else "no problems;"
    console.print(f"{where} {count} devices; plan them with: camu plan --fleet {out or source}")


@app.command()
def boards(as_json: Json = False) -> None:
    """List the boards that devices may have, with where each number is from.

    A name goes into fleet.board, or into the column board of a fleet file.
    """
    from camu.world.boards import built_in

    if as_json:
        print_json({name: asdict(board) for name, board in built_in().items()})
        return
    names = ("name", "GHz", "GFLOP/s", "idle W", "busy W", "sleep W", "board")
    table = number_table(names, text=("name", "board"))
    for name, board in built_in().items():
        watts = (board.idle_watts, board.busy_watts, board.sleep_watts)
        speeds = (board.cpu_hz / 1e9, board.flops_per_second / 1e9)
        table.add_row(name, *(f"{value:g}" for value in (*speeds, *watts)), board.title)
    print_table(table, plain_console())
    for name, board in built_in().items():
        print(f"\n{name}")
        for key, source in (board.source or {}).items():
            print(f"  {key}: {source}")


def _checked(links: Traced, path: Path, traced: Traced) -> Traced:
    """The gains between devices; refused unless they are as many as the devices."""
    count = len(traced.gains)
    if links.gains.shape != (count, count):
        rows, columns = links.gains.shape
        raise InputError(
            f"--between {path}: gains from {columns} to {rows} ends; give {count} by {count}, with "
            "every device as transmitter and as receiver"
        )
    return links


def _kept(traced: Traced, links: Traced | None, source: Path) -> npt.NDArray[np.int64]:
    """The devices with a path to a base station or to a device; the others are named."""
    import numpy as np

    from camu.world.ray_tracers import with_a_path

    some = with_a_path(traced, links)
    lost = [traced.ids[k] for k in np.flatnonzero(~some)]
    if len(lost) == len(some):
        raise InputError(f"{source}: no device has a path to a base station")
    if lost:
        named = f"{', '.join(lost[:5])}{' ...' if len(lost) > 5 else ''}"
        warn(f"{source}: {len(lost)} of {len(some)} devices have no path and are left out: {named}")
    return np.flatnonzero(some)
