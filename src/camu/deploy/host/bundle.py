"""The Flower app of a deployment: a bundle that names camu's two apps and carries the settings."""

from __future__ import annotations

from pathlib import Path

import tomli_w

from camu import __version__
from camu.deploy.deployment import Settings
from camu.files import write_text

SERVER_APP = "camu.deploy.server.app:app"
CLIENT_APP = "camu.deploy.node.app:app"


def project_file(settings: Settings, client_app: str = CLIENT_APP) -> str:
    """The bundle's pyproject.toml; camu itself is installed on every machine beforehand."""
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
                        "components": {"serverapp": SERVER_APP, "clientapp": client_app},
                        "config": settings.to_run_config(),
                    }
                }
            },
        }
    )


def write_app(folder: Path, settings: Settings) -> None:
    """Write the app as a directory that `flwr run` takes."""
    write_text(folder / "pyproject.toml", project_file(settings))


def build_bundle(settings: Settings, client_app: str = CLIENT_APP) -> bytes:
    """The app as the bundle that a SuperLink takes."""
    from flwr.cli.build import build_fab_from_files  # deferred: it is slow to import

    content, _ = build_fab_from_files(
        {"pyproject.toml": project_file(settings, client_app).encode()}
    )
    return content
