"""`camu deploy`: the same plan on Flower nodes, on this machine or on many."""

from __future__ import annotations

import importlib.util
import os

import typer

from camu.cli.deploy import emulate, monitoring, run, services
from camu.errors import InputError

app = typer.Typer(
    name="deploy",
    help="Run a plan on Flower nodes, with TLS and node authentication (extra `flower`).",
    no_args_is_help=True,
)
app.command()(run.local)
app.command()(services.keys)
app.command()(services.superlink)
app.command()(services.register)
app.command()(services.revoke)
app.command()(services.node)
app.command()(run.run)
app.command("app")(run.write_flower_app)
app.command()(emulate.emulate)
app.command()(monitoring.status)
app.command("list")(monitoring.list_all)
app.command()(monitoring.stop)
app.command()(monitoring.watch)
app.command()(monitoring.renew)


@app.callback()
def _prepare(context: typer.Context) -> None:
    """Say what to install before an import fails; what a run writes is for its owner alone."""
    if importlib.util.find_spec("flwr") is None:
        raise InputError("camu deploy: install the extra with pip install 'camu-fl[flower]'")
    from camu.deploy.host.processes import QUIET, private_files

    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    if context.invoked_subcommand in ("local", "run"):
        context.with_resource(private_files())
