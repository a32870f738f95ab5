"""Emulated links have the rates of the world, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from camu.deploy.emulation import network as network_module
from camu.deploy.emulation.network import Network, check_machine, rate_words, remove_stale
from camu.deploy.emulation.run import Emulation, emulate, page
from camu.deploy.emulation.trainer import Transfers
from camu.errors import InputError
from helpers.configs import small


def can_shape() -> bool:
    """Whether this machine lets us make and shape a namespace."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc"))):
        return False
    name = f"camu-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True)
    shaped = subprocess.run(
        ["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", *rate_words(1e6)],
        capture_output=True,
    )
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return made.returncode == shaped.returncode == 0


needs_root = pytest.mark.skipif(not can_shape(), reason="needs root, iproute2 and tbf")


def names() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith("camu-")]


def test_without_root_or_iproute2_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: str) -> str:
        raise AssertionError("a tool was run")

    monkeypatch.setattr(network_module, "run_tool", never)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="only root"):
        emulate(small(), 1.0)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InputError, match="install iproute2"):
        check_machine()


def test_rates_are_words_of_tc_within_what_it_takes() -> None:
    words = rate_words(1_234_567.8)
    assert words[:3] == ["tbf", "rate", "1234568bit"]
    assert rate_words(1.0)[2] == "8000bit"
    assert rate_words(1e12)[2] == "4000000000bit"


def test_only_namespaces_of_processes_that_are_gone_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removed: list[str] = []
    here = f"camu-{os.getpid()}-3"

    def tool(*words: str) -> str:
        if words[-1] == "list":
            return f"camu-4000000-0 (id: 1)\n{here}\nmine\ncamu-4000000-x\n"
        removed.append(words[-1])
        return ""

    monkeypatch.setattr(network_module, "run_tool", tool)
    assert remove_stale() == removed == ["camu-4000000-0"]


def test_the_page_has_both_seconds_of_every_unit_and_escapes_names() -> None:
    row = Transfers(1, 0, 2, 1.0, 2.1, 0.0, 0.0, 0.5, 1.1, 100, 3.0)
    rounds = [{"wall_seconds": 3.2, "wire_bytes": 110, "payload_bytes": 100}]
    found = Emulation("<b>", 2.0, [row], rounds, True, 1.5, 3.0)
    assert found.ratios("compute") == pytest.approx([1.05])
    assert found.ratios("gather") == []
    assert found.median_error("compute", "uplink") == pytest.approx((0.05 + 0.1) / 2)
    text = page(found)
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "the same to the bit" in text
    assert "1.100" in text


@needs_root
def test_a_link_carries_what_its_rate_allows_and_is_removed() -> None:
    with Network(3) as links:
        links.shape(0, 2e6)
        out, into = links.line(0, 2)
        size = 100_000
        before, began = links.sent_bytes(), time.monotonic()
        threading.Thread(target=out.sendall, args=(bytes(size),), daemon=True).start()
        left = size
        while left:
            left -= len(into.recv(left))
        seconds = time.monotonic() - began
        sent = links.sent_bytes()[0] - before[0]
        assert size * 1.03 < sent < size * 1.12  # heads of frames
        # Slower than without heads is impossible; how much slower depends on the machine.
        assert seconds > 8 * (size - 2 * network_module.QUEUE_BYTES) / 2e6
        links.shape(0, 50e6)
        assert len(names()) >= 4
    assert not [name for name in names() if f"-{os.getpid()}-" in name]


@needs_root
def test_a_run_over_links_gives_the_model_of_the_simulation_and_a_page(tmp_path: Path) -> None:
    config = small(run__rounds=2, training__model="logistic", radio__uplink="digital")
    found = emulate(config, 1.0, tmp_path)
    assert found.same_model
    assert all(row.whole and row.carried for row in found.rows)
    assert {row.round for row in found.rows} == {1, 2}
    assert all(row.measured_uplink_seconds > 0 for row in found.rows)
    assert len(found.rounds) == 2
    assert (tmp_path / "emulation.html").exists()
    assert (tmp_path / "emulation.json").exists()


KILLED = """
import os, signal
from camu.deploy.emulation.network import Network
Network(2).__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_root
def test_what_a_killed_run_leaves_is_removed_by_the_next() -> None:
    killed = subprocess.Popen([sys.executable, "-c", KILLED])
    assert killed.wait(60) == -9
    left = {name for name in names() if f"-{killed.pid}-" in name}
    assert len(left) == 3
    assert left <= set(remove_stale())
    assert not left & set(names())
