"""A running `camu live` with an open page in chromium, for scripts that draw or measure."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu"]


@contextmanager
def live_page(
    arguments: list[str], width: int, height: int, theme: str = "light", scale: float = 1.0
) -> Iterator[Any]:
    """A page of `camu live ARGUMENTS`, ready to be used; the server ends with the block."""
    from playwright.sync_api import sync_playwright

    words = [sys.executable, "-m", "camu.cli", "live", "--no-browser", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address = server.stdout.readline().partition(": ")[2].strip()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
                size: Any = {"width": width, "height": height}
                page = browser.new_page(
                    viewport=size, color_scheme=theme, device_scale_factor=scale
                )
                page.set_default_timeout(120_000)
                page.goto(address)
                page.wait_for_selector("html[data-state=ready]")
                yield page
                browser.close()
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)
            server.stdout.close()


def centre(page: Any, device: int) -> tuple[float, float]:
    """Where a device is on the first map, in pixels of the window."""
    box = page.locator(".map").first.locator(".device").nth(device).locator(".body").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
