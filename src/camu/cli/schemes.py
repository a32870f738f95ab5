"""`camu schemes`: list the schemes with descriptions and parameters."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from camu.cli.options import Json


def schemes(as_json: Json = False) -> None:
    """List the schemes: name, one sentence, citation, parameters.

    Parameters are keys of [scheme], for example --set scheme.threshold=10000. A scheme of your own
    runs by import path: --scheme mymodule:MyScheme.
    """
    from camu.schemes import SCHEMES, describe

    rows = [describe(name, kind) for name, kind in SCHEMES.items()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 1, 0))
    for title in ("scheme", "what it is", "from", "parameters"):
        table.add_column(title, overflow="fold")
    for row in rows:
        parameters = "\n".join(
            f"{key} = {'unset' if value is None else value}"
            for key, value in row["parameters"].items()
        )
        table.add_row(row["name"], row["sentence"], row["citation"], parameters or "-")
    Console(emoji=False).print(table)
    print("Your own: --scheme module:Class (docs/own-scheme.md).")
