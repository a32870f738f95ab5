"""`camu board`: schemes ranked by a protocol that is fixed beforehand, each tuned alike."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from camu.cli.console import WorkBar, plain_console
from camu.cli.options import to_folder
from camu.errors import CamuError, InputError

if TYPE_CHECKING:
    from camu.experiments.scheduler import Runner

app = typer.Typer(
    name="board",
    help="Rank schemes by a registered protocol, each tuned with the same effort.",
    no_args_is_help=True,
)

Protocol = Annotated[
    str, typer.Option("--protocol", metavar="NAME", help="quick, full, or a TOML file of your own.")
]
Worlds = Annotated[
    list[str] | None,
    typer.Option("--world", metavar="W", help="Only this world of the protocol; repeatable."),
]
Out = Annotated[Path | None, to_folder("--out", "Directory of results [default: board].")]
Folders = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[DIR]...", help="Directories of `camu board run` [default: board]."),
]


@app.command()
def run(
    protocol: Protocol = "quick",
    worlds: Worlds = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="S", help="Only this scheme of the protocol; repeatable."),
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option(
            "--scheme",
            metavar="NAME",
            help="A scheme that the protocol does not have, yours as module:Class; repeatable. "
            "Without --only nothing else is run.",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"], typer.Option("--engine", help="Local processes or Ray.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="Address of a running Ray cluster.")
    ] = None,
    out: Out = None,
) -> None:
    """Search and report the parts of a protocol: schemes in worlds, all of them by default.

    Each part is kept as soon as it is done, with how long it took. The same command continues where
    it was cut off. Parts may be run apart, on several machines; `camu board join` joins them. It
    needs the extra `tune`.
    """
    from camu.experiments.board.part import parts_of, run_part
    from camu.experiments.board.protocol import read_protocol
    from camu.outputs import claim

    rules = read_protocol(protocol)
    parts = parts_of(rules, worlds or [], only or [], own or [])
    folder = out or Path("board")
    for part in parts:
        part.check()
    claim(folder, "board")
    bar = WorkBar("part")
    try:
        with _runner(engine, address) as runner, bar:
            for number, part in enumerate(parts):
                name = f"{part.world.name}, {part.variant.label}"
                bar(name, number, len(parts), "")
                found = run_part(part, folder, runner)
                print(f"{name}: {found['wall_seconds']:.0f} s", flush=True)
            bar("done", len(parts), len(parts), "")
    except KeyboardInterrupt:
        plain_console(stderr=True).print("stopped; the same command continues from here")
        raise typer.Exit(130) from None
    print(f"results are in {folder}; join them with: camu board join {folder}")


@contextlib.contextmanager
def _runner(engine: str, address: str | None) -> Iterator[Runner]:
    """Processes of this machine, or tasks on Ray; models that blow up are part of a search."""
    from camu.experiments.scheduler import on_ray, processes
    from camu.experiments.tuning.tune import few_warnings

    with few_warnings():
        if engine == "ray":
            yield on_ray(address)
            return
        with processes(logging.ERROR) as runner:
            yield runner


@app.command()
def join(
    folders: Folders = None,
    protocol: Protocol = "quick",
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the page here.")
    ] = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write every reported run here.")
    ] = None,
    parquet_file: Annotated[
        Path | None,
        typer.Option("--parquet", metavar="FILE", help="The same as Parquet (pyarrow)."),
    ] = None,
) -> None:
    """Join parts to a board: tables of schemes as published and tuned, with ranks, and what lacks.

    Parts of another protocol, and parts that were changed, are refused.
    """
    from camu.experiments.board.joined import joined, read_parts
    from camu.experiments.board.page import board_page
    from camu.experiments.board.protocol import read_protocol
    from camu.experiments.parquet import check_parquet, write_parquet
    from camu.files import write_text

    check_parquet(parquet_file)
    rules = read_protocol(protocol)
    board = joined(rules, read_parts(rules, folders or [Path("board")]))
    page = board_page(board)
    for path, text in ((markdown, page), (csv_file, board.to_csv())):
        if path is not None:
            write_text(path, text)
            print(f"written: {path}")
    if parquet_file is not None:
        write_parquet(parquet_file, "board", board.run_rows())
        print(f"written: {parquet_file}")
    if markdown is None:
        print(page)


@app.command()
def verify(
    scheme: Annotated[str, typer.Argument(metavar="SCHEME", help="A row of the board.")],
    world: Annotated[str, typer.Option("--world", metavar="W", help="In this world.")],
    table: Annotated[
        Literal["published", "tuned"], typer.Option("--table", help="Of this table.")
    ] = "tuned",
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="The run of this seed [default: the first]."),
    ] = None,
    folders: Annotated[
        list[Path] | None,
        typer.Option("--in", metavar="DIR", help="Directory of results [default: board]."),
    ] = None,
    protocol: Protocol = "quick",
) -> None:
    """Run one seed of a row again and compare all bits of the model and all figures."""
    from camu.experiments.board.joined import read_parts
    from camu.experiments.board.part import Part
    from camu.experiments.board.protocol import read_protocol
    from camu.experiments.board.verify import verify as check

    rules = read_protocol(protocol)
    parts = read_parts(rules, folders or [Path("board")])
    known = [one for one in parts if scheme in (one["scheme"], one["word"])]
    found = [one for one in known if one["world"] == world]
    if not found:
        there = sorted({f"{one['scheme']} in {one['world']}" for one in known or parts})
        raise InputError(f"{scheme} in {world}: no such part; there are {', '.join(there[:8])}")
    part = Part(rules, rules.worlds[world], found[0]["word"])
    wrong = []
    first = rules.rules.reporting_seeds[0]
    for one in check(part, found[0], table, first if seed is None else seed):
        entry = one.entry
        where = f"{entry['budget']} budget of {entry['axis']}, seed {one.seed}"
        digest = one.now["weights_sha256"][:16]
        if one.same:
            print(f"{where}: the same bits (weights {digest}, accuracy {_score(one.now)})")
        else:
            wrong.append(where)
            print(f"{where}: differs in {', '.join(one.differs)}")
    if wrong:
        raise CamuError(
            f"{scheme} in {world}: {len(wrong)} of its runs differ; the results are of camu "
            f"{found[0]['version']}, and other kernels or processors round differently"
        )


def _score(run: Mapping[str, Any]) -> str:
    score = run.get("score")
    return "none" if score is None else f"{score:.2f} %"
