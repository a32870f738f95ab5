"""`camu data`: which data sets there are, where they come from, and fetching them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from camu.cli.console import number_table, plain_console
from camu.cli.guard import print_json
from camu.cli.options import Json
from camu.work import Progress

if TYPE_CHECKING:
    from camu.data.catalog import DatasetSpec

app = typer.Typer(name="data", help="List and fetch data sets.", no_args_is_help=True)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the data sets: what they hold, licence, where each would come from, cached or not."""
    from camu.data import CATALOG
    from camu.data.store import cache_root
    from camu.installed import installed

    if as_json:
        facts = ("name", "title", "shape", "inputs", "target", "train_samples", "test_samples")
        more = ("classes", "outputs", "licence", "sha256", "download_bytes")
        rows = [
            {name: getattr(spec, name) for name in (*facts, *more)} | {"state": _state(spec)}
            for spec in CATALOG.values()
        ]
        print_json(rows)
        return
    names = ("name", "sample", "train", "test", "licence", "size", "state")
    table = number_table(names, text=names)
    for spec in CATALOG.values():
        table.add_row(
            spec.name,
            "x".join(map(str, spec.shape)),
            f"{spec.train_samples:,}",
            f"{spec.test_samples:,}",
            spec.licence,
            f"{max(1, round(spec.download_bytes / 1e6))} MB" if spec.files else "-",
            _state(spec),
        )
    plain_console().print(table)
    print()
    for spec in CATALOG.values():
        ways = [
            source.describe() + (f" ({lack})" if (lack := source.missing()) else "")
            for source in spec.sources
        ]
        origin = ", then ".join(["data.directory", "cache", *ways]) if ways else "scikit-learn"
        says = f"{spec.classes} classes" if spec.target == "classes" else spec.target
        print(
            f"{spec.name}: {spec.title} ({spec.inputs}, {says}); from {origin}; "
            f"SHA-256 {spec.sha256[:12]}"
        )
    for name, path in installed("datasets").items():
        print(f"{name}: from an installed package ({path})")
    print(f"cache: {cache_root()} (CAMU_DATA overrides it)")


def _state(spec: DatasetSpec) -> str:
    from camu.data import is_cached

    return "embedded" if not spec.files else "cached" if is_cached(spec) else "not cached"


@app.command()
def fetch(names: Annotated[list[str], typer.Argument(help="Data sets to fetch.")]) -> None:
    """Fetch data sets into the cache and verify every byte."""
    from camu.data import load
    from camu.data.store import fetch as fetch_files
    from camu.data.store import find_spec

    for spec in [find_spec(name) for name in names]:
        did = "embedded"
        if spec.files:
            with _download_bar() as progress:
                did = fetch_files(spec, progress)
        data = load(spec.name)
        print(
            f"{spec.name}: {did}; {len(data.train_inputs):,} + {len(data.test_inputs):,} samples, "
            "SHA-256 verified"
        )


@contextmanager
def _download_bar() -> Iterator[Progress]:
    """A bar on stderr, and the function that moves it."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    console = plain_console(stderr=True)
    with Bar(*columns, TransferSpeedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield show
