"""`camu schemes`: list the schemes with descriptions and parameters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from camu.cli.console import plain_console, warn
from camu.cli.guard import print_json
from camu.cli.options import Json
from camu.errors import InputError


def schemes(
    as_json: Json = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the list of docs/schemes.md.")
    ] = False,
) -> None:
    """List the schemes by family: name, one sentence, citation, what differs, parameters.

    Parameters are set by name: --set scheme.parameters.threshold=10000. A scheme of your own runs
    by import path: --scheme mymodule:MyScheme.
    """
    from camu.schemes import FAMILIES, SCHEMES, describe

    rows = [describe(name, kind) for name, kind in SCHEMES.items()]
    rows.sort(key=lambda row: list(FAMILIES).index(row["family"]))
    brought = [] if markdown else list(_brought())
    if as_json:
        print_json(rows + brought, indent=2)
        return
    families = {
        title: [row for row in rows if row["family"] == family]
        for family, title in FAMILIES.items()
    }
    if markdown:
        print("\n".join(_markdown(families)))
        return
    if brought:
        families["Schemes of installed packages."] = brought
    console = plain_console()
    for title, own in families.items():
        table = Table(box=None, header_style="bold", padding=(0, 2, 1, 0), title_justify="left")
        for column in ("scheme", "what it is", "parameters"):
            table.add_column(column, overflow="fold")
        for row in own:
            names = "\n".join([row["name"], *(f"({old})" for old in row["aliases"])])
            table.add_row(names, "\n".join(_facts(row)), "\n".join(_parameters(row)) or "-")
        console.print(title, style="bold")
        console.print(table)
    print("Your own: --scheme module:Class (docs/own-scheme.md). Packages: docs/plug-ins.md.")


def _brought() -> Iterator[dict[str, Any]]:
    """The schemes of installed packages; one that cannot be loaded is said."""
    from camu.installed import installed
    from camu.schemes import describe, find_scheme

    for name in installed("schemes"):
        try:
            yield describe(name, find_scheme(name))
        except InputError as error:
            warn(f"{name} cannot be used: {error}")


def _facts(row: dict[str, Any]) -> list[str]:
    """Everything about a scheme but its name and parameters, a line each."""
    return [
        row["sentence"],
        *([f"From: {row['citation']}."] if row["citation"] else []),
        *(f"Simplified: {text}." for text in row["simplified"]),
        *(f"Our choice: {text}." for text in row["choices"]),
    ]


def _parameters(row: dict[str, Any]) -> list[str]:
    return [
        f"{key} = {'unset' if value is None else value}" for key, value in row["parameters"].items()
    ]


def _markdown(families: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A section per family with a paragraph and a list for each of its schemes."""
    lines: list[str] = []
    for title, own in families.items():
        lines += [f"### {title.rstrip('.')}", ""]
        for row in own:
            names = ", ".join(f"`{name}`" for name in (row["name"], *row["aliases"]))
            sentence, *facts = _facts(row)
            lines += [*textwrap.wrap(f"**{names}**: {sentence}", 118), ""]
            if parameters := ", ".join(f"`{text}`" for text in _parameters(row)):
                facts.append(f"Parameters: {parameters}.")
            for fact in facts:
                lines += textwrap.wrap(f"- {fact}", 118, subsequent_indent="  ")
            lines.append("")
    return lines[:-1]
