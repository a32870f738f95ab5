"""`camu config`: show the resolved configuration, or every key with its meaning."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from camu.cli.console import plain_console, print_table
from camu.cli.guard import print_json
from camu.cli.options import ConfigFile, Json, Preset, Settings, resolve
from camu.errors import InputError

app = typer.Typer(name="config", help="Show the configuration and its keys.", no_args_is_help=True)


@app.command()
def show(
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Print the resolved configuration as TOML; loading it again gives the same configuration.

    With --json unset keys are null, and infinity is the text inf.
    """
    from camu.plugins import is_plugin
    from camu.schemes import find_scheme

    config = resolve(file, preset, settings)
    if not is_plugin(config.scheme.name):  # your own code need not be here
        find_scheme(config.scheme.name)
    if as_json:
        sections = config.model_dump(mode="json").items()
        print_json({s: {k: _finite(v) for k, v in values.items()} for s, values in sections})
        return
    print(config.to_toml(), end="")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return "inf" if value == math.inf else value


@app.command()
def keys(
    section: Annotated[str | None, typer.Argument(help="Only this section.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print as a Markdown page.")] = False,
    as_json: Json = False,
) -> None:
    """List every key with its default, what it accepts, and what it means."""
    from camu.config import Config
    from camu.config.words import as_markdown, describe_keys

    if section is not None and section not in Config.model_fields:
        raise InputError(f"{section}: no such section; there are {', '.join(Config.model_fields)}")
    rows = [key for key in describe_keys(Config) if section in (None, key.section)]
    if as_json:
        print_json([asdict(key) for key in rows])
        return
    if markdown:
        print(as_markdown(Config, rows))
        return
    table = Table(box=None, header_style="bold")
    table.add_column("key", no_wrap=True)
    for title in ("default", "accepts", "meaning"):
        table.add_column(title, overflow="fold")
    for key in rows:
        table.add_row(f"{key.section}.{key.name}", key.default, key.accepts, key.meaning)
    print_table(table, plain_console())
