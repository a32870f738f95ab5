"""A running `camu live` and a browser, shared by the tests of the page."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from camu.config import load_config
from camu.world.fleet_check import checked, repair
from camu.world.fleet_clean import read_fleet
from helpers.browser import PATIENCE


@dataclass
class Server:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    folder: Path

    @property
    def port(self) -> int:
        return int(self.address.split(":")[2].split("/")[0])

    @property
    def token(self) -> str:
        return self.address.rstrip("/").rpartition("/")[2]

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, str]:
        """Status and text of a request; the path is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def post(self, path: str, document: Any) -> Any:
        """The JSON answer to a JSON question below the token."""
        headers = {"content-type": "application/json"}
        status, text = self.ask("POST", f"/{self.token}/{path}", json.dumps(document), headers)
        assert status == 200, text
        return json.loads(text)

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(60)


def start_server(folder: Path, *arguments: str) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "camu.cli", "live", "--no-browser", *arguments]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("camu live: http://127.0.0.1:"), line
    process.stdout.readline()
    return Server(process, line.split(": ", 1)[1].strip(), folder)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers that end with the test."""
    started: list[Server] = []

    def begin(*arguments: str, folder: Path = tmp_path) -> Server:
        started.append(start_server(folder, *arguments))
        return started[-1]

    yield begin
    for server in started:
        if server.process.poll() is None:
            server.end()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server on the preset demo, for all tests that do not end it."""
    server = start_server(tmp_path_factory.mktemp("live"))
    yield server
    if server.process.poll() is None:
        server.end()


EXPORT = Path(__file__).parents[2] / "docs" / "examples" / "export.csv"
STATIONS = "id,latitude,longitude\nHavel,52.40,13.00\nSpree,52.42,13.10\n"


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the 400 gateways of docs/examples as they are repaired, and two stations."""
    folder = tmp_path_factory.mktemp("gateways")
    config = load_config(preset="demo")
    clean, _ = repair(checked(read_fleet(EXPORT), config), config)
    (folder / "clean.csv").write_text(clean.cleaned.to_csv())
    (folder / "masts.csv").write_text(STATIONS)
    files = ["--fleet", "clean.csv", "--set", "fleet.base_station_file=masts.csv"]
    files += ["--set", "fleet.unreachable=keep"]  # wherever a test drags it
    server = start_server(folder, *files)
    yield server
    server.end()


class Visit:
    """An open page, with everything that it said."""

    def __init__(
        self,
        browser: Any,
        address: str,
        width: int = 1280,
        theme: str = "light",
        touch: bool = False,
    ) -> None:
        size = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=size, color_scheme=theme, has_touch=touch)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-state=ready]")

    def total(self, key: str, scheme: str = "camu") -> float:
        return float(self.page.get_attribute(f"#total-{scheme}-{key}", "data-value"))

    def after(self, act: Callable[[], None]) -> None:
        """Act, and wait until an answer to it is drawn and none is asked for."""
        before = int(self.page.get_attribute("html", "data-drawn"))
        act()
        self.page.wait_for_function(
            "before => Number(document.documentElement.dataset.drawn) > before "
            "&& document.documentElement.dataset.state === 'ready'",
            arg=before,
        )

    def type(self, key: str, text: str) -> None:
        """Type a value into the field of a setting."""
        field = self.page.locator(f"[id='field-{key}']")
        self.after(lambda: (field.fill(text), field.press("Tab")))

    def label(self, device: int) -> str:
        """What the map says about a device, under the first scheme."""
        return str(self.page.locator(".map").first.locator(".device").nth(device).get_attribute(
            "aria-label"
        ))  # fmt: skip

    def drag(self, device: int, across: float, along: float) -> None:
        """Drag a device by so many pixels."""
        node = self.page.locator(".map").first.locator(".device").nth(device).locator(".body")
        node.scroll_into_view_if_needed()
        box = node.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

        def act() -> None:
            self.page.mouse.move(x, y)
            self.page.mouse.down()
            self.page.mouse.move(x + across, y + along, steps=4)
            self.page.mouse.up()

        self.after(act)

    def take(self, name: str) -> bytes:
        """The content of a file that the page hands out."""
        with self.page.expect_download() as waiting:
            self.page.locator(f"[id='download-{name}']").click()
        return Path(waiting.value.path()).read_bytes()

    def trained(self) -> None:
        self.page.wait_for_selector("html[data-training='finished']")


@pytest.fixture
def visit(browser: Any, server: Server) -> Iterator[Callable[..., Visit]]:
    """Open the page of the shared server; it must not say anything on the console."""
    opened: list[Visit] = []

    def go(address: str | None = None, **options: Any) -> Visit:
        opened.append(Visit(browser, address or server.address, **options))
        return opened[-1]

    yield go
    for one in opened:
        one.context.close()
    assert [text for one in opened for text in one.said] == []
