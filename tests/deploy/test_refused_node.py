"""A node that the SuperLink refuses says why, and ends with an error."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.supercore.primitives.asymmetric import generate_key_pairs
from flwr.supernode import fleet_http_connection

from camu.deploy.host.supernode import say_refusals


@pytest.fixture
def interceptor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What signs the calls of a node, as camu has it; Flower's own comes back after the test."""
    name = "NodeAuthHttpInterceptor"
    monkeypatch.setattr(fleet_http_connection, name, getattr(fleet_http_connection, name))

    def end(code: int, words: str) -> None:
        raise SystemExit(code, words)

    monkeypatch.setattr("flwr.supercore.exit.flwr_exit", end)
    say_refusals()
    return getattr(fleet_http_connection, name)(*generate_key_pairs())


def answered(interceptor: Any, status: int, text: str) -> Any:
    answer = SimpleNamespace(status_code=status, text=text)
    context = SimpleNamespace(request=SimpleNamespace(headers={}))
    return interceptor.intercept(context, lambda _: answer)


@pytest.mark.parametrize("status", [401, 412])
def test_a_refused_node_ends_with_the_reason(interceptor: Any, status: int) -> None:
    with pytest.raises(SystemExit) as ended:
        answered(interceptor, status, "the clock of node 7 is 40 s\nbehind \x1b[31m; set both\n")
    why = "the clock of node 7 is 40 s behind \\x1b[31m; set both"
    code, words = ended.value.args
    assert code >= 100  # an error
    assert words == f"the SuperLink refuses this node: {why}"
    assert answered(interceptor, status, "its goodbye").status_code == status


def test_other_answers_are_left_to_flower(interceptor: Any) -> None:
    for status in (200, 403, 503):
        assert answered(interceptor, status, "").status_code == status


def test_the_heartbeat_of_a_node_leaves_its_end_to_the_main_thread(interceptor: Any) -> None:
    found: list[Any] = []
    beat = threading.Thread(target=lambda: found.append(answered(interceptor, 401, "no")))
    beat.start()
    beat.join()
    assert [answer.status_code for answer in found] == [401]
