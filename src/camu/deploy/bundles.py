"""The bundle of a run: a configuration for camu's own apps, and nothing that could be run.

Flower installs the code of a bundle and runs it. camu's server and nodes run their own apps, each
from its own installation, and take nothing but a table of plain values from a bundle.
"""

from __future__ import annotations

import io
import tomllib
import zipfile
from typing import Any

import tomli_w

from camu import __version__
from camu.deploy.reports import Refusal

SERVER_APP = "camu.deploy.server.app:app"
NODE_APP = "camu.deploy.node_app:app"
PROJECT = "pyproject.toml"
FILES = frozenset({PROJECT, ".info/CONTENT"})  # Flower adds a list of the files
LARGEST_BYTES = 10_000_000  # Flower takes no larger bundle

Table = dict[str, str | int | float | bool]


def project_file(table: Table) -> str:
    """The pyproject.toml of a run; camu itself is installed on every machine before."""
    return tomli_w.dumps(
        {
            "project": {
                "name": "camu-deployment",
                "version": __version__,
                "description": "A plan of camu on Flower nodes.",
                "license": "Apache-2.0",
                "dependencies": [],
            },
            "tool": {
                "flwr": {
                    "app": {
                        "publisher": "camu",
                        "components": {"serverapp": SERVER_APP, "clientapp": NODE_APP},
                        "config": table,
                    }
                }
            },
        }
    )


def read_bundle(content: bytes) -> Table:
    """The table of plain values in a bundle; any other bundle is refused, and never unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if strange := sorted(set(archive.namelist()) - FILES):
                raise Refusal(
                    f"its bundle carries {strange[0][:200]!r}; camu runs its own app only"
                )
            if archive.getinfo(PROJECT).file_size > LARGEST_BYTES:
                raise Refusal(f"the {PROJECT} of its bundle is too large")
            project = tomllib.loads(archive.read(PROJECT).decode())
        app = project["tool"]["flwr"]["app"]
        components = dict(app["components"])
        table = dict(app["config"])
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RecursionError) as error:
        raise Refusal(f"its bundle is not one of camu ({type(error).__name__})") from None
    if components != {"serverapp": SERVER_APP, "clientapp": NODE_APP}:
        raise Refusal(f"its bundle names other apps than camu's own ({_shown(components)})")
    return {key: value for key, value in table.items() if isinstance(value, str | int | float)}


def _shown(components: dict[str, Any]) -> str:
    return ", ".join(f"{value}" for value in components.values())[:200] or "none"
