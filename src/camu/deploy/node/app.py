"""The Flower ClientApp: a node reports on itself, and trains what it is asked to train."""

from __future__ import annotations

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from camu.deploy.deployment import Settings
from camu.deploy.node.site import Site
from camu.deploy.wire.messages import read_task, write_report, write_result
from camu.learning.building import model_layout

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Label histograms and measured compute time of the node's devices."""
    return Message(write_report(_site(context).report().to_dict()), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local updates from the states that came, on the node's own data."""
    return Message(train_content(message.content, context), reply_to=message)


def train_content(content: RecordDict, context: Context) -> RecordDict:
    """The answer to a task."""
    site = _site(context)
    task, states = read_task(content, model_layout(site.config))
    return write_result(task, site.train(task, states))


def _site(context: Context) -> Site:
    settings = Settings.from_run_config(context.run_config)
    return Site.of(settings.config, context.node_config)
