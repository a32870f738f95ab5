"""The cost of a round on the page is that of the run, also where a scheme draws some units."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from camu.simulation.directory import RunDirectory


def test_the_page_says_what_a_round_took_in_the_run(camu: Any, tmp_path: Path) -> None:
    options = ["--preset", "demo", "--set", "run.rounds=6", "--set", "training.model=logistic"]
    done = camu("run", *options, "--scheme", "near-iid-bandit", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    page = (tmp_path / "run" / "report.html").read_text()
    found = re.search(r"A round took ([\d.]+) virtual seconds and ([\d.]+) J", page)
    assert found is not None
    final = RunDirectory(tmp_path / "run").read_records()[-1]
    seconds, joules = final.virtual_seconds / final.round, final.total_joules / final.round
    assert [found[1], found[2]] == [f"{seconds:.3g}", f"{joules:.3g}"]
