"""Thousands of connections without a call, and bodies that do not come, stop nobody."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

import uvicorn

from camu.deploy.host import connections
from camu.deploy.host.connections import allow_files, bounded_connections
from camu.deploy.host.guard import OBJECT, PULL, Guard
from camu.deploy.host.keys import KeyDirectory, make_keys
from helpers.signed_calls import TOKEN, SignedNode, pull

NODE = SignedNode(7)


async def work(scope: Any, receive: Any, send: Any) -> None:
    """The application behind the guard."""
    assert (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"work"})


class Server:
    """A guarded server with TLS in this process."""

    def __init__(self, keys: KeyDirectory) -> None:
        self.context = ssl.create_default_context(cafile=str(keys.authority))
        self.http = uvicorn.Server(
            uvicorn.Config(
                Guard(work, TOKEN, lambda: NODE.registration),
                port=0,
                lifespan="off",
                log_level="critical",
                ssl_certfile=str(keys.server),
                ssl_keyfile=str(keys.server_key),
                **bounded_connections(),
            )
        )
        self.thread = threading.Thread(target=self.http.run)
        self.thread.start()
        while self.thread.is_alive() and not self.http.started:
            time.sleep(0.02)
        self.port = int(self.http.servers[0].sockets[0].getsockname()[1])

    def connect(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port), 20)
        return self.context.wrap_socket(plain, server_hostname="localhost")

    def ask(self) -> int:
        """The status of a good call of a node."""
        with httpx.Client(verify=self.context, timeout=20) as client:
            url = f"https://localhost:{self.port}{PULL}"
            return client.post(url, content=pull(7), headers=NODE.headers()).status_code

    def stop(self) -> None:
        self.http.should_exit = True
        self.thread.join()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> KeyDirectory:
    return make_keys(tmp_path_factory.mktemp("keys") / "new", nodes=1)


@pytest.fixture
def server(made: KeyDirectory) -> Iterator[Server]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_files()
    found = Server(made)
    yield found
    found.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def ended(connection: socket.socket, seconds: float) -> bool:
    """Whether the other side ends a connection within a time."""
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.slow
def test_two_thousand_idle_connections_leave_nodes_their_answers(server: Server) -> None:
    with ExitStack() as stack:
        for _ in range(1400):  # of which no handshake comes
            address = ("127.0.0.1", server.port)
            stack.enter_context(socket.create_connection(address, 20))
        idle = [stack.enter_context(server.connect()) for _ in range(600)]
        assert server.ask() == 200
        assert ended(idle[0], 5)  # the oldest has made room
        assert not ended(idle[-1], 0.2)


@pytest.mark.slow
def test_bodies_that_do_not_come_take_no_memory_without_a_key(server: Server) -> None:
    process = psutil.Process()
    server.ask()
    before = process.memory_info().rss
    head = f"POST {OBJECT} HTTP/1.1\r\nhost: x\r\ncontent-length: 5900000\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(50):
            one = stack.enter_context(server.connect())
            with contextlib.suppress(OSError):  # the server has ended the connection
                one.sendall(head + b"x" * 5_000_000)
        assert server.ask() == 200
        assert process.memory_info().rss - before < 50_000_000  # of 250


@pytest.mark.parametrize("sent", [b"", b"POST /v1/fl", b"G" * 3000])
def test_a_call_whose_headers_do_not_come_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    with server.connect() as one:
        one.sendall(sent)
        assert ended(one, 5)
    assert server.ask() == 200


def test_half_headers_after_a_call_are_given_up_too(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    fields = "".join(f"{name}: {value}\r\n" for name, value in NODE.headers().items())
    body = pull(7)
    head = f"POST {PULL} HTTP/1.1\r\nhost: x\r\n{fields}content-length: {len(body)}\r\n\r\n"
    with server.connect() as one:
        one.sendall(head.encode() + body)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += one.recv(1000)
        assert b" 200 " in received
        one.sendall(b"POST /v1/fl")
        assert ended(one, 5)


def test_headers_are_bounded(server: Server) -> None:
    with server.connect() as one:
        one.sendall(b"POST / HTTP/1.1\r\nx: " + b"y" * 2 * connections.LARGEST_HEADERS)
        assert b" 400 " in one.recv(100)
    assert server.ask() == 200


def test_a_handshake_that_does_not_come_is_given_up(
    made: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.2)
    server = Server(made)
    try:
        with socket.create_connection(("127.0.0.1", server.port), 20) as one:
            assert ended(one, 5)
        assert server.ask() == 200
    finally:
        server.stop()


def test_a_superlink_may_open_more_files_than_a_shell_gives_it() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
        allow_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(
            connections.MOST_FILES, before[1]
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_units_give_a_superlink_as_many_files_as_it_needs() -> None:
    unit = Path(__file__).parents[2] / "docs/examples/systemd/camu-superlink.service"
    assert f"LimitNOFILE={connections.MOST_FILES}\n" in unit.read_text()
