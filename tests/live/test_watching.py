"""A run directory is read while another process writes it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from camu.errors import InputError
from camu.live import watching
from camu.live.watching import Feed, Following, Watch
from helpers.configs import small


def line(number: int, **more: Any) -> str:
    record: dict[str, Any] = {"round": number, "accuracy": 0.5, "loss": 1.0}
    record |= {"virtual_seconds": 2.0 * number}
    record |= {"joules": {"compute": 1.0, "transmit": 0.5, "receive": 0.25, "base_station": 9.0}}
    return json.dumps({**record, "faults": {"absent": 0, "outages": 2}, **more}) + "\n"


def test_only_new_rounds_are_reported(tmp_path: Path) -> None:
    watch, path = Watch(tmp_path), tmp_path / "rounds.jsonl"
    assert watch.look() == {}
    path.write_text(line(0) + line(1)[:20])
    assert [point["round"] for point in watch.look()["points"]] == [0]
    assert watch.look() == {}
    path.write_text(line(0) + line(1))
    (point,) = watch.look()["points"]
    assert (point["round"], point["joules"], point["seconds"]) == (1, 1.75, 2.0)
    assert point["faults"] == {"outages": 2}
    assert point["megabytes"] is None
    with path.open("a") as stream:
        stream.write(line(2, bits={"uplink": 8e6, "downlink": 0, "gather": 4e6}))
    assert watch.look()["points"][0]["megabytes"] == 1.5


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
    run = tmp_path / "all" / "camu" / "seed-0"
    run.mkdir(parents=True)
    (run / "config.toml").write_text(small().to_toml())
    (tmp_path / "plan.json").write_text("{}")
    found = Following(tmp_path / "all")
    assert list(found.find()) == ["camu/seed-0"]
    for name in ("..", "../", str(tmp_path), "camu/seed-0/../../.."):
        with pytest.raises(InputError, match="there is no run"):
            found.plan(name)


def test_a_run_of_another_version_is_followed_too(tmp_path: Path) -> None:
    text = small().to_toml().replace("[fleet]", "[fleet]\nkey_of_tomorrow = 1")
    (tmp_path / "config.toml").write_text(text)
    (run,) = Following(tmp_path).find().values()
    assert (run.name, run.scheme, run.rounds) == (tmp_path.name, "camu", small().run.rounds)


def test_a_feed_tells_what_is_new_and_then_nothing(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(small().to_toml())
    (tmp_path / "one" / "nodes.json").write_text("[{}, {}]")
    rounds = [line(number, accuracy=0.5 if number % 3 == 0 else None) for number in range(5)]
    (tmp_path / "one" / "rounds.jsonl").write_text("".join(rounds))
    feed = Feed(Following(tmp_path))
    news = feed.look()
    assert news["total"] == 2
    points = news["runs"]["one"]["points"]
    # Every third round has an accuracy, and the last is always there; no fault gets lost.
    assert [point["round"] for point in points] == [0, 3, 4]
    assert [point["faults"]["outages"] for point in points] == [2, 6, 2]
    assert (news["runs"]["one"]["nodes"], news["runs"]["two"]["nodes"]) == (2, None)
    assert feed.look() == {}
    (tmp_path / "two" / "summary.json").write_text("{}")
    assert list(feed.look()["runs"]) == ["two"]


def test_the_latest_runs_are_read_where_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_RUNS", 2)
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        path = tmp_path / str(number) / "config.toml"
        path.write_text(small().to_toml())
        os.utime(path, (number, number))
    found = Following(tmp_path)
    assert sorted(found.find()) == ["2", "3"]
    assert found.total == 4


def test_a_run_without_a_summary_that_is_quiet_has_no_news(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(small().to_toml())
    for name, text in (("manifest.json", "{}"), ("rounds.jsonl", line(1))):
        (tmp_path / name).write_text(text)
    (run,) = Following(tmp_path).find().values()
    assert run.status(1)["state"] == "running"
    os.utime(tmp_path / "rounds.jsonl", (1, 1))
    assert run.status(1)["state"] == "no news"
    (tmp_path / "summary.json").write_text("{}")
    assert run.status(1) == {"state": "finished"}


@pytest.mark.parametrize("spoiled", ["accuracy", "virtual_seconds", "round"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "[]"])
def test_a_round_without_finite_numbers_is_left_out(
    tmp_path: Path, spoiled: str, value: str
) -> None:
    bad = json.dumps({**json.loads(line(1)), spoiled: "HERE"}).replace('"HERE"', value)
    (tmp_path / "rounds.jsonl").write_text(line(0) + bad + "\n" + line(2))
    news = Watch(tmp_path).look()
    assert [point["round"] for point in news["points"]] == [0, 2]
    (tmp_path / "devices.json").write_text(f'{{"joules": [{value}]}}')
    json.dumps(Watch(tmp_path).look(), allow_nan=False)


@pytest.mark.parametrize("name", ["config.toml", "rounds.jsonl", "plan.json", "nodes.json"])
def test_a_named_pipe_does_not_stop_the_feed(tmp_path: Path, name: str) -> None:
    for folder in ("good", "piped"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.toml").write_text(small().to_toml())
        (tmp_path / folder / "rounds.jsonl").write_text(line(0))
    (tmp_path / "piped" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "piped" / name)
    following = Following(tmp_path)
    news = Feed(following).look()
    assert [point["round"] for point in news["runs"]["good"]["points"]] == [0]
    if name == "plan.json":
        with pytest.raises(InputError, match="there is no plan yet"):
            following.plan("piped")


def test_a_falling_error_is_told_with_its_name_and_a_blow_up(tmp_path: Path) -> None:
    judged = {"accuracy": None, "loss": None, "metric": "rmse"}
    scores = [{"rmse": 80.5}, {}, {"rmse": 50.25}, {"rmse": None}]
    lines = [line(n, **judged, metrics=own) for n, own in enumerate(scores)]
    (tmp_path / "rounds.jsonl").write_text("".join(lines))
    news = Watch(tmp_path).look()
    told = [(point["score"], point["blown"]) for point in news["points"]]
    assert told == [(80.5, False), (None, False), (50.25, False), (None, True)]
    assert [point["round"] for point in watching.thinned(news["points"][:3])] == [0, 2]
    assert [point["round"] for point in watching.thinned(news["points"])] == [0, 2, 3]
    assert (news["score"]["name"], news["score"]["share"]) == ("RMSE", False)
    assert news["score"]["marks"]["$score_axis"] == "test RMSE"
    json.dumps(news, allow_nan=False)
    (tmp_path / "rounds.jsonl").write_text(line(0, metric="of tomorrow", metrics={"x": 1}))
    assert "points" not in Watch(tmp_path).look()
