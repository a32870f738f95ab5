"""A ClientApp whose node 0 lies: nan in round 1, a wrong shape in round 2, round 2 again in 3."""

from __future__ import annotations

import json

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from camu.deploy import node_app as client_app
from camu.deploy.messages import head_text

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    return client_app.query(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    content = client_app.train_content(message.content, context)
    head = json.loads(head_text(content))
    if context.node_config["partition-id"] == 0:
        for name, record in list(content.items()):
            if isinstance(record, ArrayRecord) and head["round"] in (0, 1):
                array = record["parameters"].numpy()
                bad = ArrayRecord()
                bad["parameters"] = Array(array * np.nan if head["round"] == 0 else array[1:])
                bad["buffers"] = record["buffers"]
                content[name] = bad
        if head["round"] == 2:
            content["camu"] = ConfigRecord({"json": json.dumps({**head, "round": 1})})
    return Message(content, reply_to=message)
