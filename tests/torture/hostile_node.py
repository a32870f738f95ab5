"""A registered node that is hostile: `python -m torture.hostile_node ARGS`.

The arguments are those of a node. What it does is in the file that the environment variable
CAMU_TORTURE_ACT names, so that one fleet can be used for every act.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from camu.deploy import node_app
from camu.deploy.array_records import head_text
from camu.deploy.host.node import main
from helpers.parcels import arrays_of, with_arrays, with_head

ACT_FILE = "CAMU_TORTURE_ACT"
# Acts in reports; each must leave the run as if the node had not reported (`mute`).
REPORTS = (
    "other's device", "unknown device", "400 digits", "copied report", "nan counts", "deep",
    "many samples", "slow",
)  # fmt: skip
# Acts in results; each must leave the run as if the node had never answered (`idle`).
RESULTS = ("nan", "inf", "huge", "large", "shape", "type", "replay", "oversize", "no head")


def act() -> str:
    """What the node does now."""
    path = os.environ.get(ACT_FILE)
    return Path(path).read_text() if path and Path(path).exists() else ""


honest = node_app.answer


def answer(
    kind: str, content: RecordDict, run: Mapping[str, Any], table: Mapping[str, Any]
) -> RecordDict:
    doing = act()
    if doing == {"query": "mute", "train": "idle"}[kind]:
        raise RuntimeError("it does not answer")
    found = honest(kind, content, run, table)
    if kind == "query" and doing in REPORTS:
        text = false_report(json.loads(head_text(found)), doing)
        found["camu"] = ConfigRecord({"json": text})
    if kind == "train" and doing in RESULTS:
        falsify(found, doing)
    return found


def false_report(report: dict[str, Any], doing: str) -> str:
    """The JSON of a report that lies."""
    first = report["devices"][0]
    if doing == "other's device":
        first["id"] = str(len(report["devices"]))
    elif doing == "copied report":
        for number, device in enumerate(report["devices"], len(report["devices"])):
            device["id"] = str(number)
    elif doing == "unknown device":
        first["id"] = "nobody"
    elif doing == "400 digits":
        first["label_counts"][0] = 10**400
    elif doing == "nan counts":
        first["label_counts"][0] = float("nan")
    elif doing == "many samples":
        first["label_counts"][0] = 10**9
    elif doing == "slow":
        first["update_seconds"] = 1e5
    text = json.dumps(report)
    return "[" * 100_000 + text if doing == "deep" else text


def falsify(content: RecordDict, doing: str) -> None:
    """Put something wrong into a result."""
    if doing == "replay":
        with_head(content, round=json.loads(head_text(content))["round"] - 1)
    elif doing == "no head":
        del content["camu"]
    else:
        with_arrays(content, false_array(arrays_of(content), doing))


def false_array(array: Any, doing: str) -> Any:
    """Parameters that no honest node sends."""
    if doing == "oversize":
        return np.zeros(8_000_000, np.float32)
    with np.errstate(all="ignore"):
        return {
            "nan": array * np.float32(np.nan),
            "inf": array + np.float32(np.inf),
            "huge": array + np.float32(1e30),
            "large": array + np.float32(2000 / np.sqrt(array.size)),
            "shape": array[1:],
            "type": array.astype(np.float64),
        }[doing]


if __name__ == "__main__":
    node_app.answer = answer
    main()
