"""Run the harness and print what was tried and what held."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from torture.calls import Case, call, complaint, tell
from torture.deployments import deployments
from torture.flips import flips
from torture.hostile import hostile
from torture.inputs import TINY, cases
from torture.kills import kills
from torture.limits import limits
from torture.soak import soak


def bad_inputs(count: int, seed: int, folder: Path) -> tuple[dict[str, int], list[str]]:
    """Try bad inputs; returns the number tried by kind, and a line for each that did not hold."""
    whole = finished_run(folder)
    tried: Counter[str] = Counter()
    failures = []
    for number, case in enumerate(cases(count, seed, folder, whole)):
        with _environment({"COLUMNS": "300", "NO_COLOR": "1", **case.environment}):
            outcome = call(case.arguments)
        tried[case.kind] += 1
        if wrong := complaint(case, outcome):
            failures.append(tell(_report(number, case, wrong, outcome.err)))
    return tried, failures


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ |= changes
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def finished_run(folder: Path) -> Path:
    """A small finished run."""
    config, out = folder / "tiny.toml", folder / "whole"
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(TINY)
    done = call(["run", "-c", str(config), "--out", str(out)])
    assert done.code == 0, done.err
    return out


def _report(number: int, case: Case, wrong: str, err: str) -> str:
    shown = " ".join(ascii(word)[1:-1][:120] for word in case.arguments)
    return f"{case.kind}: {number}: {wrong}: camu {shown}\n    {err.strip()[-400:]}"


def _count(
    what: str,
    tried: dict[str, int],
    wrong: list[str],
    rows: list[tuple[str, int, int]],
    failures: list[str],
) -> None:
    """Add a row for each kind, with which its failures begin, and one for all of them."""
    for kind, count in sorted(tried.items()):
        rows.append(
            (f"{what}: {kind}", count, count - sum(line.startswith(kind) for line in wrong))
        )
    rows.append((f"**{what}: all**", sum(tried.values()), sum(tried.values()) - len(wrong)))
    failures += wrong


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="bad inputs")
    parser.add_argument("--flips", type=int, default=200, help="flipped bits")
    parser.add_argument("--kills", type=int, default=100, help="kills at random moments")
    parser.add_argument(
        "--limits", type=int, default=1, help="1: full disk, memory, signals; 0: not"
    )
    parser.add_argument("--deployments", type=int, default=20, help="deployments with faults")
    parser.add_argument("--at-once", type=int, default=1, help="deployments at the same time")
    parser.add_argument("--hostile", action="store_true", help="every act of a hostile node")
    parser.add_argument("--soak", action="store_true", help="a long deployment with kills")
    parser.add_argument("--nodes", type=int, default=20, help="nodes of the soak")
    parser.add_argument("--rounds", type=int, default=200, help="rounds of the soak")
    parser.add_argument("--minutes", type=float, default=60.0, help="longest time of the soak")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    rows: list[tuple[str, int, int]] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="camu-torture-") as name:
        os.chdir(name)
        folder = Path(name)
        if wanted.kills:  # first: processes are forked from one that has computed nothing
            _count("kill -9", *kills(wanted.kills, wanted.seed, folder / "kills"), rows, failures)
        if wanted.flips:
            whole = finished_run(folder / "flips")
            found = flips(wanted.flips, wanted.seed, folder, whole)
            _count("flipped bit", *found, rows, failures)
        if wanted.inputs:
            found = bad_inputs(wanted.inputs, wanted.seed, folder / "inputs")
            _count("bad input", *found, rows, failures)
        if wanted.limits:
            _count("limit", *limits(folder / "limits"), rows, failures)
        if wanted.deployments:
            found = deployments(wanted.deployments, wanted.seed, folder, wanted.at_once)
            _count("deployment", *found, rows, failures)
        if wanted.hostile:
            _count("hostile node", *hostile(folder), rows, failures)
        if wanted.soak:
            found = soak(folder, wanted.nodes, wanted.rounds, wanted.minutes, wanted.seed)
            _count("soak", *found, rows, failures)
    print(f"| what (seed {wanted.seed}) | tried | held |\n|---|---|---|")
    for what, count, held in rows:
        print(f"| {what} | {count} | {held} |")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
