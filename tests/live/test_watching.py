"""A run directory is read while another process writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from camu.errors import InputError
from camu.live.following import Following
from camu.live.watching import Watch


def line(number: int, **more: Any) -> str:
    record: dict[str, Any] = {"round": number, "accuracy": 0.5, "loss": 1.0}
    record |= {"virtual_seconds": 2.0 * number, "joules": {"compute": 1.0, "transmit": 0.5}}
    return json.dumps({**record, "faults": {"absent": 0, "outages": 2}, **more}) + "\n"


def test_only_new_rounds_are_reported(tmp_path: Path) -> None:
    watch, path = Watch(tmp_path), tmp_path / "rounds.jsonl"
    assert watch.look() == {}
    path.write_text(line(0) + line(1)[:20])
    assert [point["round"] for point in watch.look()["points"]] == [0]
    assert watch.look() == {}
    path.write_text(line(0) + line(1))
    (point,) = watch.look()["points"]
    assert (point["round"], point["joules"], point["seconds"]) == (1, 1.5, 2.0)
    assert point["faults"] == {"outages": 2}


def test_a_file_that_begins_anew_is_read_from_its_start(tmp_path: Path) -> None:
    watch, path = Watch(tmp_path), tmp_path / "rounds.jsonl"
    path.write_text(line(0) + line(1) + line(2))
    watch.look()
    (tmp_path / "other").write_text(line(0) + line(1))
    (tmp_path / "other").replace(path)
    news = watch.look()
    assert news["again"]
    assert [point["round"] for point in news["points"]] == [0, 1]


def test_lines_that_are_no_rounds_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "rounds.jsonl").write_text("[]\n{}\nnull\n" + line(3))
    assert [point["round"] for point in Watch(tmp_path).look()["points"]] == [3]


def test_following_names_runs_by_their_place_and_no_other_path(tmp_path: Path) -> None:
    from helpers.configs import small

    run = tmp_path / "all" / "camu" / "seed-0"
    run.mkdir(parents=True)
    (run / "config.toml").write_text(small().to_toml())
    (tmp_path / "plan.json").write_text("{}")
    following = Following(tmp_path / "all")
    assert list(following.find()) == ["camu/seed-0"]
    for name in ("..", "../", str(tmp_path), "camu/seed-0/../../.."):
        with pytest.raises(InputError, match="there is no run"):
            following.plan(name)


def test_a_run_without_a_summary_that_is_quiet_has_no_news(tmp_path: Path) -> None:
    import os

    from helpers.configs import small

    (tmp_path / "config.toml").write_text(small().to_toml())
    for name, text in (("manifest.json", "{}"), ("rounds.jsonl", line(1))):
        (tmp_path / name).write_text(text)
    (run,) = Following(tmp_path).find().values()
    assert run.status(1)["state"] == "running"
    os.utime(tmp_path / "rounds.jsonl", (1, 1))
    assert run.status(1)["state"] == "no news"
    (tmp_path / "summary.json").write_text("{}")
    assert run.status(1) == {"state": "finished"}
