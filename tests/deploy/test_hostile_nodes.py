"""What one hostile node sends costs its own part, is named in the log, and forges no line of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.app import ConfigRecord, Error, RecordDict

from camu.deploy.array_records import Refusal, head_text, printable
from camu.deploy.deployment import Deployment
from camu.deploy.server.app import serve
from helpers.configs import small
from helpers.nodes import honest, partition_nodes, wait_without_time
from helpers.parcels import arrays_of, with_arrays, with_head

FORGED = "\n2026-11-18 02:00:00,000 INFO node 99 is pump\x1b[2J\u202e"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_without_time(monkeypatch)


def without_head(content: RecordDict) -> RecordDict:
    content["camu"] = ConfigRecord({"json": [1, 2]})
    return content


def with_more(content: RecordDict) -> RecordDict:
    content["camu-1"] = ConfigRecord({"data": bytes(1000)})
    return content


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda c: with_arrays(c, b""), id="no arrays"),
        pytest.param(lambda c: with_arrays(c, arrays_of(c)[:-1]), id="too short"),
        pytest.param(lambda c: with_arrays(c, bytes(10**6)), id="too long"),
        pytest.param(lambda c: with_arrays(c, "text"), id="a text"),
        pytest.param(lambda c: with_arrays(c, [b"a", b"b"]), id="a list"),
        pytest.param(lambda c: with_head(c, losses=[[]]), id="wrong losses"),
        with_more,
        without_head,
    ],
)
@pytest.mark.parametrize("granularity", ["leader", "device"])
def test_a_malformed_reply_costs_its_sender_the_round_and_ends_no_run(
    fake_grid: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Any,
    granularity: Any,
) -> None:
    config = small(training__model="logistic", training__normalisation="none")
    nodes = partition_nodes(config, 3)
    evil = min(nodes)

    def answer(node: int, message: Any) -> Any:
        content = honest(nodes[node], message)
        wanted = message.metadata.message_type == "train" and node == evil
        return spoil(content) if wanted else content

    history = serve(
        fake_grid(nodes, answer), Deployment(config, str(tmp_path / "run"), granularity, nodes=3)
    )
    assert [record.round for record in history.records] == [0, 1, 2]
    assert history.final.faults["refused"] > 0
    assert history.final.units > 0
    assert "is refused (node partition " in caplog.text


def test_reasons_and_reports_of_nodes_forge_no_line_of_the_log(
    fake_grid: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = small(training__model="logistic", training__normalisation="none")
    nodes = partition_nodes(config, 3)
    first, second, _ = sorted(nodes)

    def answer(node: int, message: Any) -> Any:
        if message.metadata.message_type == "train":
            if node == first:
                return Error(0, FORGED + 100_000 * "x")
            return honest(nodes[node], message)
        content = honest(nodes[node], message)
        if node == second and "is not used" not in caplog.text:
            head = json.loads(head_text(content))
            head["provenance"] = {FORGED: FORGED}
            content["camu"] = ConfigRecord({"json": json.dumps(head)})
        return content

    wanted = Deployment(config, str(tmp_path / "run"), nodes=3, wait_seconds=200)
    serve(fake_grid(nodes, answer), wanted)
    lines = [record.getMessage() for record in caplog.records]
    assert any("error 0" in line for line in lines)
    assert any(f"node {second} is not used" in line for line in lines)
    assert all(line.isprintable() and len(line) < 1500 for line in lines)
    assert (tmp_path / "run" / "events.jsonl").stat().st_size < 20_000


@pytest.mark.parametrize("field", ["id", "version", "kernel"])
def test_texts_in_a_report_that_cannot_be_printed_are_refused(
    fake_grid: Any, tmp_path: Path, field: str
) -> None:
    from camu.deploy.messages import read_report

    config = small()
    node = partition_nodes(config, 1)[10_000]
    message = type("M", (), {"metadata": type("D", (), {"message_type": "query"})})
    content = honest(node, message)
    head = json.loads(head_text(content))
    classes = len(head["devices"][0]["label_counts"])
    read_report(content, classes)
    if field == "id":
        head["devices"][0]["id"] = FORGED
    elif field == "version":
        head["version"] = FORGED
    else:
        head["provenance"]["kernel"] = FORGED
    content["camu"] = ConfigRecord({"json": json.dumps(head)})
    with pytest.raises(Refusal, match="can be printed"):
        read_report(content, classes)


def test_a_reason_is_short_and_printable() -> None:
    assert printable("pump Süd") == "pump Süd"
    assert printable(FORGED).isprintable()
    assert printable("x" * 10**6, 50) == "x" * 50 + " ..."
    assert str(Refusal(FORGED)).startswith("\\n2026")
    assert len(str(Refusal("x" * 10**6))) < 510
