"""The files and events by which the owner of a deployed run can follow it."""

from __future__ import annotations

from typing import Literal

Event = Literal[
    "run-started",
    "run-finished",
    "run-failed",
    "node-new",
    "node-lost",
    "node-back",
    "node-refused",
    "quorum-lost",
    "quorum-back",
    "plan-made-again",
]
STATUS, EVENTS = "status.json", "events.jsonl"
