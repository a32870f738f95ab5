"""Single bits flipped in the files of a run: each must be noticed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from torture.calls import call, tell

# What is flipped, and the command that must refuse it.
PLACES = {
    "checkpoint": "checkpoint/state.safetensors",
    "plan": "plan.json",
    "model": "model.safetensors",
    "rounds": "rounds.jsonl",
    "summary": "summary.json",
}


def flips(count: int, seed: int, folder: Path, whole: Path) -> tuple[dict[str, int], list[str]]:
    """Flip bits; returns the number tried by kind, and a line for each that was not noticed."""
    tried = dict.fromkeys(PLACES, 0)
    failures = []
    for number in range(count):
        dice = random.Random(f"{seed}/flip/{number}")
        kind = list(PLACES)[number % len(PLACES)]
        tried[kind] += 1
        out = folder / "flipped"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(whole, out)
        path = out / PLACES[kind]
        content = bytearray(path.read_bytes())
        place, bit = dice.randrange(len(content)), dice.randrange(8)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        if kind == "checkpoint":  # alone: with another one, the run would go on from that
            (out / "checkpoint" / "previous.safetensors").unlink()
        command = ["run", "--resume", "--out", str(out)]
        if kind == "model" and number % 2:
            command = ["export", str(out), "--to", str(folder / "copy.safetensors")]
        done = call(command)
        if done.code != 1 or path.name not in done.err or "bug in camu" in done.err:
            what = f"{kind}: flip {number}, bit {bit} of byte {place}: exit code {done.code}"
            failures.append(tell(f"{what}: {done.err.strip()[-300:]}"))
    return tried, failures
