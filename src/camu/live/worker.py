"""A worker process: reads requests as lines of JSON, answers each with a line of JSON.

It ends with its input, and with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import IO, Any

from camu.config import Config
from camu.errors import CamuError
from camu.live.planner import Planner
from camu.live.state import faults, read_state
from camu.live.take_away import take
from camu.work import end_with_parent


def answer(planner: Planner, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request; errors that a user can cause are sentences in it."""
    try:
        state = read_state(request["state"])
        if request["do"] == "plan":
            return planner.plan(state)
        if request["do"] == "configure":
            return {"toml": planner.config(state, keep=True).to_toml()}
        return take(planner, state, request["what"], request["scheme"])
    except CamuError as error:
        return {"errors": faults(error)}


def serve(planner: Planner, requests: IO[str], answers: IO[str]) -> None:
    """Answer until the input ends."""
    for line in requests:
        try:
            text = _json(answer(planner, json.loads(line)))
        except Exception as error:  # the next request can still be answered
            traceback.print_exc()
            words = f"{type(error).__name__}: {error}. This is a defect of camu"
            text = _json({"errors": [{"key": None, "text": words}]})
        answers.write(text + "\n")
        answers.flush()


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def main() -> None:
    """`python -m camu.live.worker PARENT FOLDER`, with the configuration as the first line."""
    end_with_parent(int(sys.argv[1]))
    # What a user's own code prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    base = Config.from_toml(json.loads(sys.stdin.readline()))
    serve(Planner(base, Path(sys.argv[2])), sys.stdin, answers)


if __name__ == "__main__":
    main()
