"""A node that lies when it serves part 0 in a run with seed 13.

It sends nan in round 1, a wrong shape in round 2, and round 2 again in round 3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import RecordDict

from camu.deploy import node_app
from camu.deploy.array_records import head_text
from camu.deploy.deployment import Deployment
from camu.deploy.host.node import main
from helpers.parcels import arrays_of, with_arrays, with_head

LIES = 13  # the seed of runs in which it lies

honest = node_app.answer


def answer(
    kind: str, content: RecordDict, run: Mapping[str, Any], table: Mapping[str, Any]
) -> RecordDict:
    found = honest(kind, content, run, table)
    seed = Deployment.from_run_config(run).config.run.seed
    if kind == "train" and seed == LIES and table["partition-id"] == 0:
        lie(found)
    return found


def lie(content: RecordDict) -> None:
    number = json.loads(head_text(content))["round"]
    if number in (0, 1):
        array = arrays_of(content)
        with_arrays(content, array * np.float32(np.nan) if number == 0 else array[1:])
    if number == 2:
        with_head(content, round=1)


if __name__ == "__main__":
    node_app.answer = answer
    main()
