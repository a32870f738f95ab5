"""What a node may call is decided before anything of the call is read, and bounded after."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from flwr.proto.fleet_pb2 import PullMessagesRequest

from camu import __version__
from camu.deploy.host import bodies
from camu.deploy.host import guard as guard_module
from camu.deploy.host.connections import Quota
from camu.deploy.host.guard import OBJECT, PULL, PUSH, SEND, Guard
from helpers.signed_calls import (
    OWN,
    TOKEN,
    Caller,
    Inner,
    SignedNode,
    activate,
    message,
    piece,
    pull,
    reply,
    scope,
)

NODE, STRANGER, OTHER = SignedNode(7), SignedNode(8), SignedNode(9)
FAR_FUTURE = -3600.0
HEARTBEAT = "/v1/fleet/send-node-heartbeat"


def guarded(inner: Any) -> Guard:
    return Guard(inner, TOKEN, lambda: NODE.registration | OTHER.registration)


async def call(guard: Guard, path: str, headers: Any, body: bytes, **options: Any) -> Caller:
    caller = Caller(body)
    about = scope(path, headers, **{"size": len(body), **options})
    await guard(about, caller.receive, caller.send)
    return caller


def without(name: str) -> Callable[[dict[str, str]], Any]:
    return lambda headers: {key: value for key, value in headers.items() if key != name}


def changed(name: str, value: str) -> Callable[[dict[str, str]], Any]:
    return lambda headers: {**headers, name: value}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda headers: {}, "not signed"),
        (without("flwr-public-key"), "not signed"),
        (without("flwr-timestamp"), "not signed"),
        (without("flwr-signature"), "not signed"),
        (lambda headers: [*headers.items(), *headers.items()], "not signed"),
        (changed("flwr-signature", "A" * 2000), "not signed"),
        (changed("flwr-signature", "not base64!"), "cannot be read"),
        (changed("flwr-timestamp", "yesterday"), "cannot be read"),
        (changed("flwr-timestamp", "2026-01-01"), "cannot be read"),
        (changed("flwr-timestamp", "2026-01-01T00:00:00+00:00"), "signature is wrong"),
        (changed("flwr-signature", "AAAA"), "signature is wrong"),
        (lambda headers: STRANGER.headers(), "camu deploy register"),
        (lambda headers: NODE.headers(FAR_FUTURE), "3600 s ahead of .* set both clocks"),
        (lambda headers: NODE.headers(400.0), "400 s behind .* set both clocks"),
    ],
)
def test_a_call_that_no_registered_node_signed_is_refused_unread(
    change: Callable[[dict[str, str]], Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    inner, caller = Inner(), Caller(pull(7))
    about = scope(PULL, change(NODE.headers()), len(pull(7)))
    asyncio.run(guarded(inner)(about, caller.receive, caller.send))
    assert (caller.asked, inner.bodies) == (0, [])
    assert caller.status == (412 if "register" in why else 401)
    assert re.search(why, caller.text)
    assert "is refused" in caplog.text
    assert (b"connection", b"close") in caller.answer[0]["headers"]


def test_no_key_that_is_not_registered_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("elliptic-curve work for a stranger")

    guard = guarded(Inner(b"work"))
    asyncio.run(call(guard, PULL, NODE.headers(), pull(7)))
    monkeypatch.setattr(guard_module, "bytes_to_public_key", never)
    monkeypatch.setattr(guard_module, "verify_signature", never)
    assert asyncio.run(call(guard, PULL, STRANGER.headers(), pull(8))).status == 412


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        (PULL, "0" * 15 + "1500000000", 411),
        (PULL, "9" * 400, 411),
        (PULL, "+5", 411),
        (PULL, "-1", 411),
        (PULL, "5, 5", 411),
        (PULL, "1_0", 411),
        (PULL, "", 411),
        (PULL, None, 411),
        (PULL, 4097, 413),
        (HEARTBEAT, 4097, 413),
        (PUSH, 4_000_001, 413),
        (OBJECT, 6_000_001, 413),
        ("/v1/fleet/register-node", 10, 404),
        ("/v1/fleet/../control/list-nodes", 10, 404),
        ("/v1/fleet/", 10, 404),
    ],
)
def test_a_call_of_no_size_or_too_large_a_size_is_refused_unread(
    path: str, size: int | str | None, status: int
) -> None:
    inner, caller = Inner(), Caller(b"x")
    about = scope(path, NODE.headers(), size)
    asyncio.run(guarded(inner)(about, caller.receive, caller.send))
    assert (caller.status, caller.asked, inner.bodies) == (status, 0, [])


def test_a_good_call_reaches_the_application_once_and_whole() -> None:
    inner, caller, body = Inner(b"work"), Caller(pull(7)[:1], pull(7)[1:]), pull(7)
    about = scope(PULL, NODE.headers(), len(body))
    asyncio.run(guarded(inner)(about, caller.receive, caller.send))
    assert (caller.status, caller.text, inner.bodies) == (200, "work", [body])


def test_a_body_that_is_longer_or_shorter_than_it_said_is_refused() -> None:
    for size in (len(pull(7)) - 1, len(pull(7)) + 1):
        inner = Inner()
        done = asyncio.run(call(guarded(inner), PULL, NODE.headers(), pull(7), size=size))
        assert (done.status, inner.bodies) == (400, [])


def test_a_body_that_does_not_come_is_given_up_and_its_room_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "READ_SECONDS", 0.05)
    guard, caller = guarded(Inner()), Caller(b"x", then_wait=True)
    about = scope(PULL, NODE.headers(), 30)
    asyncio.run(guard(about, caller.receive, caller.send))
    assert caller.status == 408
    assert not guard._bytes
    assert not guard._calls


def test_what_a_key_has_under_way_is_bounded_and_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard_module, "MOST_BYTES_OF_KEY", 100)
    guard = guarded(Inner(b"work", b"work"))

    async def both() -> tuple[int | None, int | None, int | None]:
        slow = Caller(b"", then_wait=True)
        first = asyncio.create_task(
            guard(scope(OBJECT, NODE.headers(), 90), slow.receive, slow.send)
        )
        await asyncio.sleep(0.05)
        second = await call(guard, PULL, NODE.headers(), pull(7), size=20)
        other = await call(guard, PULL, OTHER.headers(), pull(9))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return (
            second.status,
            other.status,
            (await call(guard, PULL, NODE.headers(), pull(7))).status,
        )

    assert asyncio.run(both()) == (503, 200, 200)
    assert not guard._bytes


def test_a_key_has_few_calls_open_at_a_time() -> None:
    guard = guarded(Inner())

    async def many() -> int | None:
        slow = [Caller(b"", then_wait=True) for _ in range(guard_module.MOST_CALLS_OF_KEY)]
        tasks = [
            asyncio.create_task(guard(scope(PULL, NODE.headers(), 9), c.receive, c.send))
            for c in slow
        ]
        await asyncio.sleep(0.1)
        status = (await call(guard, PULL, NODE.headers(), pull(7))).status
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return status

    assert asyncio.run(many()) == 503
    assert not guard._calls


def test_a_node_speaks_for_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    guard = guarded(inner := Inner())

    async def calls() -> list[int | None]:
        await call(guard, SEND, OWN, message("m", 7), host="127.0.0.1")
        return [
            (await call(guard, path, NODE.headers(), body)).status
            for path, body in (
                (PULL, pull(9)),
                (OBJECT, piece(9, 10)),
                (PUSH, reply(9, 9, "m")),
                (PUSH, reply(7, 9, "m")),
            )
        ]

    assert asyncio.run(calls()) == [401, 401, 401, 403]
    assert len(inner.bodies) == 1  # the owner's
    assert "a message in the name of node 9 came from node 7" in caplog.text


def test_a_node_speaks_for_itself_alone_while_others_are_registered() -> None:
    guard = guarded(inner := Inner())

    async def calls() -> int | None:
        slow = Caller(pull(9)[:1], pull(9)[1:])
        receive = slow.receive

        async def registers_meanwhile() -> Any:
            await call(guard, guard_module.REGISTRATIONS[0], OWN, b"x", host="127.0.0.1")
            return await receive()

        await guard(scope(PULL, NODE.headers(), len(pull(9))), registers_meanwhile, slow.send)
        return slow.status

    assert asyncio.run(calls()) == 401
    assert set(inner.bodies) == {b"x"}


def test_a_reply_is_no_larger_than_its_message_needs(caplog: pytest.LogCaptureFixture) -> None:
    guard = guarded(inner := Inner())

    async def calls() -> list[int | None]:
        owner = {**OWN, "x-camu-reply-bytes": "1000"}
        found = [(await call(guard, OBJECT, NODE.headers(), piece(7, 100))).status]
        await call(guard, SEND, owner, message("m", 7), host="127.0.0.1")
        for node, body in ((OTHER, reply(9, 9, "m")), (NODE, reply(7, 7, "n"))):
            found.append((await call(guard, PUSH, node.headers(), body)).status)
        found.append((await call(guard, PUSH, NODE.headers(), reply(7, 7, "m", 100))).status)
        for size in (900, 800, 200):
            found.append((await call(guard, OBJECT, NODE.headers(), piece(7, size))).status)
        # Announced again, it may not have more.
        found.append((await call(guard, PUSH, NODE.headers(), reply(7, 7, "m", 200))).status)
        return found

    # Twice the size may come, because a lost answer is repeated.
    assert asyncio.run(calls()) == [403, 403, 403, 200, 200, 200, 413, 413]
    assert sum(map(len, inner.bodies)) < 2000 + 100
    assert "node 7 sends more than a reply to its message can have" in caplog.text


def test_a_key_that_was_revoked_is_refused_at_once() -> None:
    known = dict(NODE.registration)
    guard = Guard(Inner(b"work", b"", b"work"), TOKEN, lambda: dict(known))

    async def calls() -> list[int | None]:
        found = [(await call(guard, PULL, NODE.headers(), pull(7))).status]
        known.clear()
        path = "/v1/control/unregister-node"
        found.append((await call(guard, path, OWN, b"x", host="127.0.0.1")).status)
        return [*found, (await call(guard, PULL, NODE.headers(), pull(7))).status]

    assert asyncio.run(calls()) == [200, 200, 412]


def test_a_node_that_waits_for_work_is_told_at_once_that_its_key_was_revoked() -> None:
    known = dict(NODE.registration)
    guard = Guard(Inner(), TOKEN, lambda: dict(known))

    async def calls() -> tuple[int | None, str]:
        asked = Caller(pull(7))
        about = scope(PULL, NODE.headers(), len(pull(7)))
        question = asyncio.create_task(guard(about, asked.receive, asked.send))
        await asyncio.sleep(0.05)
        known.clear()
        await call(guard, guard_module.REGISTRATIONS[1], OWN, b"x", host="127.0.0.1")
        await asyncio.wait_for(question, 5)
        return asked.status, asked.text

    status, text = asyncio.run(calls())
    assert status == 412
    assert "its key is not registered" in text
    assert not guard._waiting


def test_a_question_for_work_is_kept_until_there_is_some() -> None:
    guard = guarded(Inner(b"", b"", b"", b"work"))

    async def calls() -> tuple[bool, str, int]:
        asked = Caller(pull(7))
        about = scope(PULL, NODE.headers(), len(pull(7)))
        question = asyncio.create_task(guard(about, asked.receive, asked.send))
        await asyncio.sleep(0.05)
        kept = not asked.answer
        await call(guard, SEND, OWN, message("m", 7), host="127.0.0.1")
        await call(guard, guard_module.COLLECT, OWN, b"", host="127.0.0.1")
        await asyncio.wait_for(question, 5)
        return kept, asked.text, len(guard._waiting)

    assert asyncio.run(calls()) == (True, "work", 0)


def test_two_hundred_questions_for_work_are_kept_and_work_wakes_its_node_alone() -> None:
    nodes = range(1, 201)
    asked: list[int] = []
    work: set[int] = set()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        mine = b""
        if scope["path"] == PULL:
            number = PullMessagesRequest.FromString(body).node.node_id
            asked.append(number)
            mine = b"work" if number in work else b""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": mine})

    guard = Guard(app, TOKEN, None)  # signatures are checked by other tests

    async def calls() -> list[int]:
        callers = {number: Caller(pull(number)) for number in nodes}
        questions = [
            asyncio.create_task(guard(scope(PULL, {}, len(pull(n))), c.receive, c.send))
            for n, c in callers.items()
        ]
        await asyncio.sleep(0)
        while len(asked) < len(nodes):
            await asyncio.sleep(0.01)
        work.add(150)
        await call(guard, SEND, OWN, message("m", 150), host="127.0.0.1")
        await call(guard, guard_module.COLLECT, OWN, b"", host="127.0.0.1")
        await asyncio.wait(questions, return_when="FIRST_COMPLETED")
        answered = [number for number, caller in callers.items() if caller.answer]
        for question in questions:
            question.cancel()
        return answered

    assert asyncio.run(calls()) == [150]
    assert sorted(asked) == sorted([*nodes, 150])  # nobody else was asked for again


def test_a_node_without_work_is_told_so_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "HOLD_SECONDS", 0.05)
    done = asyncio.run(call(guarded(Inner()), PULL, NODE.headers(), pull(7)))
    assert (done.status, done.text) == (200, "")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("100", 100.0), ("9999", 270.0), (None, 20.0), ("-1", 20.0), ("1e9", 20.0), ("99999", 20.0)],
)
def test_a_node_says_how_long_its_question_may_wait_within_bounds(
    said: str | None, seconds: float
) -> None:
    headers = {} if said is None else {"x-camu-hold": said}
    assert guard_module.hold_seconds(scope(PULL, headers)) == seconds


def test_versions_of_nodes_are_told_to_the_owner_and_another_one_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "HOLD_SECONDS", 0.0)
    guard, path = guarded(Inner()), "/camu/versions"
    for node, said in ((NODE, __version__), (OTHER, "0.0.1\n"), (OTHER, "0.0.1\n")):
        headers = {**node.headers(), "x-camu-version": said}
        asyncio.run(call(guard, PULL, headers, pull(node.number)))
    assert asyncio.run(call(guard, path, NODE.headers(), b"")).status == 403
    found = asyncio.run(call(guard, path, OWN, b"", host="127.0.0.1", method="GET"))
    assert json.loads(found.text) == {
        "superlink": __version__,
        "nodes": {"7": __version__, "9": "0.0.1\\n"},
    }
    logged = [text for text in caplog.messages if "install one version" in text]
    assert logged == [
        f"node 9 has camu 0.0.1\\n, and this SuperLink has {__version__}; install one version"
    ]


def test_a_node_that_begins_again_says_goodbye_first() -> None:
    guard, body = guarded(inner := Inner()), activate(NODE.public)
    assert asyncio.run(call(guard, guard_module.ACTIVATE, NODE.headers(), body)).status == 200
    assert inner.paths == [guard_module.DEACTIVATE, guard_module.ACTIVATE]
    assert inner.bodies[1] == body


def test_without_keys_nodes_register_themselves_and_sizes_hold() -> None:
    guard = Guard(Inner(b"x"), TOKEN, None)
    assert asyncio.run(call(guard, PULL, {}, pull(7))).status == 200
    assert asyncio.run(call(guard, PULL, {}, pull(7), size=5000)).status == 413


def test_refused_calls_do_not_fill_the_disk() -> None:

    now = [0.0]
    quota = Quota(3, lambda: now[0])
    records = [logging.makeLogRecord({"msg": "%s is refused", "args": (n,)}) for n in range(12)]
    kept = [record for record in records[:10] if quota.filter(record)]
    now[0] = 61.0
    kept += [record for record in records[10:] if quota.filter(record)]
    assert [record.getMessage() for record in kept] == [
        "0 is refused",
        "1 is refused",
        "2 is refused",
        "10 is refused (7 lines before it were left out)",
        "11 is refused",
    ]


def test_calls_with_messages_take_the_short_way_and_errors_are_flowers_own() -> None:
    from types import SimpleNamespace

    from flwr.proto.fleet_pb2 import PullMessagesResponse

    from camu.deploy.host.direct import Direct

    class Store:
        def get_message_ins(self, node_id: int, limit: int) -> list[Any]:
            asked.append(node_id)
            return []

        def get_task_by_token(self, token: str) -> None:
            asked.append(token)

        object_store = None

    asked: list[Any] = []
    inner: Any = Inner(b"the usual way")
    inner.state = SimpleNamespace(linkstate_factory=SimpleNamespace(state=Store))

    async def calls() -> list[Caller]:
        found = []
        for path, headers, body in (
            (PULL, {}, pull(7)),
            (HEARTBEAT, {}, b"x"),
            (guard_module.COLLECT, {"flwr-task-token": "wrong"}, b""),
            (PULL, {}, b"\xff nonsense"),
        ):
            caller = Caller(body)
            await Direct(inner)(scope(path, headers, len(body)), caller.receive, caller.send)
            found.append(caller)
        return found

    short, usual, foreign, nonsense = asyncio.run(calls())
    assert (short.status, asked[0]) == (200, 7)
    assert PullMessagesResponse.FromString(short.text.encode()) == PullMessagesResponse()
    assert (usual.text, inner.paths) == ("the usual way", [HEARTBEAT])
    assert (foreign.status, asked[1]) == (401, "wrong")
    assert nonsense.status == 500
