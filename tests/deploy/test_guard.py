"""Control and runtime are for their owner: a token at the SuperLink, a socket at nodes."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

import uvicorn

from camu.deploy.flower import OwnersToken
from camu.deploy.host.guard import OWNERS_BYTES, Guard
from camu.deploy.host.keys import make_token, read_token, token_path
from camu.deploy.host.processes import temporary_folder
from camu.deploy.host.superlink import superlink_command
from camu.errors import InputError
from helpers.signed_calls import TOKEN, Caller, Inner, scope

OWN = ("x-camu-token", TOKEN)


@pytest.mark.parametrize(
    ("path", "host", "headers", "why"),
    [
        ("/v1/control/register-node", "192.0.2.9", [OWN], "only this machine"),
        ("/v1/control/start-run", "::ffff:192.0.2.9", [OWN], "only this machine"),
        ("/v1/runtime/acquire-task", "192.0.2.9", [OWN], "only this machine"),
        ("/v1/control/register-node", "proxy.example", [OWN], "only this machine"),
        ("/v1/control/start-run", None, [OWN], "only this machine"),
        ("/docs", "127.0.0.1", [], "no valid token"),
        ("/v1/control/register-node", "127.0.0.1", [], "no valid token"),
        ("/v1/control/start-run", "127.0.0.1", [("x-camu-token", "b" * 64)], "no valid token"),
        ("/v1/control/start-run", "127.0.0.1", [OWN, OWN], "no valid token"),
        ("/v1/runtime/acquire-task", "::1", [("x-camu-token", "")], "no valid token"),
        ("/v1/control/start-run", "127.0.0.1", [OWN], None),
        ("/v1/runtime/acquire-task", "::1", [OWN], None),
    ],
)
def test_only_the_owner_reaches_more_than_the_nodes_interface(
    path: str,
    host: str | None,
    headers: list[tuple[str, str]],
    why: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caller, inner = Caller(b""), Inner()
    guard = Guard(inner, TOKEN, dict)
    asyncio.run(guard(scope(path, headers, host=host), caller.receive, caller.send))
    assert caller.status == (200 if why is None else 403)
    assert bool(inner.bodies) is (why is None)
    assert caller.asked == (why is None)
    assert (why or "") in caller.text
    assert (f"{path} from" in caplog.text) is (why is not None)
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("size", [OWNERS_BYTES + 1, "0" * 20 + "1", "5, 5", None])
def test_a_call_of_the_owner_says_its_size(size: int | str | None) -> None:
    caller, inner = Caller(b"x"), Inner()
    call = scope("/v1/runtime/push-object", [OWN], size, "127.0.0.1")
    asyncio.run(Guard(inner, TOKEN, dict)(call, caller.receive, caller.send))
    assert caller.status in (411, 413)
    assert caller.asked == 0


def test_the_token_is_made_once_and_its_owner_alone_can_read_it(tmp_path: Path) -> None:
    path = token_path(tmp_path / "keys" / "ca.crt")
    assert path == tmp_path / "keys" / "control.token"
    make_token(path)
    token = read_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) == 64
    make_token(path)
    assert read_token(path) == token
    path.chmod(0o640)
    for use in (make_token, read_token):
        with pytest.raises(InputError, match=f"chmod 600 {path}"):
            use(path)


@pytest.mark.parametrize("content", [None, b"", b"short\n", b"\xff" * 64])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "control.token"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(InputError, match=r"control\.token: "):
        read_token(path)


def test_a_superlinks_command_line_has_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "control.token"
    command = superlink_command("127.0.0.1", 8000, None, token=path)
    assert str(path) in command
    assert read_token(path) not in " ".join(command)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server behind the guard, and the file with its token."""
    path = tmp_path / "control.token"
    make_token(path)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"reached"})

    server = uvicorn.Server(
        uvicorn.Config(
            Guard(app, read_token(path), dict), port=0, lifespan="off", ws="none", log_level="error"
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while thread.is_alive() and not server.started:
        time.sleep(0.05)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1/control/start-run", path
    finally:
        server.should_exit = True
        thread.join()


def as_another_user(what: Callable[[], str]) -> str:
    """What a function returns in a process of the user `nobody`."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            os.write(theirs, what().encode())
        except BaseException as error:
            os.write(theirs, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said


def test_the_owner_works_and_another_user_is_refused(guarded: tuple[str, Path]) -> None:
    url, path = guarded
    request = httpx.Request("POST", url, content=b"x")
    with httpx.Client() as client:
        context = SimpleNamespace(request=request)
        answer = OwnersToken(read_token(path)).intercept(context, lambda c: client.send(c.request))
        assert answer.text == "reached"
        assert client.post(url, content=b"x").status_code == 403
    assert as_another_user(path.read_text) == "PermissionError"
    stranger = partial(httpx.post, url, content=b"x", headers={"x-camu-token": "b" * 64})
    assert as_another_user(lambda: str(stranger().status_code)) == "403"


def test_another_user_cannot_reach_the_socket_of_a_node() -> None:
    with temporary_folder(for_socket=True) as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        path = folder / "runtime"
        server = uvicorn.Server(
            uvicorn.Config(
                lambda *_: None, uds=str(path), lifespan="off", ws="none", log_level="error"
            )
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(0.05)
        try:

            def connect() -> str:
                with socket.socket(socket.AF_UNIX) as caller:
                    caller.connect(str(path))
                return "reached"

            assert connect() == "reached"
            assert as_another_user(connect) == "PermissionError"
        finally:
            server.should_exit = True
            thread.join()
    assert not folder.exists()
