"""A Flower app of somebody else, which leaves a mark wherever its code is run."""

from __future__ import annotations

from pathlib import Path

from camu.deploy.deployment import NODE_APP, SERVER_APP

# At import, so that loading it is enough to be seen.
CODE = """
from pathlib import Path
Path({marker!r}).write_text("the code of a bundle was run")
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
app = ClientApp()
server = ServerApp()
@server.main()
def main(grid, context):
    pass
"""
PROJECT = """
[project]
name = "foreign"
version = "1.0.0"
description = "not camu"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "somebody"
[tool.flwr.app.components]
serverapp = "{server}"
clientapp = "{client}"
[tool.flwr.app.config]
config = ""
"""


def foreign_bundle(
    marker: Path, server: str = "foreign:server", client: str = "foreign:app"
) -> bytes:
    """A bundle whose code writes the marker; its apps may have the names of camu's own."""
    from flwr.cli.build import build_fab_from_files

    files = {
        "pyproject.toml": PROJECT.format(server=server, client=client).encode(),
        "foreign.py": CODE.format(marker=str(marker)).encode(),
        # The bundle may also bring modules with camu's names.
        "camu/__init__.py": CODE.format(marker=str(marker)).encode(),
    }
    return build_fab_from_files(files)[0]


def disguised_bundle(marker: Path) -> bytes:
    """A foreign bundle that names camu's apps and brings modules with their names."""
    return foreign_bundle(marker, SERVER_APP, NODE_APP)
