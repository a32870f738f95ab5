"""A node that lies when it serves part 0 in a run with seed 13: `python -m lying_node ARGS`.

It sends nan in round 1, a wrong shape in round 2, and round 2 again in round 3.
"""

from __future__ import annotations

import json

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from camu.deploy import node_app
from camu.deploy.deployment import Deployment
from camu.deploy.host import supernode
from camu.deploy.messages import head_text

LIES = 13  # the seed of runs in which it lies

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    return node_app.query(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    content = node_app.train_content(message.content, context)
    seed = Deployment.from_run_config(context.run_config).config.run.seed
    if seed == LIES and context.node_config["partition-id"] == 0:
        lie(content)
    return Message(content, reply_to=message)


def lie(content: RecordDict) -> None:
    head = json.loads(head_text(content))
    for name, record in list(content.items()):
        if isinstance(record, ArrayRecord) and head["round"] in (0, 1):
            array = record["parameters"].numpy()
            bad = ArrayRecord()
            bad["parameters"] = Array(array * np.nan if head["round"] == 0 else array[1:])
            bad["buffers"] = record["buffers"]
            content[name] = bad
    if head["round"] == 2:
        content["camu"] = ConfigRecord({"json": json.dumps({**head, "round": 1})})


if __name__ == "__main__":
    node_app.app = app
    supernode.main("lying_node")
