"""Only the page itself gets in: token, host, origin, and size, over real connections."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from camu.live.serving import LARGEST_BODY

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
PLAN = json.dumps({"schemes": ["fedavg"]})
JSON = {"content-type": "application/json"}
Server = Any


def test_the_page_itself_is_let_in(server: Server) -> None:
    status, text = server.ask("GET", f"/{server.token}/")
    assert status == 200
    assert "<title>camu live</title>" in text


@pytest.mark.parametrize(
    "path",
    ["/", "/plan", "/static/main.js", "//", "/wrong/", "/wrong/static/main.js", "/%2e%2e/", "/?a"],
)
def test_no_token_and_a_wrong_one_are_refused(server: Server, path: str) -> None:
    for method in ("GET", "POST"):
        status, text = server.ask(method, path, PLAN if method == "POST" else None, JSON)
        assert status == 403
        assert server.token not in text


def test_part_of_the_token_is_not_enough(server: Server) -> None:
    for token in (server.token[:-1], server.token + "x", server.token.swapcase()):
        assert server.ask("GET", f"/{token}/")[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:80"])
def test_another_host_is_refused(server: Server, host: str) -> None:
    assert server.ask("GET", f"/{server.token}/", headers={"host": host})[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:1", "file://"]
)
def test_another_origin_is_refused(server: Server, origin: str) -> None:
    for method in ("GET", "POST"):
        headers = {**JSON, "origin": origin}
        assert server.ask(method, f"/{server.token}/plan", PLAN, headers)[0] == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_request_from_another_site_is_refused(server: Server, site: str) -> None:
    headers = {**JSON, "sec-fetch-site": site}
    assert server.ask("POST", f"/{server.token}/train", PLAN, headers)[0] == 403
    assert server.ask("GET", f"/{server.token}/", headers={"sec-fetch-site": site})[0] == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_post_that_a_form_could_send_is_refused(server: Server, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    assert server.ask("POST", f"/{server.token}/plan", PLAN, headers)[0] == 415


TRAVERSALS = ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "..\\app.py", "/etc/passwd", "....//x"]


@pytest.mark.parametrize("step", TRAVERSALS)
def test_no_path_leads_out_of_the_page(server: Server, step: str) -> None:
    for start in ("static/", "trainings/", "trainings/1/", "", "static/..%2f"):
        status, text = server.ask("GET", f"/{server.token}/{start}{step}")
        assert status in (403, 404, 405), (start, step, status)
        assert "root:" not in text
        assert "import" not in text


@pytest.mark.parametrize("step", TRAVERSALS)
def test_no_parameter_leads_out_of_the_run_directory(server: Server, step: str) -> None:
    state = {"schemes": ["camu"]}
    for asked in (
        {"state": state, "what": step, "scheme": "camu"},
        {"state": state, "what": "plan.json", "scheme": step},
        {"state": {**state, "schemes": [step]}, "what": "plan.json", "scheme": step},
    ):
        assert server.post("download", asked)["errors"]
    keys = ("fleet.file", "fleet.snr_file", "faults.dropout_trace", "data.directory")
    for key in (*keys, "data.dataset", "training.model", "scheme.parameters.x"):
        for route in ("plan", "train"):
            assert server.post(route, {**state, "changes": {key: step}})["errors"]
    kept = {path.name for path in (server.folder / "runs").iterdir()}
    assert kept <= {"live", "live-2"}
    assert [path.name for path in server.folder.iterdir()] == ["runs"]


def ten_megabytes(server: Server) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.putrequest("POST", f"/{server.token}/plan")
    for name, value in {**JSON, "content-length": "10000000"}.items():
        connection.putheader(name, value)
    connection.endheaders()
    with suppress(OSError):  # the server may close before all has come
        connection.send(b" " * 10_000_000)
    status = connection.getresponse().status
    connection.close()
    return status


def without_a_length(server: Server) -> int:
    chunk = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
        line.sendall(
            f"POST /{server.token}/plan HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n"
            "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )
        for _ in range(LARGEST_BODY // 65536 + 2):
            try:
                line.sendall(chunk)
            except OSError:
                break
        return int(line.recv(100).split()[1])


@pytest.mark.parametrize("send", [ten_megabytes, without_a_length])
def test_a_large_body_is_refused(server: Server, send: Callable[[Server], int]) -> None:
    assert send(server) == 413


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "1", '{"schemes": 1}', "[" * 100_000])
def test_a_body_that_is_no_state_is_refused_in_words(server: Server, text: str) -> None:
    status, answer = server.ask("POST", f"/{server.token}/plan", text, JSON)
    assert status == 200
    assert json.loads(answer)["errors"][0]["text"]


def test_half_a_surrogate_is_refused_in_words(server: Server) -> None:
    body = r'{"schemes": ["camu"], "changes": {"\ud800.x": 1}}'
    for route in ("plan", "train", "download"):
        status, answer = server.ask("POST", f"/{server.token}/{route}", body, JSON)
        assert status == 200
        assert "not JSON" in json.loads(answer)["errors"][0]["text"]


def test_every_answer_forbids_other_sources_and_frames(server: Server) -> None:
    for path in (f"/{server.token}/", f"/{server.token}/static/main.js", "/wrong/"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", path)
        headers = connection.getresponse().headers
        connection.close()
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe-eval" not in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
